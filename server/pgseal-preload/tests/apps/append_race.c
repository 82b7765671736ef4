/* Four processes write small texts with pwrite, each at its own offsets of one file, as
   pg_stat_statements does: no text may overwrite another. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(40000);
    SAY(opens(argv[1], O_RDWR | O_CREAT));
    fflush(stdout);
    for (int i = 0; i < 4; i++) {
        if (fork())
            continue;
        for (int k = i; k < 400; k += 4) {
            int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
            if (pwrite(fd, all + k * 100, 100, k * 100) != 100)
                printf("text %d: errno %d\n", k, errno), fflush(stdout);
            close(fd);
        }
        _exit(0);
    }
    while (wait(NULL) > 0)
        ;
    show(argv[1]);
    return 0;
}
