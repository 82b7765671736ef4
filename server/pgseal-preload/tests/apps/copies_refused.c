/* splice from and to a sealed file: must fail with EINVAL. */
#include "app.h"
int main(int argc, char **argv)
{
    int pipes[2], fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    loff_t zero = 0;
    SAY(pipe(pipes));
    SAY(pwrite(fd, text(PAGE), PAGE, 0));
    SAY(splice(fd, &zero, pipes[1], NULL, 100, 0));
    SAY(write(pipes[1], MARKER, 10));
    SAY(splice(pipes[0], NULL, fd, NULL, 10, 0));
    show(argv[1]);
    return 0;
}
