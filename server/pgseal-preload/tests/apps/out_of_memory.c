/* Walks through the hooked calls again and again, each time in a new child in which another
   memory allocation fails. Every call must succeed or fail with ENOMEM, and at the end the file
   must have what the successful calls wrote. */
#include "app.h"
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

/* Shared with the parent: allocations of the child, and calls that failed with ENOMEM. */
static struct { long taken, refused; } *told;
/* The number of the allocation that fails (0: none), and whether all later ones fail as well. */
static long fails_at, fails_on;
static int keys_first;

static int no_memory(void)
{
    if (!fails_at)
        return 0;
    long number = ++told->taken;
    return number == fails_at || (fails_on && number > fails_at);
}
#define OR_NONE(call) (no_memory() ? (errno = ENOMEM, NULL) : (call))
void *malloc(size_t len) { return OR_NONE(__libc_malloc(len)); }
void *calloc(size_t n, size_t len) { return OR_NONE(__libc_calloc(n, len)); }
void *realloc(void *old, size_t len) { return OR_NONE(__libc_realloc(old, len)); }
void *aligned_alloc(size_t align, size_t len) { return OR_NONE(__libc_memalign(align, len)); }
void *memalign(size_t align, size_t len) { return OR_NONE(__libc_memalign(align, len)); }
int posix_memalign(void **out, size_t align, size_t len)
{
    return (*out = OR_NONE(__libc_memalign(align, len))) ? 0 : ENOMEM;
}

#define PAGES 300
#define MOST (PAGES * PAGE + 3 * PAGE)
static char model[MOST], seen[MOST], bytes[MOST];
static long model_len;

static void wrong(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(2);
}

/* Whether a call succeeded. Ends the child if it failed with an error other than ENOMEM. */
static int works_or(const char *what, int works)
{
    if (!works && errno != ENOMEM)
        wrong(what);
    told->refused += !works;
    return works;
}
#define WORKS(call) works_or(#call, (errno = 0, (long)(call) >= 0))

/* Enters into the model that a call wrote the first `put` bytes of `from` at `off`. */
static void wrote(const char *what, const void *from, long off, long put)
{
    if (!works_or(what, put >= 0) || put == 0)
        return;
    memcpy(model + off, from, put);
    if (off + put > model_len)
        model_len = off + put;
}
#define WRITES(call, from, off) wrote(#call, from, off, (errno = 0, call))

static void resized(int done, long len)
{
    if (!done)
        return;
    if (len > model_len)
        memset(model + model_len, 0, len - model_len);
    model_len = len;
}

/* Compares the bytes that a call read at `off` with the model. */
static void got(const char *what, const char *into, long off, long len, long got)
{
    if (!works_or(what, got >= 0))
        return;
    long left = off < model_len ? model_len - off : 0;
    if (got != (len < left ? len : left) || memcmp(into, model + off, got))
        wrong(what);
}
#define READS(call, into, off, len) got(#call, into, off, len, (errno = 0, call))

static void reads(int fd)
{
    struct iovec iov[2] = {{seen, PAGE}, {seen + PAGE, 100}};
    READS(pread(fd, seen, 40 * PAGE, 0), seen, 0, 40 * PAGE);
    READS(pread(fd, seen, 20 * PAGE, 250 * PAGE), seen, 250 * PAGE, 20 * PAGE);
    for (long i = 0; i < 80; i++)
        READS(pread(fd, seen, PAGE, i * 37 % PAGES * PAGE), seen, i * 37 % PAGES * PAGE, PAGE);
    READS(preadv(fd, iov, 2, 5 * PAGE), seen, 5 * PAGE, PAGE + 100);
    if (WORKS(lseek(fd, 3 * PAGE + 1, SEEK_SET)))
        READS(readv(fd, iov, 2), seen, 3 * PAGE + 1, PAGE + 100);
    if (WORKS(lseek(fd, 9, SEEK_SET)))
        READS(read(fd, seen, 200), seen, 9, 200);
}

static void writes(int fd)
{
    struct iovec iov[3] = {{bytes + 1, PAGE}, {bytes + 1 + PAGE, PAGE}, {bytes + 1 + 2 * PAGE, 50}};
    WRITES(pwrite(fd, bytes, PAGES * PAGE, 0), bytes, 0);
    WRITES(pwrite(fd, bytes + 7, 100, 4 * PAGE + 50), bytes + 7, 4 * PAGE + 50);
    WRITES(pwritev(fd, iov, 3, 20 * PAGE), bytes + 1, 20 * PAGE);
    if (WORKS(lseek(fd, 2 * PAGE, SEEK_SET)))
        WRITES(writev(fd, iov, 3), bytes + 1, 2 * PAGE);
    if (WORKS(lseek(fd, 30 * PAGE, SEEK_SET)))
        WRITES(write(fd, bytes + 5, PAGE), bytes + 5, 30 * PAGE);
}

