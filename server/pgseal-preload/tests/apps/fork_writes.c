/* fork: parent and child both write through the descriptor that they share, at its birth or after it. Each
   extends the file first: PostgreSQL extends under a lock, nobody writes behind an end that moves. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(64 * PAGE);
    int born = argc > 2, fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (born)
        SAY(pwrite(fd, all, PAGE, 0));
    fflush(stdout);
    pid_t child = fork();
    if (ftruncate(fd, 64 * PAGE))
        printf("extend: errno %d\n", errno);
    for (int i = child ? 2 : 3; i < 64; i += 2)
        if (pwrite(fd, all + i * PAGE, PAGE, i * PAGE) != PAGE)
            printf("page %d: errno %d\n", i, errno);
    if (!child)
        _exit(0);
    SAY(waitpid(child, NULL, 0) == child);
    show(argv[1]);
    return 0;
}
