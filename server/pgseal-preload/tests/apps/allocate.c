/* fallocate and posix_fallocate: the file must grow by zeros, and existing bytes must stay. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(PAGE);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(posix_fallocate(fd, 0, 3 * PAGE));
    SAY(pwrite(fd, all, PAGE, PAGE));
    SAY(fallocate(fd, 0, 2 * PAGE, 4 * PAGE));
    SAY(posix_fallocate(fd, 0, PAGE));
    SAY(fallocate(fd, 0, 0, 0));
    SAY(fallocate(fd, 0, -1, 5));
    SAY(lseek(fd, 0, SEEK_END));
    show(argv[1]);
    SAY(close(fd));
    fd = open(argv[1], O_RDONLY);
    SAY(posix_fallocate(fd, 0, PAGE));
    SAY(fallocate(fd, 0, 0, 90 * PAGE));
    return 0;
}
