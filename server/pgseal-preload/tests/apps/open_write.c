/* open with O_WRONLY, and a write to a part of an existing block: the rest of the block must
   stay. */
#include "app.h"
int main(int argc, char **argv)
{
    char back[100], *all = text(3 * PAGE);
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_EXCL, 0600);
    SAY(fd >= 0);
    SAY(write(fd, all, 2 * PAGE + 77));
    SAY(close(fd));
    SAY(open(argv[1], O_WRONLY | O_CREAT | O_EXCL, 0600));
    fd = open(argv[1], O_WRONLY);
    SAY(pwrite(fd, MARKER, 10, PAGE - 5));
    SAY(read(fd, back, 100));
    SAY(fcntl(fd, F_GETFL) & O_ACCMODE);
    SAY(close(fd));
    fd = open(argv[1], O_RDONLY);
    SAY(write(fd, MARKER, 10));
    SAY(pread(fd, back, 100, PAGE - 50));
    SAY(sum(back, 100));
    show(argv[1]);
    return 0;
}
