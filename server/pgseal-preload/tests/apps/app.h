/* Shared by the test programs. Each program prints the results of its calls; the harness
   (support.rs) compares the output of a run on sealed files, under the library, with that of a
   run on plain files without it. "As on plain files" means: the same output. The first argument
   is the path of the file to use, unless the program says otherwise. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARKER "PLAIN-MARKER-5d1c"
#define PAGE 8192

/* Evaluates a call once and prints it with its result, and the name of the error if it failed. */
#define SAY(call)                                                                                        \
    do {                                                                                                 \
        errno = 0;                                                                                       \
        long said = (long)(call);                                                                        \
        printf("%s = %ld%s%s\n", #call, said, said < 0 ? " " : "", said < 0 ? strerrorname_np(errno) : ""); \
    } while (0)

/* The same for a call that returns a pointer. */
#define SAY_PTR(call)                                                                                    \
    do {                                                                                                 \
        errno = 0;                                                                                       \
        void *said = (void *)(call);                                                                     \
        printf("%s %s%s\n", #call, said ? "works" : "fails ", said ? "" : strerrorname_np(errno));   \
    } while (0)

/* Opens a file and closes it again: 0, or -1 and errno. */
static __attribute__((unused)) int opens(const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    return fd < 0 ? -1 : close(fd);
}

/* The marker repeatedly, each time with its offset, so that a misplaced byte changes the sum. */
static __attribute__((unused)) char *text(size_t len)
{
    char *all = malloc(len + 32);
    for (size_t at = 0; at < len; at += 24)
        snprintf(all + at, 32, MARKER "%07zu", at);
    return all;
}

/* The FNV-1a hash of some bytes, to print them as one number. */
static __attribute__((unused)) long sum(const void *bytes, long len)
{
    unsigned hash = 2166136261u;
    for (long at = 0; at < len; at++)
        hash = (hash ^ ((const unsigned char *)bytes)[at]) * 16777619u;
    return hash;
}

/* Prints the length and sum of a whole file as this program sees it. */
static __attribute__((unused)) void show(const char *path)
{
    static char all[1 << 21];
    int fd = open(path, O_RDONLY);
    long got = fd < 0 ? -1 : pread(fd, all, sizeof all, 0);
    printf("content: %ld bytes, sum %lx\n", got, got < 0 ? errno : sum(all, got));
    if (fd >= 0)
        close(fd);
}
