/* fork: parent and child both write through the descriptor that they share, at its birth or after it. The
   first page of a group is PostgreSQL's to extend under a lock, so none is written here at the same time. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(64 * PAGE);
    int born = argc > 2, fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (born)
        SAY(pwrite(fd, all, PAGE, 0));
    fflush(stdout);
    pid_t child = fork();
    for (int i = child ? 2 : 3; i < 64; i += 2)
        if (pwrite(fd, all + i * PAGE, PAGE, i * PAGE) != PAGE)
            printf("page %d: errno %d\n", i, errno);
    if (!child)
        _exit(0);
    SAY(waitpid(child, NULL, 0) == child);
    show(argv[1]);
    return 0;
}
