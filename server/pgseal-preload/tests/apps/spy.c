/* A library that is preloaded after libpgseal.so: prints each range that is passed to
   sync_file_range, and calls the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/types.h>

int sync_file_range(int fd, off_t off, off_t len, unsigned flags)
{
    fprintf(stderr, "range %ld %ld %u\n", (long)off, (long)len, flags);
    /* Not syscall(): libpgseal.so hooks it, and would call this function again. */
    int (*next)(int, off_t, off_t, unsigned) = dlsym(RTLD_NEXT, "sync_file_range");
    return next(fd, off, len, flags);
}
