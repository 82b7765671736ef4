/* mmap with PROT_READ, or private: the map must have the plain content, zeros after the end of
   the file, and raise SIGBUS after the last page. */
#include "app.h"
#include <setjmp.h>
#include <signal.h>
static sigjmp_buf back;
static void beyond(int number) { siglongjmp(back, number); }
int main(int argc, char **argv)
{
    long len = 3 * PAGE + 100, size = 5 * PAGE;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(write(fd, text(len), len));
    close(fd);
    fd = open(argv[1], O_RDONLY);
    char *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    SAY(map == MAP_FAILED);
    printf("sum %lx\n", sum(map, len));
    /* Zeros up to the end of the last page, and SIGBUS after it. */
    printf("behind the end %lx\n", sum(map + len, 4096 - 100));
    signal(SIGBUS, beyond);
    int signal_number = sigsetjmp(back, 1);
    if (signal_number == 0)
        printf("%d\n", map[4 * PAGE]);
    printf("signal %d\n", signal_number);
    /* A private, writable map of a part of the file, at a fixed address. */
    char *place = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAY(mmap(place + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, PAGE / 2) == place + PAGE);
    place[PAGE] = '?';
    printf("sum %lx\n", sum(place + PAGE, PAGE));
    close(fd);
    printf("sum %lx\n", sum(map, len));
    show(argv[1]);
    /* Invalid arguments. */
    fd = open(argv[1], O_RDONLY);
    SAY(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 100));
    SAY(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0));
    SAY(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, open(argv[1], O_WRONLY), 0));
    /* A map without access rights, as programs make it for mincore. */
    unsigned char pages[10];
    int maps_pages = strcmp(argv[1], "pg_stat/pgstat.stat") != 0 && strcmp(argv[1], "base/1/pg_filenode.map") != 0;
    map = mmap(NULL, 5 * PAGE, PROT_NONE, MAP_SHARED, fd, 0);
    SAY(mincore(map, 5 * PAGE, pages));
    printf("in memory: %d, behind the end: %d\n", !maps_pages || (pages[0] & 1), pages[9] & 1);
    SAY(munmap(map, 5 * PAGE));
    return 0;
}
