#include "job/compile_processes.h"

#include <sched.h>

#include <cltrain/device.h>

#include "ranks/ranks.h"
#include "text/message.h"

enum { MOST_PROCESSES = 8, MOST_ASKED = 16 };

static int cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int start_compile_processes(const settings *s, int *count)
{
    *count = 0;
    if (s->compile_processes > MOST_ASKED)
        return usage_error("--compile-processes %lld: must be at most %d",
                           (long long)s->compile_processes, MOST_ASKED);
    int wanted = (int)s->compile_processes;
    if (wanted < 0) {
        const int most = cores() < MOST_PROCESSES ? cores() : MOST_PROCESSES;
        wanted = most < 2 || ranks_expected() || s->async >= 0 ? 0 : most;
    }
    if (!wanted)
        return 0;
    const clt_status status = clt_compile_processes(wanted);
    if (status != CLT_OK && s->compile_processes > 0)
        return library_failure(status);
    if (status == CLT_OK)
        *count = wanted;
    return 0;
}
