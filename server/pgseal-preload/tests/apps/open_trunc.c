/* creat, and open with O_TRUNC, of a file with content: the file must be empty, and take new
   content. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(5 * PAGE);
    int fd = creat(argv[1], 0600);
    SAY(write(fd, all, 5 * PAGE));
    SAY(close(fd));
    fd = open(argv[1], O_RDWR | O_TRUNC);
    SAY(lseek(fd, 0, SEEK_END));
    SAY(pwrite(fd, all, 50, 0));
    SAY(close(fd));
    show(argv[1]);
    fd = creat(argv[1], 0600);
    SAY(write(fd, all, 20));
    SAY(close(fd));
    show(argv[1]);
    return 0;
}
