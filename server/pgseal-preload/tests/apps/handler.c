/* A timer signal without SA_RESTART interrupts open, pwrite and pread on new files: each call
   must be complete, and no byte may be lost. */
#include "app.h"
#include <signal.h>
#include <sys/time.h>
static void nothing(int sig) { (void)sig; }
int main(int argc, char **argv)
{
    char *all = text(40 * PAGE), name[500];
    struct sigaction act = {.sa_handler = nothing};
    struct itimerval often = {{0, 300}, {0, 300}};
    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "%s.%d", argv[1], i);
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        if (pwrite(fd, all, 40 * PAGE, 0) != 40 * PAGE || pread(fd, all, 40 * PAGE, 0) != 40 * PAGE)
            printf("round %d: errno %d\n", i, errno);
        close(fd);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    SAY(sum(all, 40 * PAGE));
    show(name);
    return 0;
}
