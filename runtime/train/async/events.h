/* The log of a holder: JSON lines, one an event, from which staleness can be recomputed. */
#ifndef CLT_TRAIN_ASYNC_EVENTS_H
#define CLT_TRAIN_ASYNC_EVENTS_H

#include <stdbool.h>

#include <cltrain/export.h>
#include <cltrain/status.h>

typedef struct clt_events clt_events;

/* Opens PATH, or for holder i > 0 PATH.i. `path` NULL: no log, *events is NULL. Errors: IO. */
clt_status clt_events_open(const char *path, int holder, bool resume, clt_events **events);

/* Writes {"event":NAME,"time":SECONDS,MEMBERS}; `members` is formatted. Does nothing without a
 * log. */
void clt_events_add(clt_events *events, const char *name, const char *members, ...)
    CLT_PRINTF(3, 4);

/* Writes what is pending to the file. */
void clt_events_flush(clt_events *events);

/* Errors: IO if a line could not be written. Takes NULL. */
clt_status clt_events_close(clt_events *events);

#endif
