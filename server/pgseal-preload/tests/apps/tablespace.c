/* tablespace -D|-o TARGET -T OLD=NEW...: creates TARGET, and a relation file in the moved
   tablespace NEW, as pg_basebackup and pg_combinebackup do. places.rs says whether the file must
   be sealed. */
#include "app.h"
int main(int argc, char **argv)
{
    const char *parts[] = {"", "/PG_15_202209061", "/PG_15_202209061/5"};
    const char *new = strchr(argv[4], '=') + 1;
    char path[4096];
    int fd;
    if (mkdir(argv[2], 0700) != 0)
        return 1;
    for (int part = 0; part < 3; part++)
    {
        snprintf(path, sizeof path, "%s%s", new, parts[part]);
        if (mkdir(path, 0700) != 0)
            return 2;
    }
    strcat(path, "/16384");
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || write(fd, text(PAGE), PAGE) != PAGE)
        return 3;
    show(path);
    return 0;
}
