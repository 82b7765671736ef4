/* Pages that another process changes while they are written: without data checksums PostgreSQL
   writes a page from shared_buffers, where others set hint bits meanwhile. The pages must open, and
   each byte is as it was before or after a change. */
#include "app.h"
#define LEN (4 * PAGE)
int main(int argc, char **argv)
{
    static unsigned char back[LEN];
    unsigned char *pages = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    pid_t other;
    long short_writes = 0, failed_reads = 0, wrong_bytes = 0;
    memset(pages, 0x5a, LEN);
    other = fork();
    if (!other)
        for (unsigned at = 0;; at = (at + 61) % LEN)
            __atomic_fetch_xor(pages + at, 1, __ATOMIC_RELAXED);
    for (int round = 0; round < 4000; round++) {
        long len = round % 2 ? LEN : PAGE;
        short_writes += pwrite(fd, pages, len, 0) != len;
        failed_reads += pread(fd, back, len, 0) != len;
        for (int at = 0; at < len; at++)
            wrong_bytes += (back[at] | 1) != 0x5b;
    }
    kill(other, SIGKILL);
    wait(NULL);
    SAY(short_writes);
    SAY(failed_reads);
    SAY(wrong_bytes);
    return 0;
}
