/* mmap of a sealed file that would have to follow what is written, or would be written: refused. */
#include "app.h"
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(write(fd, text(PAGE), PAGE));
    SAY(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    int refused = errno;
    SAY(refused == EACCES);
    SAY(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
    SAY(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, fd, 0) == MAP_FAILED);
    /* Of one that is open for reading only, nobody makes it writable later. */
    int reader = open(argv[1], O_RDONLY);
    void *map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0);
    SAY(map == MAP_FAILED);
    SAY(mprotect(map, PAGE, PROT_READ | PROT_WRITE));
    return 0;
}
