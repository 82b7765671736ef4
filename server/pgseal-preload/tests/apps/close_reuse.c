/* close, close_range, closefrom: the next file, pipe or device gets the same descriptor number,
   and calls must reach that file. A sealed file follows a plain one and the reverse. */
#include "app.h"
int main(int argc, char **argv)
{
    char back[100], *all = text(PAGE);
    int pipes[2], fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(write(fd, all, 1000));
    SAY(close(fd));
    SAY(pipe(pipes));
    SAY(pipes[0] == fd);
    SAY(write(pipes[1], "through a pipe", 14));
    SAY(read(fd, back, 100));
    SAY(close(pipes[0]) + close(pipes[1]));
    SAY(open(argv[1], O_RDONLY) == fd);
    SAY(read(fd, back, 100));
    SAY(sum(back, 100));
    SAY(close_range(fd, fd, 0));
    SAY(open("/dev/zero", O_RDONLY) == fd);
    SAY(read(fd, back, 100));
    SAY(sum(back, 100));
    closefrom(fd);
    SAY(read(fd, back, 100));
    SAY(open(argv[1], O_RDWR | O_CLOEXEC) == fd);
    SAY(fcntl(fd, F_GETFD));
    SAY(close(fd));
    SAY(close(fd));
    return 0;
}
