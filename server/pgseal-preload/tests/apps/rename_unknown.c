/* rename, renameat, renameat2, and renameat by number, from a name that PostgreSQL does not know,
 * or from NAME.tmp, to NAME: the file must open and read under its new name. */
#include "app.h"
#include <sys/syscall.h>
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
        SAY(at == 0 ? rename(names[at], argv[1]) : renameat(AT_FDCWD, names[at], AT_FDCWD, argv[1]));
        show(argv[1]);
    }
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    for (int at = 0; at < 2; at++) {
        int fd = open(made, O_RDWR | O_CREAT | O_TRUNC, 0600);
        SAY(write(fd, text(PAGE), PAGE));
        SAY(close(fd));
        SAY(at == 0 ? renameat2(dir, made, dir, argv[1], 0) : syscall(SYS_renameat, dir, made, dir, argv[1]));
        show(argv[1]);
    }
    /* A symbolic link and a directory are renamed unchanged. */
    SAY(symlink("nowhere", made));
    SAY(rename(made, tmp));
    char to[20] = "";
    SAY(readlink(tmp, to, sizeof to));
    SAY(unlink(tmp));
    SAY(mkdir("base/1/directory", 0700));
    SAY(rename("base/1/directory", "base/1/16999"));
    SAY(rmdir("base/1/16999"));
    return 0;
}
