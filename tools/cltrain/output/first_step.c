#include "output/first_step.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cltrain/unstable.h>

#include "output/progress.h"

enum { MOST_STAGES = 12 };

/* Programs and kernels are compiled within other stages, and do not count there. */
enum { PROGRAMS, KERNELS, COMPILES };

static struct {
    pthread_mutex_t lock;
    double begun, last;
    struct {
        const char *name;
        double seconds;
    } stages[MOST_STAGES];
    int n_stages;
    double since[COMPILES], seconds[COMPILES]; /* since: 0 if nothing is compiled now */
    double inner;                              /* of both, in the current stage */
    double first_measure, last_measure;        /* 0: none */
    int measures;                              /* in the current stage */
} times = {.lock = PTHREAD_MUTEX_INITIALIZER};

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the seconds since the process was started; 0 if the system does not tell. */
static double age(void)
{
    char text[1024] = "";
    unsigned long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "r");
    const size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    const char *at = bytes ? strrchr(text, ')') : NULL; /* names may have spaces */
    if (!at || sscanf(at + 1,
                      " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                      "%*d %llu",
                      &ticks) != 1)
        return 0;
    const double seconds = now(CLOCK_BOOTTIME) - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return seconds > 0 ? seconds : 0;
}

void first_step_begin(void)
{
    times.last = now(CLOCK_MONOTONIC);
    times.begun = times.last - age();
    times.stages[0].name = "start";
    times.stages[0].seconds = times.last - times.begun;
    times.n_stages = 1;
}

void first_step_stage(const char *name)
{
    const double at = now(CLOCK_MONOTONIC);
    pthread_mutex_lock(&times.lock);
    if (times.n_stages < MOST_STAGES) {
        times.stages[times.n_stages].name = name;
        times.stages[times.n_stages++].seconds = at - times.last - times.inner;
    }
    times.last = at;
    times.inner = 0;
    times.since[PROGRAMS] = times.since[KERNELS] = 0;
    times.measures = 0;
    pthread_mutex_unlock(&times.lock);
}

void first_step_compile(void *user, const char *device, int kernels, int done, int total)
{
    const int what = kernels ? KERNELS : PROGRAMS;
    pthread_mutex_lock(&times.lock);
    /* What is compiled for measurements counts as measuring. */
    if (done == 0 && !times.measures) {
        times.since[what] = now(CLOCK_MONOTONIC);
    } else if (done == total && times.since[what] > 0) {
        const double seconds = now(CLOCK_MONOTONIC) - times.since[what];
        times.seconds[what] += seconds;
        times.inner += seconds;
        times.since[what] = 0;
    }
    pthread_mutex_unlock(&times.lock);
    progress_compile(user, device, kernels, done, total);
}

void first_step_measures(void)
{
    pthread_mutex_lock(&times.lock);
    times.since[PROGRAMS] = times.since[KERNELS] = 0;
    times.measures = 1;
    times.last_measure = now(CLOCK_MONOTONIC);
    if (times.first_measure <= 0)
        times.first_measure = times.last_measure;
    pthread_mutex_unlock(&times.lock);
}

void first_step_print(clt_device *const *devices, int n_devices, int processes)
{
    int programs = 0, kernels = 0;
    first_step_stage("step");
    for (int i = 0; i < n_devices; i++) {
        int p, k;
        clt_device_kernel_count(devices[i], &p, &k);
        programs += p;
        kernels += k;
    }
    printf("first step ended after %.2f s:", times.last - times.begun);
    for (int i = 0; i < times.n_stages; i++)
        printf(" %s %.2f,", times.stages[i].name, times.stages[i].seconds);
    if (times.first_measure > 0)
        printf(" of these measuring %.2f,", times.last_measure - times.first_measure);
    printf(" %d programs %.2f, first launches of %d kernels %.2f", programs,
           times.seconds[PROGRAMS], kernels, times.seconds[KERNELS]);
    if (processes)
        printf("; %d compile processes", processes);
    printf("\n");
    fflush(stdout);
}
