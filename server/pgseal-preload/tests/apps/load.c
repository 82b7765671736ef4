/* load NAME...: dlopen of each module or library NAME, by its path or along this program's
   RUNPATH; an argument NAME=VALUE changes the environment instead. modules.rs says which must be
   loaded. */
#include "app.h"
#include <dlfcn.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strchr(argv[i], '=')) {
            putenv(argv[i]);
            continue;
        }
        void *module = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        int (*answer)(void) = module ? (int (*)(void))dlsym(module, "answer") : NULL;
        printf("%s: %s %d\n", strrchr(argv[i], '/') ? strrchr(argv[i], '/') : argv[i],
               module ? "loaded" : "refused", answer ? answer() : 0);
        if (!module) {
            fprintf(stderr, "dlerror: %s\n", dlerror());
            printf("asked again: %s\n", dlerror() ? "a text" : "nothing");
        }
    }
    SAY_PTR(dlopen(NULL, RTLD_NOW));
    return 0;
}
