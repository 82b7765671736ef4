/* posix_fadvise, sync_file_range, readahead on sealed files: must succeed and must not change
   the content. */
#include "app.h"
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(posix_fadvise(fd, 0, PAGE, POSIX_FADV_WILLNEED));
    SAY(sync_file_range(fd, 0, PAGE, SYNC_FILE_RANGE_WRITE));
    SAY(pwrite(fd, text(300 * PAGE), 300 * PAGE, 0));
    SAY(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    SAY(posix_fadvise(fd, 256 * PAGE, 2 * PAGE, POSIX_FADV_WILLNEED));
    SAY(sync_file_range(fd, 7 * PAGE, 200 * PAGE, SYNC_FILE_RANGE_WRITE));
    SAY(readahead(fd, PAGE, 9 * PAGE));
    show(argv[1]);
    return 0;
}
