/* mmap with MAP_SHARED of a sealed file that is open for writing: must fail with EACCES, because
   the map would have to show later writes, or would be written itself. */
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
    /* The map of a file that is open for reading only cannot become writable. */
    int reader = open(argv[1], O_RDONLY);
    void *map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0);
    SAY(map == MAP_FAILED);
    SAY(mprotect(map, PAGE, PROT_READ | PROT_WRITE));
    return 0;
}
