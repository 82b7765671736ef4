/* truncate by path of an empty file: the file must grow by zeros and be writable. */
#include "app.h"
int main(int argc, char **argv)
{
    SAY(opens(argv[1], O_RDWR | O_CREAT));
    SAY(truncate(argv[1], 0));
    SAY(truncate(argv[1], 5000));
    show(argv[1]);
    int fd = open(argv[1], O_RDWR);
    SAY(pwrite(fd, MARKER, 10, 4990));
    show(argv[1]);
    return 0;
}
