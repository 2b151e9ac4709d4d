/* Threads of the data part. */
#ifndef CLT_DATA_CORE_THREAD_H
#define CLT_DATA_CORE_THREAD_H

#include <pthread.h>

#include <cltrain/status.h>

/* Starts a joinable thread that leaves all signals to the host program's threads. */
clt_status clt_data_thread_start(pthread_t *thread, void *(*entry)(void *), void *argument);

/* Processors that this process may use, at least 1. */
int clt_data_processors(void);

#endif
