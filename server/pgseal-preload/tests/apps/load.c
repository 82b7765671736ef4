/* dlopen of what is named: modules, those that go past the seal, those found along the RUNPATH of this program;
   NAME=VALUE changes the environment. */
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
