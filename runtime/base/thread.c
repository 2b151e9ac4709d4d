#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

int clt_thread_start(pthread_t *thread, void *(*entry)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, entry, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int clt_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
