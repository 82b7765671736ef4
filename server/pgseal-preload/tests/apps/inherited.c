/* exec: descriptors of a sealed file and of an empty file must work in the new program as
   before. */
#include "app.h"
int main(int argc, char **argv)
{
    char *all = text(2 * PAGE), back[100], number[20], path[200];
    if (argc > 2) {
        int fd = atoi(argv[2]), empty = atoi(argv[3]);
        SAY(pread(fd, back, 100, 40));
        SAY(sum(back, 100));
        SAY(pwrite(fd, all, PAGE, PAGE));
        SAY(pwrite(empty, all, 200, 0));
        SAY(lseek(fd, 0, SEEK_END));
        close(fd);
        show(argv[1]);
        return 0;
    }
    snprintf(path, sizeof path, "%s2", argv[1]);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600), empty = open(path, O_RDWR | O_CREAT, 0600);
    SAY(pwrite(fd, all, PAGE, 0));
    fflush(stdout);
    snprintf(number, sizeof number, "%d", fd);
    snprintf(path, sizeof path, "%d", empty);
    return execl("/proc/self/exe", argv[0], argv[1], number, path, NULL);
}
