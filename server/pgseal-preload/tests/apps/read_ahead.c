/* pread of successive pages, one or more at a time, while another process overwrites, truncates
   and extends the file: must return the current content. With a second argument, a command that
   changes a sealed byte on disk, only that byte's page may differ. Prints on stderr whether the
   library has mapped the file, whose content could change after it was authenticated. */
#include "app.h"
#define PAGES 600
static char *all, page[16 * PAGE];
static int is_mapped(const char *path)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, "r--s") && strstr(line, path);
    fclose(maps);
    return found;
}
static void read_pages(int fd, int from, int to, int step)
{
    unsigned hash = 0;
    long bytes = 0;
    for (int at = from; at < to; at += step) {
        long got = pread(fd, page, step * PAGE, (long)at * PAGE);
        bytes += got;
        hash = hash * 31 + sum(page, got);
    }
    printf("pages %d to %d by %d: %ld bytes, sum %x\n", from, to, step, bytes, hash);
}
/* Another process overwrites a page (0: none) and sets the length (0: leaves it). */
static void elsewhere(const char *path, int overwrite, long len)
{
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        int fd = open(path, O_RDWR);
        if (overwrite && pwrite(fd, all + 3 * PAGE, PAGE, (long)overwrite * PAGE) != PAGE)
            _exit(1);
        _exit(len && ftruncate(fd, len));
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("elsewhere: %d\n", status);
}
int main(int argc, char **argv)
{
    all = text((PAGES + 1) * PAGE);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(write(fd, all, PAGES * PAGE) == PAGES * PAGE);
    read_pages(fd, 0, PAGES, 1);
    read_pages(fd, 0, PAGES, 16);
    read_pages(fd, 0, 100, 1);
    fprintf(stderr, "mapped: %d\n", is_mapped(argv[1]));
    if (argc > 2) {
        SAY(system(argv[2]));
        for (int at = 100; at < 120; at++) {
            SAY(pread(fd, page, PAGE, at * PAGE));
            printf("page %d is as written: %d\n", at, !memcmp(page, all + at * PAGE, PAGE));
        }
        return 0;
    }
    elsewhere(argv[1], 110, 0);
    read_pages(fd, 100, 120, 1);
    elsewhere(argv[1], 0, 130L * PAGE);
    read_pages(fd, 120, 140, 1);
    elsewhere(argv[1], 0, 300L * PAGE);
    read_pages(fd, 120, 310, 1);
    SAY(pwrite(fd, all, 200 * PAGE, 100 * PAGE));
    read_pages(fd, 90, 310, 1);
    SAY(ftruncate(fd, 250 * PAGE + 100));
    read_pages(fd, 200, 260, 1);
    show(argv[1]);
    return 0;
}
