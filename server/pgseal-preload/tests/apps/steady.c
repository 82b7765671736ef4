/* Reads or writes pages many times. Prints the number of heap allocations of the process in the
   second half, which must be 0. */
#include "app.h"
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static long allocations;
void *malloc(size_t len) { return allocations++, __libc_malloc(len); }
void *calloc(size_t n, size_t len) { return allocations++, __libc_calloc(n, len); }
void *realloc(void *old, size_t len) { return allocations++, __libc_realloc(old, len); }
void *aligned_alloc(size_t align, size_t len) { return allocations++, __libc_memalign(align, len); }
int posix_memalign(void **out, size_t align, size_t len)
{
    return allocations++, (*out = __libc_memalign(align, len)) ? 0 : ENOMEM;
}

/* steady FILE WHAT ROUNDS. WHAT: r pread, w pwrite, R read, W write, l lseek to the end, v preadv,
   V pwritev. */
int main(int argc, char **argv)
{
    static char page[4 * PAGE];
    struct iovec iov[2] = {{page, PAGE}, {page + PAGE, PAGE}};
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600), rounds = atoi(argv[3]);
    char what = argv[2][0];
    /* Pages of zeros would be stored as holes. */
    memset(page, 'x', sizeof page);
    for (int at = 0; at < 500; at++)
        if (pwrite(fd, page, PAGE, (long)at * PAGE) != PAGE)
            return 1;
    for (int half = 0; half < 2; half++) {
        long before = allocations;
        for (int i = 0; i < (half ? rounds : 50); i++) {
            /* Alternates between pages of the first and of the second group of tags. */
            long off = (i % 2 ? 350 + i % 100 : i % 100) * (long)PAGE, done = -1;
            if (what == 'R' || what == 'W')
                lseek(fd, off, SEEK_SET);
            switch (what) {
            case 'r': done = pread(fd, page, PAGE, off); break;
            case 'w': done = pwrite(fd, page, PAGE, off); break;
            case 'R': done = read(fd, page, PAGE); break;
            case 'W': done = write(fd, page, PAGE); break;
            case 'l': done = lseek(fd, 0, SEEK_END); break;
            case 'v': done = preadv(fd, iov, 2, off); break;
            case 'V': done = pwritev(fd, iov, 2, off); break;
            }
            if (done < PAGE)
                return 2;
        }
        if (half)
            fprintf(stderr, "allocations: %ld\n", allocations - before);
    }
    return 0;
}
