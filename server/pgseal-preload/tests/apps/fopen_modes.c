/* fopen with modes w, r, a, r+, w+, a+ and x; fprintf, fgets, fseek, ftell, and fileno with
   fstat and ftruncate: must work as on plain files. */
#include "app.h"
int main(int argc, char **argv)
{
    char line[100] = "";
    struct stat st;
    FILE *f = fopen(argv[1], "w");
    SAY(fprintf(f, "%s first\n%s second\n", MARKER, MARKER));
    SAY(fflush(f));
    SAY(fstat(fileno(f), &st) + st.st_size);
    SAY(fclose(f));
    f = fopen(argv[1], "a");
    SAY(ftell(f));
    SAY(fputs(MARKER " third\n", f) >= 0);
    SAY(ftell(f));
    SAY(fclose(f));
    f = fopen(argv[1], "r+");
    SAY(sum(fgets(line, 100, f), strlen(line)));
    SAY(fseek(f, 3, SEEK_SET));
    SAY(fputs("xyz", f) >= 0);
    SAY(fseek(f, -6, SEEK_END));
    SAY(fread(line, 1, 100, f));
    SAY(feof(f));
    SAY(ftell(f));
    rewind(f);
    SAY(ftruncate(fileno(f), 40));
    SAY(fread(line, 1, 100, f));
    SAY(sum(line, 40));
    SAY(fclose(f));
    f = fopen(argv[1], "a+");
    SAY(fread(line, 1, 10, f));
    SAY(fputs("end", f) >= 0);
    SAY(fclose(f));
    show(argv[1]);
    SAY_PTR(fopen(argv[1], "wbx"));
    f = fopen(argv[1], "w+e");
    SAY(fcntl(fileno(f), F_GETFD));
    SAY(fwrite(text(100), 1, 100, f));
    SAY(fseek(f, 0, SEEK_SET));
    SAY(fread(line, 1, 100, f));
    SAY(fclose(f));
    SAY_PTR(fopen("no/such/file", "r"));
    show(argv[1]);
    return 0;
}
