#include "devices/allot_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices/make_runtime.h"
#include "text/message.h"

static found look(const settings *s)
{
    found f = {.cpu = -1};
    hold_usage(0);
    clt_runtime *runtime = NULL;
    clt_device **devices = NULL;
    clt_status status = make_runtime(s->cache_dir, &runtime);
    NEXT(status, clt_devices_open(runtime, s->devices, NULL, &devices, &f.devices));
    f.code = name_failure(status);
    int cpus = 0;
    for (int i = 0; !f.code && i < f.devices; i++) {
        clt_device_info info;
        clt_device_info_init(&info);
        clt_device_get_info(devices[i], &info);
        if (info.kind != 0)
            continue;
        f.cpu = cpus++ ? -1 : i;
        f.cores = info.compute_units;
    }
    clt_devices_close(devices, f.code ? 0 : f.devices);
    clt_runtime_destroy(runtime);
    return f;
}

int look_apart(const settings *s, found *f)
{
    int ends[2];
    if (pipe(ends) != 0)
        return failure("cannot look for devices: a pipe cannot be made");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const found seen = look(s);
        const ssize_t written = write(ends[1], &seen, sizeof seen);
        _exit(written == (ssize_t)sizeof seen ? 0 : 1);
    }
    close(ends[1]);
    const ssize_t got = child < 0 ? -1 : read(ends[0], f, sizeof *f);
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return got == (ssize_t)sizeof *f ? 0 : failure("cannot look for devices: a process failed");
}

void share_out_threads(void)
{
    /* The first name is for PoCL up to version 3, the second for later versions. */
    static const char *const names[] = {"POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT"};
    cpu_set_t own;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof own, &own) != 0)
        return; /* the machine has more cores than cpu_set_t has room for */
    const int cores = CPU_COUNT(&own);
    if (cores >= sysconf(_SC_NPROCESSORS_ONLN))
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *asked = getenv(names[i]);
        char number[16];
        if (asked && atoi(asked) > 0 && atoi(asked) <= cores)
            continue;
        snprintf(number, sizeof number, "%d", cores);
        setenv(names[i], number, 1);
    }
}

/* Restricts this process to part `k` of `parts` equal parts of its cores. */
static int keep_to_cores(int k, int parts)
{
    cpu_set_t all, own;
    CPU_ZERO(&all);
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return failure("cannot learn which cores this process has");
    const int cores = CPU_COUNT(&all), begin = cores * k / parts, end = cores * (k + 1) / parts;
    for (size_t core = 0, at = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && at++ >= (size_t)begin && at <= (size_t)end)
            CPU_SET(core, &own);
    if (sched_setaffinity(0, sizeof own, &own) != 0)
        return failure("cannot keep to %d of %d cores", end - begin, cores);
    share_out_threads();
    return 0;
}

/* Returns whether the launcher has already bound the node's ranks to different cores. */
static int bound_apart(const cpu_set_t *own, int ranks)
{
    int apart = 0;
    for (int r = 1; r < ranks; r++)
        apart |= !CPU_EQUAL(&own[r], &own[0]);
    return apart;
}

/* Only rank 0 prints usage errors, and this may happen on any node. So the message is a failure. */
static int too_few(const found *f, int ranks)
{
    return failure("%d ranks on this node share %d device%s%s: start fewer ranks, name more "
                   "devices, or let every rank use all of them with --oversubscribe",
                   ranks, f->devices, f->devices == 1 ? "" : "s",
                   f->cpu >= 0 && f->cores > 1 ? " and too few cores" : "");
}

/* Splits the CPU device so that each rank has a device. `apart`: ranks have different cores
 * already. */
static int split_cpu(const found *f, int k, int n, int apart, int *first)
{
    const int parts = n - (f->devices - 1);
    if (f->cpu < 0 || (!apart && parts > f->cores))
        return k == 0 ? too_few(f, n) : EXIT_FAILED;
    const int part = k - f->cpu;
    *first = part < 0 ? k : part < parts ? f->cpu : k - parts + 1;
    return part >= 0 && part < parts && !apart ? keep_to_cores(part, parts) : 0;
}

int share_out_devices(const found *f, int k, int n, const cpu_set_t *own, int *first, int *count)
{
    if (f->devices < n) {
        *count = 1;
        return split_cpu(f, k, n, bound_apart(own, n), first);
    }
    *first = f->devices * k / n;
    *count = f->devices * (k + 1) / n - *first;
    return 0;
}
