/* rename, link, unlink: the file must stay readable under every name and through an open
   descriptor. */
#include "app.h"
int main(int argc, char **argv)
{
    char other[500], third[500];
    snprintf(other, sizeof other, "%s.1", argv[1]);
    snprintf(third, sizeof third, "%s.2", argv[1]);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(pwrite(fd, text(2 * PAGE), 2 * PAGE, 0));
    SAY(rename(argv[1], other));
    SAY(access(argv[1], F_OK));
    show(other);
    SAY(pwrite(fd, MARKER, 10, 5));
    SAY(link(other, third));
    SAY(unlink(other));
    show(third);
    SAY(rename(third, argv[1]));
    SAY(close(fd));
    show(argv[1]);
    return 0;
}
