/* Eight processes open one empty file, extend it and write to it at the same moment: the file
   must get exactly one header. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(8 * PAGE), c;
    int gate[2];
    if (pipe(gate))
        return 1;
    for (int i = 0; i < 8; i++) {
        if (fork())
            continue;
        int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
        close(gate[1]);
        if (read(gate[0], &c, 1) != 0 || ftruncate(fd, 9 * PAGE) ||
            pwrite(fd, all + i * PAGE, PAGE, (i + 1) * PAGE) != PAGE)
            printf("process %d: errno %d\n", i, errno), fflush(stdout);
        _exit(0);
    }
    usleep(20000);
    close(gate[1]);
    while (wait(NULL) > 0)
        ;
    show(argv[1]);
    return 0;
}
