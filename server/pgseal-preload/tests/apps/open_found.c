/* open of an existing file outside every data directory: its first bytes say whether it is
   sealed, and reads, writes and appends must keep it so. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(PAGE), back[100];
    int fd = open(argv[1], O_RDONLY);
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(read(fd, back, 100));
    SAY(sum(back, 100));
    SAY(close(fd));
    fd = open(argv[1], O_RDWR | O_APPEND);
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
    SAY(write(fd, all, 500));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pread(fd, back, 100, 8100));
    SAY(sum(back, 100));
    SAY(fcntl(fd, F_SETFL, 0));
    SAY(pwrite(fd, all + 24, 100, 77));
    SAY(close(fd));
    fd = open(argv[1], O_WRONLY | O_APPEND);
    SAY(write(fd, all, 333));
    SAY(read(fd, back, 1));
    SAY(close(fd));
    fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(lseek(fd, 0, SEEK_END));
    SAY(pwrite(fd, all, 10, 30));
    SAY(close(fd));
    SAY(opens(argv[1], O_RDWR | O_CREAT | O_EXCL));
    show(argv[1]);
    return 0;
}
