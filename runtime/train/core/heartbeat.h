/* Writes the file of <cltrain/heartbeat.h>. All functions do nothing if the heartbeat is NULL, so a
 * trainer without a heartbeat can call them too. */
#ifndef CLT_TRAIN_CORE_HEARTBEAT_H
#define CLT_TRAIN_CORE_HEARTBEAT_H

#include <cltrain/heartbeat.h>
#include <cltrain/status.h>

typedef struct clt_heartbeat clt_heartbeat;

/* Replaces the file at `path`. Errors: IO, OUT_OF_MEMORY. */
clt_status clt_heartbeat_open(const char *path, int rank, int ranks, char *const *labels, int n,
                              clt_heartbeat **beat);

/* Marks the run as ended and unmaps the file. The file stays on disk. */
void clt_heartbeat_close(clt_heartbeat *beat);

/* These functions are not thread-safe: one thread at a time may call them. */
/* Writes another rank than the trainer has: a replica's trainer knows no other ranks. */
void clt_heartbeat_rank_is(clt_heartbeat *beat, int rank, int ranks);

void clt_heartbeat_step(clt_heartbeat *beat, int64_t step);
void clt_heartbeat_start(clt_heartbeat *beat, int bucket);
void clt_heartbeat_complete(clt_heartbeat *beat, int bucket);
void clt_heartbeat_state_is(clt_heartbeat *beat, clt_heartbeat_state state);
void clt_heartbeat_beat(clt_heartbeat *beat); /* any thread */
void clt_heartbeat_failed(clt_heartbeat *beat, clt_status status, const char *message);

#endif
