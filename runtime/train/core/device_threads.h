/* A worker for each device of a trainer: it enqueues that device's commands and may block there. */
#ifndef CLT_TRAIN_CORE_DEVICE_THREADS_H
#define CLT_TRAIN_CORE_DEVICE_THREADS_H

#include <cltrain/status.h>

typedef struct clt_crew clt_crew;

typedef clt_status (*clt_crew_fn)(void *arg, int member);

/* `size` members. A crew of one has no thread: its work runs on the caller's. */
clt_status clt_crew_create(int size, clt_crew **crew);

void clt_crew_destroy(clt_crew *crew);

/* Runs fn(arg, i) on every member and waits for all; the first failure by member number, with its
 * message. Allocates nothing. */
clt_status clt_crew_run(clt_crew *crew, clt_crew_fn fn, void *arg);

/* While clt_crew_run waits for its threads it calls `idle` again and again. */
void clt_crew_while_waiting(clt_crew *crew, void (*idle)(void *arg), void *arg);

#endif
