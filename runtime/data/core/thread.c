#include "data/core/thread.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

clt_status clt_data_thread_start(pthread_t *thread, void *(*entry)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, entry, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return clt_fail(CLT_OUT_OF_MEMORY, "a data thread cannot be started: %s", strerror(error));
    return CLT_OK;
}

int clt_data_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
