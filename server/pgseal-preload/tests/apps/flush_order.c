/* sync_file_range and posix_fadvise(POSIX_FADV_DONTNEED) on pages of a new file, as in a
   checkpoint: the header must be flushed before the pages (damage.rs). */
#include "app.h"

int main(int argc, char **argv)
{
    char *all = text(64 * PAGE);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(pwrite(fd, all, 64 * PAGE, 0));
    for (int at = 8; at < 32; at += 8)
        SAY(sync_file_range(fd, at * PAGE, 8 * PAGE, SYNC_FILE_RANGE_WRITE));
    SAY(posix_fadvise(fd, 40 * PAGE, PAGE, POSIX_FADV_DONTNEED));
    close(fd);
    fd = open(argv[1], O_RDWR);
    SAY(posix_fadvise(fd, 40 * PAGE, PAGE, POSIX_FADV_WILLNEED));
    SAY(posix_fadvise(fd, 40 * PAGE, PAGE, POSIX_FADV_DONTNEED));
    SAY(sync_file_range(fd, 8 * PAGE, 8 * PAGE, SYNC_FILE_RANGE_WRITE));
    return 0;
}
