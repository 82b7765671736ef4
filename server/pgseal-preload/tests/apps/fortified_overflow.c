/* __read_chk with a buffer that is too small: the program must abort inside the call. */
#undef _FORTIFY_SOURCE
#define _FORTIFY_SOURCE 2
#include "app.h"
int main(int argc, char **argv)
{
    char back[16], *all = text(PAGE);
    volatile size_t len = 4000;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(pwrite(fd, all, 5000, 0));
    fflush(stdout);
    SAY(read(fd, back, len));
    return 0;
}
