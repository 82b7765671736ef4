/* stat, lstat, fstat, fstatat, statx: must return plain sizes, also through a symbolic link. */
#include "app.h"
int main(int argc, char **argv)
{
    struct stat st;
    struct statx stx;
    char link[500];
    snprintf(link, sizeof link, "%s_link", argv[1]);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    long sizes[] = {0, 1, 16, 4096, 2 * PAGE, 200 * PAGE + 5};
    SAY(symlink(strrchr(argv[1], '/') ? strrchr(argv[1], '/') + 1 : argv[1], link));
    for (int i = 0; i < 6; i++) {
        SAY(pwrite(fd, text(200 * PAGE + 5), sizes[i], 0));
        SAY(stat(argv[1], &st) + st.st_size);
        SAY(lstat(argv[1], &st) + st.st_size);
        SAY(fstat(fd, &st) + st.st_size);
        SAY(stat(link, &st) + st.st_size);
        SAY(lstat(link, &st));
        SAY(S_ISLNK(st.st_mode));
        SAY(fstatat(AT_FDCWD, argv[1], &st, AT_SYMLINK_NOFOLLOW) + st.st_size);
        SAY(statx(AT_FDCWD, argv[1], 0, STATX_SIZE, &stx) + (long)stx.stx_size);
        SAY(statx(AT_FDCWD, link, AT_SYMLINK_NOFOLLOW, STATX_MODE, &stx));
        SAY(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &stx) + (long)stx.stx_size);
    }
    SAY(stat("no-such-file", &st));
    SAY(fstat(999, &st));
    SAY(unlink(link));
    return 0;
}
