/* sendmsg, recvmsg, recvmmsg with SCM_RIGHTS: a received descriptor of a sealed file must be
   sealed, even if a plain file had the same number before. */
#include "app.h"
#include <sys/socket.h>
#include <sys/syscall.h>
static void carry(int sockets[2], int fd, int flag)
{
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'x';
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct mmsghdr many = {.msg_hdr = message};
    if (fd >= 0) {
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
        SAY(sendmsg(sockets[0], &message, 0));
    } else if (flag) {
        SAY(recvmmsg(sockets[1], &many, 1, 0, NULL));
    } else {
        SAY(recvmsg(sockets[1], &message, 0));
    }
}
int main(int argc, char **argv)
{
    char *all = text(3 * PAGE), back[100];
    int sockets[2], fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(pwrite(fd, all, PAGE, 0));
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    for (int way = 0; way < 2; way++) {
        int before = open("/dev/null", O_RDWR);
        SAY(write(before, all, 100));
        carry(sockets, fd, way);
        SAY(syscall(SYS_close, before));
        carry(sockets, -1, way);
        SAY(pwrite(before, all, PAGE, (1 + way) * PAGE));
        SAY(pread(before, back, 100, 50));
        SAY(sum(back, 100));
        SAY(lseek(before, 0, SEEK_SET));
        SAY(read(before, back, 100));
        struct stat st;
        SAY(fstat(before, &st));
        SAY(st.st_size);
        SAY(close(before));
    }
    SAY(close(fd));
    show(argv[1]);
    return 0;
}
