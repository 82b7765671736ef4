/* The making of rings of requests, as liburing does it; a program without liburing finds the functions of the library. */
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
