/* io_uring_queue_init and its variants, which create a ring: must fail with ENOSYS. The program
   is not linked with liburing, so it finds the functions of libpgseal.so. */
#include "app.h"
#pragma weak io_uring_queue_init
#pragma weak io_uring_queue_init_params
#pragma weak io_uring_queue_init_mem
int io_uring_queue_init(unsigned entries, void *ring, unsigned flags);
int io_uring_queue_init_params(unsigned entries, void *ring, void *parameters);
int io_uring_queue_init_mem(unsigned entries, void *ring, void *parameters, void *buffer, size_t len);
int main(void)
{
    char ring[1024];
    SAY(io_uring_queue_init ? io_uring_queue_init(8, ring, 0) : 0);
    SAY(io_uring_queue_init_params ? io_uring_queue_init_params(8, ring, ring) : 0);
    SAY(io_uring_queue_init_mem ? io_uring_queue_init_mem(8, ring, ring, ring, 0) : 0);
    return 0;
}
