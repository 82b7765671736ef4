/* shm_open: the object is written, resized and mapped as on plain files, and nobody looks it up by
   its path: the kernel ends this program at a readlink of /proc/self/fd. */
#include "app.h"
#include <linux/filter.h>
#include <stddef.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
int main(void)
{
    char name[64];
    snprintf(name, sizeof name, "/pgseal-test-%d", (int)getpid());
    struct sock_filter end_at_readlink[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_readlinkat, 2, 0),
#ifdef SYS_readlink
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_readlink, 1, 0),
#else
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_readlinkat, 1, 0),
#endif
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof end_at_readlink / sizeof *end_at_readlink, end_at_readlink};
    SAY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    SAY(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    SAY(fd >= 0);
    SAY(shm_unlink(name));
    SAY(ftruncate(fd, PAGE));
    SAY(pwrite(fd, text(PAGE), PAGE, 0));
    char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SAY(map != MAP_FAILED && memcmp(map, text(PAGE), PAGE) == 0);
    map[0] = 'x';
    char back;
    SAY(pread(fd, &back, 1, 0));
    SAY(back == 'x');
    SAY(close(fd));
    return 0;
}
