/* Says of a file system of FUSE that it is ext4, so that the library maps tag blocks there, too. */

#define _GNU_SOURCE
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FUSE 0x65735546
#define EXT4 0xef53

int fstatfs(int fd, struct statfs *answer)
{
	int result = (int) syscall(SYS_fstatfs, fd, answer);

	if (result == 0 && answer->f_type == FUSE)
		answer->f_type = EXT4;
	return result;
}

int fstatfs64(int fd, struct statfs64 *answer)
{
	return fstatfs(fd, (struct statfs *) answer);
}
