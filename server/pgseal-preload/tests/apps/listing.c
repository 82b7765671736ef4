/* opendir, fdopendir, readdir: must not list pgseal/ to a program of PostgreSQL. chdir, fchdir:
   relative paths must lead to the same files afterwards. */
#include "app.h"
static int by_name(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }
static void list(DIR *dir)
{
    char *names[100];
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        names[count++] = strdup(entry->d_name);
    SAY(closedir(dir));
    qsort(names, count, sizeof *names, by_name);
    for (int i = 0; i < count; i++)
        puts(names[i]);
}
int main(int argc, char **argv)
{
    list(opendir("."));
    list(fdopendir(open(".", O_RDONLY | O_DIRECTORY)));
    int top = open(".", O_RDONLY | O_DIRECTORY);
    SAY(mkdir("base/7", 0700));
    SAY(chdir("base/7"));
    int fd = open("77", O_RDWR | O_CREAT, 0600);
    SAY(write(fd, text(100), 100));
    SAY(fchdir(top));
    show("base/7/77");
    show("./base//7/../7/77");
    SAY_PTR(opendir("no-such"));
    return 0;
}
