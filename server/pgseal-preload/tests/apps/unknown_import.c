/* Imports aio_write, which bypasses the hooks: with the library the program must not start. */
#include "app.h"
#include <aio.h>
int main(int argc, char **argv)
{
    struct aiocb block = {.aio_fildes = open(argv[1], O_RDWR | O_CREAT, 0600), .aio_buf = MARKER, .aio_nbytes = 10};
    SAY(aio_write(&block));
    while (aio_error(&block) == EINPROGRESS)
        usleep(1000);
    SAY(aio_return(&block));
    return 0;
}
