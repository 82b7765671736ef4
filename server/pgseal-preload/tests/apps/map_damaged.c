/* mmap of a file that does not authenticate: must fail with EACCES. */
#include "app.h"
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDONLY);
    SAY(mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
    return 0;
}
