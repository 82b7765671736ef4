/* fork: parent and child write alternate pages through a descriptor that they share. With a
   second argument the file has a header before the fork. All pages must be there, each with a
   nonce of its own (descriptors.rs). Both processes extend the file before they write:
   PostgreSQL extends a file under a lock, so no process writes beyond an end that another one
   moves. */
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
