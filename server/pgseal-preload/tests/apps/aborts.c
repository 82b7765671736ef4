/* Aborts with an unflushed stream buffer while a child process writes pages; nothing is closed.
   No plaintext may be on the disk afterwards. */
#include "app.h"
int main(int argc, char **argv)
{
    FILE *f = fopen(argv[1], "w");
    fwrite(text(70000), 1, 70000, f);
    int fd = open(argv[2], O_RDWR | O_CREAT, 0600);
    if (!fork())
        for (char *all = text(64 * PAGE);;)
            if (pwrite(fd, all, 64 * PAGE, 0) < 0)
                abort();
    /* Waits until the child has written. */
    struct stat st;
    do
        usleep(30000);
    while (fstat(fd, &st) == 0 && st.st_size == 0);
    kill(0, 6);
    abort();
}
