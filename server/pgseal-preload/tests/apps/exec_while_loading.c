/* exec_while_loading LIBRARY: forks while another thread is in dlopen(LIBRARY), so that the
   child holds the linker's lock forever. The child must still execute another program. With
   -DLIBRARY this file is LIBRARY: its constructor does not return. */
#include "app.h"
#include <dlfcn.h>
#include <pthread.h>
#ifdef LIBRARY
__attribute__((constructor)) static void load(void)
{
    write(atoi(getenv("READY")), "x", 1);
    pause();
}
#else
static void *loads(void *path) { return dlopen(path, RTLD_NOW); }
int main(int argc, char **argv)
{
    int pipes[2], status = -1;
    char number[16], byte;
    pthread_t thread;
    alarm(60);
    if (pipe(pipes) || snprintf(number, sizeof number, "%d", pipes[1]) < 1 || setenv("READY", number, 1) ||
        pthread_create(&thread, NULL, loads, argv[1]) || read(pipes[0], &byte, 1) != 1)
        return 2;
    pid_t child = fork();
    if (!child) {
        alarm(60);
        execlp("true", "true", NULL);
        _exit(127);
    }
    SAY(waitpid(child, &status, 0) == child);
    SAY(status);
    fflush(stdout);
    _exit(0);
}
#endif