static void sizes(int fd, const char *path, int dir)
{
    struct stat st;
    struct statx stx;
    resized(WORKS(ftruncate(fd, 270 * PAGE + 700)), 270 * PAGE + 700);
    resized(WORKS(ftruncate(fd, 272 * PAGE)), 272 * PAGE);
    errno = posix_fallocate(fd, 0, 273 * PAGE);
    resized(works_or("posix_fallocate", errno == 0), 273 * PAGE < model_len ? model_len : 273 * PAGE);
    long end = model_len < 274 * PAGE ? 274 * PAGE : model_len;
    resized(WORKS(fallocate(fd, 0, 0, 274 * PAGE)), end);
    resized(WORKS(truncate(path, 271 * PAGE + 5)), 271 * PAGE + 5);
    if (WORKS(fstat(fd, &st)) && st.st_size != model_len)
        wrong("fstat");
    if (WORKS(stat(path, &st)) && st.st_size != model_len)
        wrong("stat");
    if (WORKS(lstat(path, &st)) && st.st_size != model_len)
        wrong("lstat");
    if (WORKS(fstatat(dir, path, &st, 0)) && st.st_size != model_len)
        wrong("fstatat");
    if (WORKS(statx(dir, path, 0, STATX_SIZE, &stx)) && (long)stx.stx_size != model_len)
        wrong("statx");
    WORKS(posix_fadvise(fd, 0, 3 * PAGE, POSIX_FADV_WILLNEED));
    WORKS(sync_file_range(fd, 0, 3 * PAGE, 0));
    WORKS(readahead(fd, 0, 3 * PAGE));
}

static void descriptors(int fd, const char *path, int dir)
{
    int made;
    if (WORKS(made = openat(dir, path, O_RDWR)))
        READS(pread(made, seen, PAGE, 0), seen, 0, PAGE), WORKS(close(made));
    if (WORKS(made = dup(fd)))
        READS(pread(made, seen, PAGE, 0), seen, 0, PAGE), WORKS(close(made));
    if (WORKS(made = fcntl(fd, F_DUPFD, 0)))
        WORKS(close(made));
    if (WORKS(made = dup2(fd, 39)))
        WORKS(close(made));
    WORKS(fcntl(fd, F_SETFL, O_APPEND)), WORKS(fcntl(fd, F_SETFL, 0)), WORKS(fcntl(fd, F_GETFL));
    /* mmap may refuse, or return a private copy. */
    void *map = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map != MAP_FAILED)
        munmap(map, PAGE);
    else if (errno != ENOMEM && errno != EACCES)
        wrong("mmap");
}

/* Copies pages to a second file; the bytes that were copied must be right. */
static void copies(int fd, const char *path)
{
    char copy[200];
    snprintf(copy, sizeof copy, "%s_fsm", path);
    off_t from = 3 * PAGE, to = 0;
    int out;
    if (!WORKS(out = open(copy, O_RDWR | O_CREAT | O_TRUNC, 0600)))
        return;
    long put = copy_file_range(fd, &from, out, &to, 3 * PAGE, 0);
    if (works_or("copy_file_range", put >= 0)) {
        long have = pread(out, seen, 3 * PAGE, 0);
        if (works_or("pread of the copy", have >= 0) && (have != put || memcmp(seen, model + 3 * PAGE, put)))
            wrong("copy");
    }
    WORKS(close(out));
    if (WORKS(rename(path, copy)))
        WORKS(rename(copy, path));
}

/* Streams. The C library itself may get no memory, which errno shows. */
static void streams(const char *name)
{
    FILE *f = fopen(name, "w");
    if (!works_or("fopen w", f != NULL))
        return;
    long put = fwrite(bytes, 1, 3 * PAGE + 5, f);
    int flushed = fclose(f);
    if (!works_or("fwrite", flushed == 0 && put == 3 * PAGE + 5) || !works_or("fopen r", (f = fopen(name, "r")) != NULL))
        return;
    long have = fread(seen, 1, MOST, f);
    if (works_or("fread", !ferror(f)) && (have != put || memcmp(seen, bytes, put)))
        wrong("stream");
    fileno(f);
    fclose(f);
}

