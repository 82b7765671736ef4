/* A module; with -DPAST_THE_SEAL one that imports aio_write. */
#include "app.h"
#include <aio.h>
__attribute__((constructor)) static void loaded(void) { printf("constructor runs\n"); }
int answer(void)
{
#ifdef PAST_THE_SEAL
    struct aiocb block = {.aio_fildes = -1};
    return aio_write(&block);
#else
    return 42;
#endif
}
