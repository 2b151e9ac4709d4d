#include "output/progress.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

/* A first line after so many seconds of compiling, then one after as many again. Kernels from a
 * cache take less. */
static const double QUIET = 2;

void progress_compile(void *user, const char *device, int kernels, int done, int total)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static double shown;
    static int began, said;
    struct timespec now;
    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    pthread_mutex_lock(&lock);
    if (!began || (done == 0 && !said))
        shown = seconds;
    began = 1;
    if (seconds - shown >= QUIET && done < total) {
        printf("compiling for %s%s: %d of %d %s left\n", device,
               said ? "" : " (later runs find these kernels compiled)", total - done, total,
               kernels ? "kernels" : "programs");
        fflush(stdout);
        shown = seconds;
        said = 1;
    }
    pthread_mutex_unlock(&lock);
}
