/* Opens and duplicates descriptors with the processor's own instruction, which no hook sees: hooked
   calls on these descriptors must reach the file that they refer to now, plain or sealed. */
#include "app.h"
#include <sys/syscall.h>
static long raw(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return number;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#endif
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
    raw(SYS_dup3, null, second, 0, 0);
    raw(SYS_dup3, fd, null, 0, 0);
    SAY(dup2(fd, 100));
    SAY(write(second, all, 77));
    SAY(pwrite(null, all, PAGE, 2 * PAGE));
    SAY(pread(null, back, 100, 2 * PAGE));
    SAY(sum(back, 100));
    SAY(close(fd) + close(second) + close(null) + close(100));
    show(argv[1]);
    return 0;
}
