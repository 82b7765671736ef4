/* pwrite of one page ten times, then prints the number of maps of the file: 1 if its tag block
   is mapped. files.rs says when it must be. */
#include "app.h"
int main(int argc, char **argv)
{
    static char line[8192];
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600), maps = 0;
    for (int i = 0; i < 10; i++)
        if (pwrite(fd, text(PAGE), PAGE, 0) != PAGE)
            return 1;
    FILE *list = fopen("/proc/self/maps", "r");
    while (list && fgets(line, sizeof line, list))
        maps += strstr(line, argv[1]) != NULL;
    printf("maps: %d\n", maps);
    return 0;
}
