/* open, stat, read, write, truncate and unlink of a file whose header is damaged; damage.rs
   lists the results that they must have. With a second argument, creates the file instead. */
#include "app.h"

/* A variable of PostgreSQL: 1 in the process that replays WAL. */
char InRecovery = REDO;

/* 0: zeros, 1: a page that PostgreSQL rejects, 2: the page that was written, 3: anything else. */
static int kind(const unsigned char *page, const char *all)
{
    int zeros = 0, ones = 0;
    for (int at = 0; at < PAGE; at++) {
        zeros += page[at] == 0;
        ones += page[at] == 255;
    }
    if (zeros == PAGE)
        return 0;
    if (zeros == 10 && ones == PAGE - 10 && !page[0] && !page[9])
        return 1;
    return memcmp(page, all, PAGE) ? 3 : 2;
}

int main(int argc, char **argv)
{
    unsigned char back[PAGE];
    char *all = text(3 * PAGE);
    struct stat st;
    int fd = open(argv[1], O_RDWR | (argc > 2 ? O_CREAT : 0), 0600);
    SAY(fd < 0 ? -1 : 0);
    if (fd < 0)
        return 0;
    if (argc > 2)
        return pwrite(fd, all, 3 * PAGE, 0) != 3 * PAGE;
    SAY(stat(argv[1], &st) ? -1 : st.st_size);
    SAY(fstat(fd, &st) ? -1 : st.st_size);
    SAY(lseek(fd, 0, SEEK_END));
    memset(back, 7, PAGE);
    SAY(pread(fd, back, PAGE, PAGE));
    SAY(kind(back, all));
    SAY(pread(fd, back, PAGE, 9 * PAGE));
    SAY(ftruncate(fd, 4 * PAGE));
    SAY(pwrite(fd, all, PAGE, PAGE));
    SAY(pread(fd, back, PAGE, PAGE));
    SAY(kind(back, all));
    SAY(pread(fd, back, PAGE, 0));
    SAY(kind(back, all));
    SAY(ftruncate(fd, PAGE));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(ftruncate(fd, 0));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(pwrite(fd, all, 100, 0));
    SAY(pread(fd, back, PAGE, 0));
    close(fd);
    SAY(opens(argv[1], O_RDWR | O_TRUNC));
    SAY(unlink(argv[1]));
    return 0;
}
