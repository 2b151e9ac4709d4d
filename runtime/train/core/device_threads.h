/* A thread for each device of a trainer. It enqueues that device's commands and may block there. */
#ifndef CLT_TRAIN_CORE_DEVICE_THREADS_H
#define CLT_TRAIN_CORE_DEVICE_THREADS_H

#include <cltrain/status.h>

typedef struct clt_device_threads clt_device_threads;

typedef clt_status (*clt_device_threads_fn)(void *arg, int device);

/* For `size` devices. A single device has no thread: its work runs on the caller's. */
clt_status clt_device_threads_create(int size, clt_device_threads **threads);

void clt_device_threads_destroy(clt_device_threads *threads);

/* Runs fn(arg, i) on the thread of every device i and waits for all. Returns the failure of the
 * first device that has one, with its message. Allocates nothing. */
clt_status clt_device_threads_run(clt_device_threads *threads, clt_device_threads_fn fn, void *arg);

/* Has clt_device_threads_run call `idle` again and again while it waits. */
void clt_device_threads_while_waiting(clt_device_threads *threads, void (*idle)(void *arg),
                                      void *arg);

#endif
