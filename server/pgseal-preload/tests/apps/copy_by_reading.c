/* Reads one file and writes the bytes to another, as archive_command's cp does. places.rs says
   what the copy must contain. */
#include "app.h"
int main(int argc, char **argv)
{
    static char all[1 << 20];
    int from = open(argv[1], O_RDONLY), to = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    long got = read(from, all, sizeof all);
    return got < 0 || write(to, all, got) != got;
}
