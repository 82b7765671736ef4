/* open with O_DIRECT, as wal_sync_method=open_sync and debug_io_direct do: reads and writes must
   work. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all, *source = text(4 * PAGE);
    if (posix_memalign((void **)&all, 4096, 4 * PAGE))
        return 1;
    memcpy(all, source, 4 * PAGE);
    int fd = open(argv[1], O_RDWR | O_CREAT | O_DIRECT | O_DSYNC, 0600);
    SAY(pwrite(fd, all, 4 * PAGE, 0));
    SAY(pwrite(fd, all, PAGE, PAGE));
    memset(all, 0, 4 * PAGE);
    SAY(pread(fd, all, 4 * PAGE, 0));
    SAY(sum(all, 4 * PAGE));
    SAY(close(fd));
    show(argv[1]);
    return 0;
}
