/* A host thread for a device with a queue of calls. This thread enqueues the device's commands. */
#ifndef CLT_DEVICE_CORE_WORKER_H
#define CLT_DEVICE_CORE_WORKER_H

#include <stdbool.h>

#include <cltrain/status.h>

typedef struct clt_worker clt_worker;

typedef clt_status (*clt_worker_fn)(void *argument);

/* The most calls that may be posted and not yet started. */
enum { CLT_WORKER_ROOM = 16 };

/* Starts a thread called `name` (at most 15 characters are shown). */
clt_status clt_worker_create(const char *name, clt_worker **out);

/* Runs all posted calls and ends the thread. NULL is allowed. Not to be called from the worker's
 * own thread. */
void clt_worker_destroy(clt_worker *worker);

/* Posts a call and returns. Calls run in the order of posting. Blocks while CLT_WORKER_ROOM calls
 * wait to be started. Allocates nothing. `argument` must live until the call has run. Any thread
 * may post, but the worker's own thread only while there is room. */
void clt_worker_post(clt_worker *worker, clt_worker_fn fn, void *argument);

/* Whether all posted calls have run. Any thread may call it. */
bool clt_worker_rests(clt_worker *worker);

/* Blocks until all posted calls have run. Returns the first failure since the last wait and makes
 * its message the calling thread's. Calls after a failed one run nevertheless. Not to be called
 * from the worker's own thread. */
clt_status clt_worker_wait(clt_worker *worker);

/* Posts a call and waits for it. */
clt_status clt_worker_run(clt_worker *worker, clt_worker_fn fn, void *argument);

/* Whether the calling thread is the worker's own. */
bool clt_worker_is_current(const clt_worker *worker);

#endif
