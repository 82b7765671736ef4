/* mkstemp, mkostemp, mkstemps, mkostemps: must create a file with a new name, sealed or plain
   like any file at that place. */
#include "app.h"
static void made(const char *what, int fd, const char *path, const char *suffix)
{
    struct stat st;
    printf("%s: %s, ends well: %d, ", what, fd < 0 ? strerrorname_np(errno) : "made", (int)(strlen(path) >= strlen(suffix) && !strcmp(path + strlen(path) - strlen(suffix), suffix)));
    if (fd >= 0) {
        printf("wrote %ld, mode %o, ", (long)write(fd, text(PAGE), PAGE), fstat(fd, &st) ? 0 : st.st_mode);
        printf("named: %d, size %ld, flags %x\n", !strstr(path, "XXXXXX") && !access(path, F_OK), (long)st.st_size, fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
        close(fd);
        show(path);
    } else
        printf("left as it was: %d\n", strstr(path, "XXXXXX") != NULL);
}
#define MAKE(call, template, suffix)                          \
    do {                                                      \
        snprintf(path, sizeof path, "%s" template, argv[1]);  \
        int fd = call;                                        \
        made(#call, fd, path, suffix);                        \
    } while (0)
int main(int argc, char **argv)
{
    char path[4096];
    MAKE(mkstemp(path), "XXXXXX", "");
    MAKE(mkostemp(path, O_APPEND | O_CLOEXEC), "XXXXXX", "");
    MAKE(mkstemps(path, 3), "XXXXXX.sh", ".sh");
    MAKE(mkostemps(path, 3, O_APPEND), "XXXXXX.sh", ".sh");
    MAKE(mkstemp(path), "XXXXX", "");
    MAKE(mkstemps(path, 4), "XXXXXX.sh", ".sh");
    MAKE(mkstemps(path, 400), "XXXXXX.sh", ".sh");
    MAKE(mkstemp(path), "/no/such/XXXXXX", "");
    MAKE(open(path, O_CREAT | O_RDWR, 0600), "", "");
    return 0;
}
