/* late FILE SOURCE: opens FILE, which is empty; cat, which sees sealed bytes, copies SOURCE into
   FILE; then reads FILE: must fail with EIO. */
#include "app.h"
#include <sys/syscall.h>
int main(int argc, char **argv)
{
    char page[PAGE], command[1200];
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    snprintf(command, sizeof command, "cat '%s' > '%s'", argv[2], argv[1]);
    SAY(system(command));
    SAY(read(fd, page, PAGE));
    return 0;
}
