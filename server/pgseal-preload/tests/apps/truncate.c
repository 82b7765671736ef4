/* truncate and ftruncate that shrink and extend a file in turn: bytes that were cut off must
   never come back. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(40 * PAGE);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(ftruncate(fd, 0));
    SAY(write(fd, all, 40 * PAGE));
    long steps[] = {30 * PAGE, 25 * PAGE + 9, 33 * PAGE, 33 * PAGE + 77, 100, 16, 0, 3 * PAGE, 7};
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
        SAY(i % 2 ? truncate(argv[1], steps[i]) : ftruncate(fd, steps[i]));
        show(argv[1]);
    }
    SAY(ftruncate(fd, -1));
    SAY(truncate(argv[1], -1));
    SAY(close(fd));
    fd = open(argv[1], O_RDONLY);
    SAY(ftruncate(fd, 1));
    SAY(truncate("no-such-file", 1));
    show(argv[1]);
    return 0;
}
