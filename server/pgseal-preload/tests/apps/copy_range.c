/* copy_file_range of a whole file, as pg_upgrade does, of pages, as pg_combinebackup does, and
   with invalid arguments: results, offsets and positions must be those of plain files. */
#include "app.h"
int main(int argc, char **argv)
{
    int from = open(argv[1], O_RDWR | O_CREAT, 0600), to = open(argv[2], O_RDWR | O_CREAT | O_EXCL, 0600);
    long all = 0, part = 0, len = 200 * PAGE + 100;
    loff_t in = 3 * PAGE, out = 5 * PAGE, bad = -1;
    SAY(pwrite(from, text(len), len, 0));
    do
        all += part = copy_file_range(from, NULL, to, NULL, SSIZE_MAX, 0);
    while (part > 0);
    SAY(part);
    SAY(all);
    SAY(lseek(from, 0, SEEK_CUR));
    SAY(lseek(to, 0, SEEK_CUR));
    show(argv[2]);
    SAY(copy_file_range(from, &in, to, &out, PAGE, 0));
    SAY(in / PAGE);
    SAY(out / PAGE);
    SAY(lseek(to, 0, SEEK_CUR));
    in = len - 10;
    SAY(copy_file_range(from, &in, to, &out, PAGE, 0));
    SAY(copy_file_range(from, &in, to, &out, PAGE, 0));
    SAY(copy_file_range(from, &in, to, &out, PAGE, 1));
    SAY(copy_file_range(from, &bad, to, &out, PAGE, 0) < 0);
    SAY(copy_file_range(from, NULL, -1, NULL, PAGE, 0));
    show(argv[2]);
    return 0;
}
