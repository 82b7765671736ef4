/* freopen of a sealed file, and of a stream of a sealed file: must fail with EACCES. */
#include "app.h"
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(write(fd, MARKER, 10));
    SAY_PTR(freopen(argv[1], "r", fopen("/dev/null", "r")));
    SAY_PTR(freopen("/dev/null", "w", fopen(argv[1], "r")));
    SAY_PTR(freopen("/dev/null", "w", fdopen(fd, "r+")));
    show(argv[1]);
    return 0;
}
