/* strlcpy and strlcat of glibc 2.38. A fetched server comes with its own, newer C library and was
   configured for it, but this machine's headers may lack these functions. Everything that is built
   for such a server includes this header. */
#include <stddef.h>

extern size_t strlcpy(char *to, const char *from, size_t size);
extern size_t strlcat(char *to, const char *from, size_t size);
