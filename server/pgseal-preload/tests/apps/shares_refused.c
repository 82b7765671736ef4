/* clone and unshare that would share memory but not descriptors, or descriptors but not memory:
   must fail with EPERM. */
#include "app.h"
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
static char stack[1 << 16];
static int child(void *fd) { return close((int)(long)fd); }
static void *thread(void *none)
{
    SAY(unshare(CLONE_FILES));
    SAY(close_range(500, 600, CLOSE_RANGE_UNSHARE));
    SAY(syscall(SYS_unshare, CLONE_FILES));
    return none;
}
int main(int argc, char **argv)
{
    pthread_t other;
    int status, fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    void *top = stack + sizeof stack;
    SAY(write(fd, MARKER, 10));
    SAY(clone(child, top, CLONE_VM | SIGCHLD, (void *)(long)fd));
    SAY(clone(child, top, CLONE_FILES | SIGCHLD, (void *)(long)fd));
    SAY(clone(child, top, SIGCHLD, (void *)(long)fd) > 0);
    SAY(wait(&status) > 0);
    SAY(unshare(CLONE_FILES));
    SAY(pthread_create(&other, NULL, thread, NULL));
    SAY(pthread_join(other, NULL));
    SAY(write(fd, MARKER, 10));
    return 0;
}
