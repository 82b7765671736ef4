/* Opens and reads an empty file, to which another process then writes: the first descriptor must
   see the new size and content. */
#include "app.h"
int main(int argc, char **argv)
{
    char back[PAGE], *all = text(PAGE);
    int reader = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(read(reader, back, PAGE));
    SAY(lseek(reader, 0, SEEK_END));
    SAY(lseek(reader, 0, SEEK_SET));
    fflush(stdout);
    if (!fork()) {
        int fd = open(argv[1], O_RDWR);
        _exit(write(fd, all, 5000) != 5000);
    }
    wait(NULL);
    SAY(lseek(reader, 0, SEEK_END));
    SAY(pread(reader, back, PAGE, 0));
    SAY(sum(back, 5000));
    SAY(pwrite(reader, all, 10, 4000));
    show(argv[1]);
    return 0;
}
