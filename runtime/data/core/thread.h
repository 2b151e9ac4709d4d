/* Threads of the data loaders and readers. */
#ifndef CLT_DATA_CORE_THREAD_H
#define CLT_DATA_CORE_THREAD_H

#include <pthread.h>

#include <cltrain/status.h>

/* Starts a joinable thread with all signals blocked, so that the host program's threads get
 * them. */
clt_status clt_data_thread_start(pthread_t *thread, void *(*entry)(void *), void *argument);

/* Returns the number of processors that this process may use, at least 1. */
int clt_data_processors(void);

#endif
