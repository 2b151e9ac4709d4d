/* One thread for each device of a trainer. The thread enqueues the commands of its device and may
 * block there. */
#ifndef CLT_TRAIN_CORE_DEVICE_THREADS_H
#define CLT_TRAIN_CORE_DEVICE_THREADS_H

#include <cltrain/status.h>

typedef struct clt_device_threads clt_device_threads;

typedef clt_status (*clt_device_threads_fn)(void *arg, int device);

/* Starts threads for `size` devices. A single device has no thread: its work runs on the caller's
 * thread. */
clt_status clt_device_threads_create(int size, clt_device_threads **threads);

void clt_device_threads_destroy(clt_device_threads *threads);

/* Runs fn(arg, i) on the thread of every device i and waits for all. Returns the failure of the
 * first failed device, with its message; ABORTED only if no device has another failure. Allocates
 * nothing. */
clt_status clt_device_threads_run(clt_device_threads *threads, clt_device_threads_fn fn, void *arg);

/* Makes clt_device_threads_run call `idle` repeatedly while it waits for the devices. */
void clt_device_threads_while_waiting(clt_device_threads *threads, void (*idle)(void *arg),
                                      void *arg);

#endif
