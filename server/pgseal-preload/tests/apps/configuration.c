/* Reads and changes configuration files as the server does: read NAME, swap NAME (the file is
   overwritten after it was opened and before it is read), alter CONTENT, unlink NAME, rename
   NAME NAME, exists NAME. config.rs says what must hold. */
#include "app.h"

static void print(int fd)
{
    char text[4000];
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (got < 0) {
        printf("no content: %s\n", strerrorname_np(errno));
        return;
    }
    text[got] = 0;
    printf("[%s]\n", text);
    close(fd);
}

/* Writes postgresql.auto.conf as PostgreSQL's AlterSystemSetConfigFile and durable_rename do. With
   EXCHANGE in the environment, overwrites the temporary file before the rename. */
static int alter(const char *content)
{
    int fd = open("postgresql.auto.conf.tmp", O_CREAT | O_RDWR | O_TRUNC, 0600);
    if (fd < 0 || write(fd, content, strlen(content)) < 0 || fsync(fd) || close(fd))
        return -1;
    fd = open("postgresql.auto.conf.tmp", O_RDWR);
    if (fd < 0 || fsync(fd) || close(fd))
        return -1;
    if (getenv("EXCHANGE")) {
        fd = open("/proc/self/cwd/../planted", O_RDONLY);
        char text[100];
        ssize_t got = read(fd, text, sizeof text);
        close(fd);
        fd = open("postgresql.auto.conf.tmp", O_WRONLY | O_TRUNC);
        if (write(fd, text, got) != got)
            return -1;
        close(fd);
    }
    return rename("postgresql.auto.conf.tmp", "postgresql.auto.conf");
}

int main(int argc, char **argv)
{
    struct stat st;
    /* Every server reads this file first. */
    int first = open("postgresql.conf", O_RDONLY);
    if (first >= 0)
        close(first);
    if (!strcmp(argv[1], "read")) {
        print(open(argv[2], O_RDONLY));
        FILE *stream = fopen(argv[2], "r");
        printf("fopen %s\n", stream ? "works" : "fails");
    } else if (!strcmp(argv[1], "swap")) {
        int fd = open(argv[2], O_RDONLY);
        int other = open(argv[2], O_WRONLY | O_TRUNC);
        if (write(other, "swapped", 7) != 7)
            return 1;
        print(fd);
    } else if (!strcmp(argv[1], "alter")) {
        SAY(alter(argv[2]));
    } else if (!strcmp(argv[1], "unlink")) {
        SAY(unlink(argv[2]));
    } else if (!strcmp(argv[1], "rename")) {
        SAY(rename(argv[2], argv[3]));
    } else if (!strcmp(argv[1], "exists")) {
        SAY(stat(argv[2], &st));
    }
    return 0;
}
