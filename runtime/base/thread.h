/* Threads of the library. */
#ifndef CLT_BASE_THREAD_H
#define CLT_BASE_THREAD_H

#include <pthread.h>

/* Starts a joinable thread with all signals blocked, so that the host program's threads get them.
 * Returns 0, or the error number of pthread_create. */
int clt_thread_start(pthread_t *thread, void *(*entry)(void *), void *argument);

/* Returns the number of processors that this process may use, at least 1. */
int clt_processors(void);

#endif
