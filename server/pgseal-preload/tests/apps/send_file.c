/* sendfile from a file to a pipe and to another file, and from that file to the first: counts,
   offsets and positions must be those of plain files. */
#include "app.h"
int main(int argc, char **argv)
{
    static char got[1 << 16];
    int pipes[2], len = 3 * PAGE + 100;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    int other = open(argv[2], O_RDWR | O_CREAT, 0600);
    loff_t off = 50;
    SAY(pipe2(pipes, O_NONBLOCK));
    SAY(write(fd, text(len), len));
    SAY(sendfile(pipes[1], fd, &off, 1000));
    SAY(off);
    SAY(lseek(fd, 0, SEEK_CUR));
    printf("sum %lx\n", sum(got, read(pipes[0], got, sizeof got)));
    SAY(lseek(fd, 100, SEEK_SET));
    SAY(sendfile(other, fd, NULL, 1 << 20));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(other, 0, SEEK_CUR));
    SAY(sendfile(other, fd, NULL, 10));
    off = 200;
    SAY(sendfile(fd, other, &off, 300));
    SAY(off);
    /* A full pipe takes no more. */
    while (write(pipes[1], got, sizeof got) > 0 || write(pipes[1], got, 1) > 0)
        ;
    off = 0;
    SAY(sendfile(pipes[1], fd, &off, 1000));
    SAY(off);
    SAY(sendfile(fd, pipes[0], NULL, 10) < 0);
    SAY(sendfile(-1, fd, &off, 10));
    show(argv[1]);
    show(argv[2]);
    return 0;
}
