/* read, readv, pread, preadv, preadv2 of every length, at the end of the file and beyond it, and
   with invalid arguments: must work as on plain files. */
#include "app.h"
int main(int argc, char **argv)
{
    static char a[3 * PAGE], b[100];
    struct iovec two[2] = {{a, 2 * PAGE + 3}, {b, 100}};
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(read(fd, a, 10));
    SAY(write(fd, text(3 * PAGE), 3 * PAGE - 9));
    SAY(lseek(fd, 11, SEEK_SET));
    SAY(read(fd, a, 20000));
    SAY(sum(a, 20000));
    SAY(read(fd, a, 20000));
    SAY(read(fd, a, 20000));
    SAY(lseek(fd, 1, SEEK_SET));
    SAY(readv(fd, two, 2));
    SAY(sum(a, 2 * PAGE + 3) ^ sum(b, 100));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pread(fd, a, PAGE, PAGE));
    SAY(sum(a, PAGE));
    SAY(pread(fd, a, 100, 3 * PAGE - 20));
    SAY(pread(fd, a, 100, 1 << 30));
    SAY(preadv(fd, two, 2, PAGE + 5));
    SAY(sum(a, PAGE * 2 - 14));
    SAY(preadv2(fd, two, 2, 3, 0));
    SAY(preadv2(fd, two, 2, -1, 0));
    SAY(sum(a, 100));
    SAY(pread(fd, a, 10, -1));
    SAY(preadv(fd, two, -1, 0));
    SAY(preadv(fd, NULL, 0, 0));
    SAY(readv(fd, two, 0));
    SAY(pread(fd, a, 0, 0));
    SAY(lseek(fd, 0, SEEK_CUR));
    return 0;
}
