/* __open_2, __openat_2, __read_chk, __pread_chk, which the compiler calls with _FORTIFY_SOURCE:
   must work as open, openat, read, pread. */
#undef _FORTIFY_SOURCE
#define _FORTIFY_SOURCE 2
#include "app.h"
int main(int argc, char **argv)
{
    char back[300], *all = text(PAGE);
    volatile int flags = O_RDWR, none = 0;
    volatile size_t len = 300;
    SAY(opens(argv[1], O_RDWR | O_CREAT));
    int fd = open(argv[1], flags);
    SAY(write(fd, all, 5000));
    SAY(lseek(fd, 100 + none, SEEK_SET));
    SAY(read(fd, back, len));
    SAY(sum(back, 300));
    SAY(pread(fd, back, len, 4800));
    SAY(sum(back, 200));
    SAY(close(fd));
    fd = openat(AT_FDCWD, argv[1], flags);
    SAY(read(fd, back, len));
    SAY(sum(back, 300));
    return 0;
}
