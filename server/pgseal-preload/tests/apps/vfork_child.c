/* vfork: the child, in its parent's memory, closes and moves descriptors before it executes
   another program, as Python's subprocess does. The parent's descriptors must stay as they were. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(4 * PAGE), back[200], path[200];
    int pipes[2], null = open("/dev/null", O_RDWR), fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    snprintf(path, sizeof path, "%s2", argv[1]);
    int other = open(path, O_RDWR | O_CREAT, 0600);
    SAY(write(fd, all, PAGE + 100));
    SAY(write(other, all, 100));
    SAY(pipe(pipes));
    fflush(stdout);
    pid_t child = vfork();
    if (!child) {
        dup2(null, fd);
        dup2(pipes[1], 1);
        write(1, "from the child", 14);
        close(pipes[0]);
        close(other);
        close_range(3, ~0U, 0);
        execlp("true", "true", NULL);
        _exit(127);
    }
    SAY(waitpid(child, NULL, 0) == child);
    SAY(read(pipes[0], back, 200));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(write(fd, all, 200));
    SAY(pwrite(fd, all, 2 * PAGE, 2 * PAGE));
    SAY(write(other, all, 300));
    SAY(pread(fd, back, 200, 1000));
    SAY(sum(back, 200));
    SAY(close(fd) + close(other));
    show(argv[1]);
    show(path);
    return 0;
}
