/* ioctl(FICLONE, FICLONERANGE) onto a sealed file: must be refused, and later writes through the
   same descriptor must be sealed. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(4 * PAGE);
    int plain = open("/dev/null", O_RDONLY), fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    struct file_clone_range range = {plain, 0, PAGE, 0};
    SAY(ioctl(fd, FICLONERANGE, &range) < 0);
    SAY(ioctl(fd, FICLONE, plain) < 0);
    SAY(pwrite(fd, all, 4 * PAGE, 0));
    SAY(ioctl(fd, FICLONE, plain) < 0);
    SAY(pwrite(fd, all, 100, 50));
    show(argv[1]);
    return 0;
}
