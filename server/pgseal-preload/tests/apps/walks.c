/* scandir, ftw, nftw, fts, readdir_r: must return the names and sizes that readdir and stat
   return. */
#include "app.h"
#include <fts.h>
#include <ftw.h>
static int keep(const struct dirent *entry) { return entry->d_name[0] != '.'; }
static char lines[200][200];
static int count;
static int by_line(const void *a, const void *b) { return strcmp(a, b); }
static int seen(const char *path, const struct stat *st, int kind)
{
    snprintf(lines[count++], 200, "%s %d %ld", path, kind, kind == FTW_F ? (long)st->st_size : 0);
    return 0;
}
static int seen_n(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    return seen(path, st, kind + 100 * ftw->level);
}
static void done(const char *what)
{
    printf("%s: %d\n", what, count);
    qsort(lines, count, 200, by_line);
    for (int i = 0; i < count; i++)
        puts(lines[i]);
    count = 0;
}
int main(int argc, char **argv)
{
    struct dirent **list, *entry, room;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    SAY(write(fd, text(PAGE + 5), PAGE + 5));
    for (int at = 0; at < 2; at++) {
        int got = at ? scandirat(AT_FDCWD, ".", &list, keep, alphasort) : scandir(".", &list, keep, alphasort);
        for (int i = 0; i < got; i++)
            puts(list[i]->d_name);
    }
    SAY(scandir("no-such", &list, NULL, NULL));
    SAY(scandir(argv[1], &list, NULL, NULL));
    SAY(ftw(".", seen, 10));
    done("ftw");
    SAY(nftw(".", seen_n, 10, FTW_PHYS));
    done("nftw");
    SAY(nftw(".", seen_n, 10, FTW_PHYS | FTW_CHDIR));
    done("nftw with FTW_CHDIR");
    for (int options = FTS_PHYSICAL; options <= (FTS_PHYSICAL | FTS_NOCHDIR); options += FTS_NOCHDIR) {
        FTS *fts = fts_open((char *[]){".", NULL}, options, NULL);
        for (FTSENT *found; (found = fts_read(fts));)
            snprintf(lines[count++], 200, "%s %d %ld", found->fts_path, found->fts_info, found->fts_info == FTS_F ? (long)found->fts_statp->st_size : 0);
        SAY(fts_close(fts));
        done("fts");
    }
    DIR *dir = opendir(".");
    while (readdir_r(dir, &room, &entry) == 0 && entry)
        strcpy(lines[count++], entry->d_name);
    done("readdir_r");
    SAY(open(argv[1], O_RDONLY) < 0);
    return 0;
}