static void directories(void)
{
    DIR *dir = opendir(".");
    if (!works_or("opendir", dir != NULL))
        return;
    struct dirent *entry;
    while ((entry = readdir(dir)))
        if (!strcmp(entry->d_name, "pgseal"))
            wrong("pgseal is listed");
    closedir(dir);
    int fd;
    if (WORKS(fd = open(".", O_RDONLY | O_DIRECTORY)) && !works_or("fdopendir", (dir = fdopendir(fd)) != NULL))
        close(fd);
    else if (fd >= 0)
        closedir(dir);
}

/* A timeline history file is written under a temporary name; after the rename it must be plain. */
static void history(void)
{
    const char *text = "1\t0/3000000\tno recovery target specified\n", *to = "pg_wal/00000002.history";
    int fd;
    if (!WORKS(fd = open("pg_wal/xlogtemp.4711", O_RDWR | O_CREAT | O_TRUNC, 0600)))
        return;
    long put = write(fd, text, strlen(text));
    int written = works_or("write of the history", put == (long)strlen(text));
    WORKS(close(fd));
    if (written && WORKS(rename("pg_wal/xlogtemp.4711", to))) {
        int raw;
        if (WORKS(raw = open(to, O_RDONLY)) && (read(raw, seen, 100) != put || memcmp(seen, text, put)))
            wrong("history");
        close(raw);
    }
}

static void remove_all(const char *path)
{
    char copy[200];
    snprintf(copy, sizeof copy, "%s_fsm", path);
    unlink(path), unlink(copy), unlink("pg_stat/stream.stat"), unlink("pg_wal/xlogtemp.4711"), unlink("pg_wal/00000002.history");
}

static void walk(const char *path)
{
    int dir, fd;
    if (!WORKS(dir = open(".", O_RDONLY | O_DIRECTORY)))
        return;
    if (WORKS(fd = open(path, O_RDWR | O_CREAT, 0600))) {
        writes(fd);
        reads(fd);
        sizes(fd, path, dir);
        if (keys_first)
            descriptors(fd, path, dir);
        copies(fd, path);
        WORKS(close(fd));
    }
    if (WORKS(fd = open(path, O_RDWR | O_CREAT | O_APPEND, 0600))) {
        reads(fd);
        WRITES(write(fd, bytes + 9, 300), bytes + 9, model_len);
        WORKS(close(fd));
    }
    streams("pg_stat/stream.stat");
    directories();
    history();
    /* A file outside the data directory. */
    if (WORKS(fd = open("../outside", O_RDWR | O_CREAT | O_EXCL, 0600)))
        close(fd), unlink("../outside");
    close(dir);
}

/* In the child: the walk with allocation `number` failing, then the comparison with the model. */
static void child(const char *path, long number, long all_behind)
{
    remove_all(path);
    fails_at = number, fails_on = all_behind;
    walk(path);
    fails_at = 0;
    int fd = open(path, O_RDONLY);
    if (fd < 0 && errno == ENOENT)
        _exit(0);
    long have = fd < 0 ? -1 : pread(fd, seen, MOST, 0);
    if (have != model_len || memcmp(seen, model, have))
        wrong("the file is not what was written");
    _exit(0);
}

/* out_of_memory FILE KEYS ALL. KEYS "first": the keys are loaded before memory fails, as in a
   backend; "last": each child loads them. ALL "one": one allocation fails; "all": all later ones,
   too. */
int main(int argc, char **argv)
{
    told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (long at = 0; at < MOST; at++)
        bytes[at] = 'a' + (at + at / 251) % 26;
    if ((keys_first = !strcmp(argv[2], "first"))) {
        int fd = open("postmaster.pid", O_RDWR | O_CREAT, 0600);
        if (fd < 0)
            return 3;
        close(fd);
        /* As in a backend, these descriptor numbers were used before. */
        fd = open(argv[1], O_RDWR | O_CREAT, 0600);
        for (int to = fd + 1; to < 48; to++)
            dup2(fd, to);
        for (; fd < 48; fd++)
            close(fd);
    }
    int status;
    for (long number = 1;; number++) {
        memset(told, 0, sizeof *told);
        pid_t pid = fork();
        if (pid == 0)
            child(argv[1], number, !strcmp(argv[3], "all"));
        waitpid(pid, &status, 0);
        if (status != 0) {
            printf("allocation %ld: %s %d\n", number, WIFSIGNALED(status) ? "signal" : "status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            return 1;
        }
        if (!strcmp(argv[3], "all") && number == 1)
            printf("refused without any memory: %ld\n", told->refused);
        if (told->taken < number) {
            printf("allocations: %ld\n", number - 1);
            return 0;
        }
    }
}
