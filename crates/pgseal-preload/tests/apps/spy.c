/* A library that stands behind the one under test and says which ranges are sent to the disk. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int sync_file_range(int fd, off_t off, off_t len, unsigned flags)
{
    fprintf(stderr, "range %ld %ld %u\n", (long)off, (long)len, flags);
    return syscall(SYS_sync_file_range, fd, off, len, flags);
}
