/* fallocate with a mode that punches, zeroes or collapses a range, or that keeps the size: must
   fail with EOPNOTSUPP on sealed files. */
#include "app.h"
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(pwrite(fd, text(4 * PAGE), 4 * PAGE, 0));
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
    SAY(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, PAGE));
    SAY(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, PAGE));
    SAY(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 9 * PAGE));
    show(argv[1]);
    return 0;
}
