/* openat, fstatat, statx relative to a directory descriptor: must open the file and return its
   plain size. */
#include "app.h"
#include <libgen.h>
int main(int argc, char **argv)
{
    char *all = text(PAGE);
    struct stat st;
    struct statx stx;
    int dir = open(dirname(strdup(argv[1])), O_RDONLY | O_DIRECTORY);
    const char *name = basename(strdup(argv[1]));
    int fd = openat(dir, name, O_RDWR | O_CREAT, 0600);
    SAY(write(fd, all, 4321));
    SAY(fstatat(dir, name, &st, 0));
    SAY(st.st_size);
    SAY(fstatat(fd, "", &st, AT_EMPTY_PATH));
    SAY(st.st_size);
    SAY(statx(dir, name, 0, STATX_SIZE, &stx));
    SAY(stx.stx_size);
    SAY(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &stx));
    SAY(stx.stx_size);
    SAY(openat(dir, "no/such/file", O_RDONLY));
    SAY(close(fd));
    SAY(close(openat(AT_FDCWD, argv[1], O_RDONLY)) == 0);
    show(argv[1]);
    return 0;
}
