/* dlopen: a harmless module, one that goes past the seal, one found along the RUNPATH of this program, none. */
#include "app.h"
#include <dlfcn.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *module = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        int (*answer)(void) = module ? (int (*)(void))dlsym(module, "answer") : NULL;
        printf("%s: %s %d\n", strrchr(argv[i], '/') ? strrchr(argv[i], '/') : argv[i],
               module ? "loaded" : "refused", answer ? answer() : 0);
        if (!module)
            fprintf(stderr, "dlerror: %s\n", dlerror());
    }
    SAY_PTR(dlopen(NULL, RTLD_NOW));
    return 0;
}
