/* rename_recovered FROM TO: renames a file that recovery fetched, as the server does, and shows
   TO. With one argument, shows that file. places.rs says what must be shown. */
#include "app.h"
int main(int argc, char **argv)
{
    if (argc > 2)
        SAY(rename(argv[1], argv[2]));
    show(argv[argc - 1]);
    return 0;
}
