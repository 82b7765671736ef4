/* pwritev2 with RWF_APPEND and preadv2 with RWF_NOWAIT: must fail with EOPNOTSUPP on sealed
   files. */
#include "app.h"
int main(int argc, char **argv)
{
    struct iovec one = {text(100), 100};
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(pwrite(fd, one.iov_base, 100, 0));
    SAY(pwritev2(fd, &one, 1, 0, RWF_APPEND));
    SAY(preadv2(fd, &one, 1, 0, RWF_NOWAIT));
    show(argv[1]);
    return 0;
}
