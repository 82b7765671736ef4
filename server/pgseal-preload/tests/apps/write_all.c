/* write, writev, pwrite, pwritev, pwritev2 of whole blocks and parts, with gaps and with invalid
   arguments: must work as on plain files. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(20 * PAGE);
    struct iovec two[3] = {{all, 100}, {all + 9, 2 * PAGE}, {all + 4, 5}};
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(write(fd, all, 3 * PAGE));
    SAY(write(fd, all, 1));
    SAY(writev(fd, two, 3));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pwrite(fd, all, 20 * PAGE, PAGE / 2));
    SAY(pwrite(fd, all, 10, 22 * PAGE + 100));
    SAY(pwritev(fd, two, 3, 30 * PAGE));
    SAY(pwritev2(fd, two, 3, 33 * PAGE, 0));
    SAY(pwritev2(fd, two, 3, -1, 0));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pwrite(fd, all, 10, -1));
    SAY(pwritev(fd, two, -1, 0));
    SAY(writev(fd, NULL, 0));
    SAY(pwrite(fd, all, 0, 0));
    SAY(fsync(fd));
    SAY(fdatasync(fd));
    show(argv[1]);
    return 0;
}
