/* open, fopen, truncate, stat of existing files: prints the content or the errors. The .rs files
   say which must fail. */
#include "app.h"
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct stat st;
        printf("%s\n", strrchr(argv[i], '/') + 1);
        SAY(opens(argv[i], O_RDONLY));
        SAY(opens(argv[i], O_RDWR));
        SAY(opens(argv[i], O_WRONLY | O_APPEND));
        SAY(opens(argv[i], O_RDWR | O_CREAT));
        SAY_PTR(fopen(argv[i], "r+"));
        SAY(truncate(argv[i], 5));
        SAY(stat(argv[i], &st));
        show(argv[i]);
    }
    return 0;
}
