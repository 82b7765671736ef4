/* A file written under a name that nobody knows, renamed to one that PostgreSQL has: the file of that place. */
#include "app.h"
int main(int argc, char **argv)
{
    char made[200], tmp[200];
    snprintf(made, sizeof made, "%s.in-the-making", argv[1]);
    snprintf(tmp, sizeof tmp, "%s.tmp", argv[1]);
    const char *names[] = {made, tmp};
    for (int at = 0; at < 2; at++) {
        int fd = open(names[at], O_RDWR | O_CREAT | O_TRUNC, 0600);
        SAY(write(fd, text(2 * PAGE), 2 * PAGE));
        SAY(fsync(fd));
        SAY(close(fd));
        SAY(rename(names[at], argv[1]));
        show(argv[1]);
    }
    return 0;
}
