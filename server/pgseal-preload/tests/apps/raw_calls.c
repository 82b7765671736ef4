/* syscall(): calls by number must have the results of the functions of the same name. */
#include "app.h"
#include <linux/openat2.h>
#include <sys/syscall.h>
int main(int argc, char **argv)
{
    char *all = text(4 * PAGE), back[300];
    struct iovec iov[2] = {{all, 100}, {all + 50, 200}}, in[2] = {{back, 100}, {back + 100, 200}};
    struct open_how how = {.flags = O_RDWR};
    struct stat st;
    int fd = syscall(SYS_openat, AT_FDCWD, argv[1], O_RDWR | O_CREAT, 0600);
    SAY(syscall(SYS_write, fd, all, PAGE));
    SAY(syscall(SYS_pwrite64, fd, all, PAGE, (long)PAGE));
    SAY(syscall(SYS_writev, fd, iov, 2));
    SAY(syscall(SYS_pwritev, fd, iov, 2, 3L * PAGE, 0L));
    SAY(syscall(SYS_lseek, fd, 10L, SEEK_SET));
    SAY(syscall(SYS_read, fd, back, 100));
    SAY(sum(back, 100));
    SAY(syscall(SYS_preadv, fd, in, 2, 300L, 0L));
    SAY(sum(back, 300));
    SAY(syscall(SYS_fstat, fd, &st));
    SAY(st.st_size);
    SAY(syscall(SYS_newfstatat, AT_FDCWD, argv[1], &st, 0));
    SAY(st.st_size);
    int copy = syscall(SYS_dup, fd);
    SAY(syscall(SYS_close, fd));
    SAY(syscall(SYS_pread64, copy, back, 100, 20L));
    SAY(sum(back, 100));
    SAY(syscall(SYS_fallocate, copy, 0, 0L, 6L * PAGE));
    SAY(syscall(SYS_ftruncate, copy, 5L * PAGE));
    SAY(syscall(SYS_fcntl, copy, F_GETFL) & O_ACCMODE);
    SAY(syscall(SYS_close_range, copy, copy, 0));
    int again = syscall(SYS_openat2, AT_FDCWD, argv[1], &how, sizeof how);
    SAY(syscall(SYS_pwrite64, again, all, 100, (long)PAGE));
    SAY(syscall(SYS_close, again));
    SAY(syscall(SYS_getpid) == getpid());
    /* Invalid arguments, with which programs probe whether the kernel has a call. */
    SAY(syscall(SYS_openat, AT_FDCWD, NULL, O_RDONLY));
    SAY(syscall(SYS_openat2, AT_FDCWD, argv[1], NULL, sizeof how));
    SAY(syscall(SYS_statx, 0, NULL, 0, 0, NULL));
    SAY(syscall(SYS_clone3, NULL, 0));
    show(argv[1]);
    return 0;
}
