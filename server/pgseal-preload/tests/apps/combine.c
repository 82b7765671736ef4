/* combine -o TARGET BACKUP...: creates directories and a relation file in TARGET, as
   pg_combinebackup does first. headers.rs says whether the file must be sealed. */
#include "app.h"
int main(int argc, char **argv)
{
    const char *parts[] = {"", "/base", "/base/1"};
    char path[4096];
    int fd;
    for (int part = 0; part < 3; part++)
    {
        snprintf(path, sizeof path, "%s%s", argv[2], parts[part]);
        if (mkdir(path, 0700) != 0)
            return 1;
    }
    strcat(path, "/16384");
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || write(fd, text(PAGE), PAGE) != PAGE)
        return 2;
    show(path);
    return 0;
}
