/* preadv and readv into more parts than one read takes, which lie apart in memory, some of them
   empty or no whole pages: must work as on plain files. */
#include "app.h"
#define PARTS 300
int main(int argc, char **argv)
{
    static char memory[PARTS][2 * PAGE];
    static struct iovec parts[PARTS];
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < 280; i++)
        SAY(pwrite(fd, text(PAGE + i) + i, PAGE, (off_t)i * PAGE));
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < PARTS; i++) {
            parts[i].iov_base = memory[PARTS - 1 - i] + kind;
            parts[i].iov_len = kind == 2 ? (size_t)(i * 37 % PAGE) : i % 7 == 3 ? 0 : PAGE;
        }
        memset(memory, 1, sizeof memory);
        SAY(preadv(fd, parts, PARTS, kind == 1 ? 5 * PAGE + 11 : 0));
        SAY(sum(memory[0], sizeof memory));
        SAY(lseek(fd, 270 * PAGE, SEEK_SET));
        SAY(readv(fd, parts, PARTS));
        SAY(sum(memory[0], sizeof memory));
        SAY(lseek(fd, 0, SEEK_CUR));
    }
    parts[1].iov_base = NULL;
    parts[1].iov_len = 10;
    SAY(preadv(fd, parts, 2, 0));
    return 0;
}
