/* poke FILE OFFSET: overwrites FILE with standard input, beginning at byte OFFSET. PlainView.pm
 * runs poke under the library with PGSEAL_PROGRAMS=poke: OFFSET and the bytes are plaintext's. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char bytes[65536];
	ssize_t got;
	off_t off;
	int fd;

	if (argc != 3)
		return 2;
	off = atoll(argv[2]);
	fd = open(argv[1], O_RDWR);
	if (fd < 0)
		return 3;
	while ((got = read(0, bytes, sizeof bytes)) > 0)
	{
		if (pwrite(fd, bytes, got, off) != got)
			return 4;
		off += got;
	}
	return got == 0 && close(fd) == 0 ? 0 : 5;
}
