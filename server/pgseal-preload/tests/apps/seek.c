/* lseek with SEEK_SET, SEEK_CUR and SEEK_END, before the start and beyond the end, and a write
   there: must work as on plain files. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(PAGE);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(lseek(fd, 0, SEEK_END));
    SAY(write(fd, all, 5000));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(fd, -100, SEEK_END));
    SAY(lseek(fd, 50, SEEK_CUR));
    SAY(write(fd, all, 10));
    SAY(lseek(fd, -9999, SEEK_SET));
    SAY(lseek(fd, -9999, SEEK_CUR));
    SAY(lseek(fd, 0, 99));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(fd, 100000, SEEK_SET));
    SAY(read(fd, all, 10));
    SAY(write(fd, all, 10));
    SAY(lseek(fd, 0, SEEK_END));
    show(argv[1]);
    return 0;
}
