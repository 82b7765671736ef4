/* open with O_APPEND, and fcntl(F_SETFL) that sets it later: writes must go to the end of the
   file. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(PAGE);
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    SAY(write(fd, all, 1000));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(write(fd, all, 1000));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(fcntl(fd, F_GETFL) & O_APPEND);
    SAY(close(fd));
    fd = open(argv[1], O_RDWR);
    SAY(fcntl(fd, F_SETFL, O_APPEND));
    SAY(write(fd, all, 333));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(fcntl(fd, F_GETFL) & O_APPEND);
    SAY(fcntl(fd, F_SETFL, 0));
    SAY(pwrite(fd, all, 500, 7));
    SAY(fcntl(fd, F_GETFL) & O_APPEND);
    show(argv[1]);
    return 0;
}
