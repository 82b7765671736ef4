/* fdopen: reads, writes and appends through a stream on a descriptor must work as on plain
   files, and a mode that the descriptor does not allow must fail. */
#include "app.h"
int main(int argc, char **argv)
{
    char line[100] = "";
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    FILE *f = fdopen(fd, "w");
    SAY(fileno(f) - fd);
    SAY(fwrite(text(3 * PAGE), 1, 3 * PAGE, f));
    SAY(fseek(f, 10, SEEK_SET));
    SAY(fputs("over", f) >= 0);
    SAY(fclose(f));
    SAY(close(fd));
    fd = open(argv[1], O_WRONLY);
    SAY_PTR(fdopen(fd, "r"));
    SAY_PTR(fdopen(fd, "r+"));
    SAY_PTR(fdopen(fd, "nonsense"));
    f = fdopen(fd, "a");
    SAY(fcntl(fd, F_GETFL) & O_APPEND);
    SAY(fputs(MARKER " at the end\n", f) >= 0);
    SAY(ftell(f));
    SAY(fclose(f));
    fd = open(argv[1], O_RDONLY);
    SAY_PTR(fdopen(fd, "w"));
    SAY(lseek(fd, 3 * PAGE, SEEK_SET));
    f = fdopen(fd, "r");
    SAY(sum(fgets(line, 100, f), strlen(line)));
    SAY(feof(f));
    rewind(f);
    SAY(sum(line, fread(line, 1, 100, f)));
    SAY(fclose(f));
    SAY_PTR(fdopen(1000, "r"));
    show(argv[1]);
    return 0;
}
