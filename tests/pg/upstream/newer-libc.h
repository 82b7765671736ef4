/* What the headers of this machine's C library lack, and the C library has that a fetched server was unpacked with and
   configured for: glibc 2.38's strlcpy and strlcat. Included by whatever is built for such a server. */
#include <stddef.h>

extern size_t strlcpy(char *to, const char *from, size_t size);
extern size_t strlcat(char *to, const char *from, size_t size);
