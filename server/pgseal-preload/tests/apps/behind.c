/* Opens and duplicates descriptors with the syscall instruction, which no hook sees: hooked
   calls on these descriptors must reach the file that they refer to now, plain or sealed. */
#include "app.h"
#include <sys/syscall.h>
static long raw(long number, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return number;
}
int main(int argc, char **argv)
{
    char *all = text(3 * PAGE), back[100];
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(pwrite(fd, all, PAGE, 0));
    /* A descriptor that no hook has seen. */
    int second = raw(SYS_openat, AT_FDCWD, (long)argv[1], O_RDWR, 0);
    SAY(pwrite(second, all, PAGE, PAGE));
    SAY(pread(second, back, 100, 70));
    SAY(sum(back, 100));
    /* `second` becomes the plain file and `null` the sealed one. After the hooked dup2() the
       library asks the kernel about each descriptor again. */
    int null = open("/dev/null", O_RDWR);
    SAY(write(null, all, 10));
    raw(SYS_dup2, null, second, 0, 0);
    raw(SYS_dup2, fd, null, 0, 0);
    SAY(dup2(fd, 100));
    SAY(write(second, all, 77));
    SAY(pwrite(null, all, PAGE, 2 * PAGE));
    SAY(pread(null, back, 100, 2 * PAGE));
    SAY(sum(back, 100));
    SAY(close(fd) + close(second) + close(null) + close(100));
    show(argv[1]);
    return 0;
}
