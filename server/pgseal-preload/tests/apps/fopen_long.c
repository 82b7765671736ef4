/* fopen, fread, fgetc, fseeko: a file longer than any buffer must read as it was written, whole,
   in parts and byte by byte. */
#include "app.h"
int main(int argc, char **argv)
{
    static char back[300000];
    FILE *f = fopen(argv[1], "w");
    SAY(fwrite(text(300000), 1, 300000, f));
    SAY(fclose(f));
    f = fopen(argv[1], "r");
    SAY(fread(back, 1, 300000, f));
    SAY(sum(back, 300000));
    SAY(fgetc(f));
    rewind(f);
    for (int i = 0; i < 300000; i++)
        back[i] = fgetc(f);
    SAY(sum(back, 300000));
    SAY(fseeko(f, 123457, SEEK_SET));
    SAY(fread(back, 7, 5000, f));
    SAY(sum(back, 35000));
    SAY(ftello(f));
    SAY(fclose(f));
    return 0;
}
