/* dup, dup2, dup3, fcntl(F_DUPFD): the duplicates must share one file and position, and each
   must stay open when another is closed. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(PAGE), back[100];
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(write(fd, all, 100));
    int a = dup(fd), b = fcntl(fd, F_DUPFD, 100), c = fcntl(fd, F_DUPFD_CLOEXEC, 200);
    SAY(write(a, all, 50));
    SAY(lseek(b, 0, SEEK_CUR));
    SAY(dup2(fd, 150));
    SAY(dup3(fd, 151, O_CLOEXEC));
    SAY(close(fd));
    SAY(lseek(150, 20, SEEK_SET));
    SAY(read(151, back, 100));
    SAY(lseek(c, 0, SEEK_CUR));
    SAY(sum(back, 100));
    SAY(write(c, all, 30));
    int null = open("/dev/null", O_RDWR);
    SAY(dup2(null, b));
    SAY(write(b, all, 77));
    SAY(dup2(a, a) == a);
    SAY(dup2(999, a));
    SAY(write(a, all, 10));
    SAY(close(a) + close(b) + close(c) + close(150) + close(151));
    SAY(write(150, all, 10));
    show(argv[1]);
    return 0;
}
