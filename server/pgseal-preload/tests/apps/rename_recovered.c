/* rename of what recovery fetched, as the server does it, and what is there afterwards. */
#include "app.h"
int main(int argc, char **argv)
{
    if (argc > 2)
        SAY(rename(argv[1], argv[2]));
    show(argv[argc - 1]);
    return 0;
}
