/* fwrite to a file that cannot grow (RLIMIT_FSIZE): the call that flushes the buffer, for
   example fclose, must report the error. */
#include "app.h"
#include <signal.h>
#include <sys/resource.h>
int main(int argc, char **argv)
{
    struct rlimit none = {100, 100};
    signal(SIGXFSZ, SIG_IGN);
    FILE *f = fopen(argv[1], "w");
    SAY(fwrite(text(3000), 1, 3000, f));
    fflush(stdout);
    setrlimit(RLIMIT_FSIZE, &none);
    SAY(fclose(f));
    f = fopen(argv[1], "r+");
    SAY(fwrite(text(30000), 1, 30000, f) < 30000);
    SAY(ferror(f) != 0);
    SAY(fclose(f));
    return 0;
}
