/*
 * The collectives of the graph: all devices come to them in the same order, as often as each other.
 * step/generate.c says between which segments of a plan they start and complete.
 */
#ifndef CLT_TRAIN_STEP_GRAPH_COLLECTIVES_H
#define CLT_TRAIN_STEP_GRAPH_COLLECTIVES_H

#include "train/core/trainer.h"

/* Fails if this process' devices come to the collectives of a session in different orders. */
clt_status clt_segments_check(const clt_session *session);

/* When the trainer is made: checks its sessions, and makes room for the requests of collectives. */
clt_status clt_segments_prepare(clt_trainer *trainer);

/* Then the ranks agree on it, or all fail. */
clt_status clt_segments_agree(clt_trainer *trainer);

/* When the trainer has its communicator: memory that collectives need is there before the first. */
clt_status clt_segments_reserve(clt_trainer *trainer);

/* How often all devices run the plan in this step of t->session, where it has collectives; those
 * with fewer micro-batches run it without samples. 0: there are none. On the caller's thread. */
clt_status clt_segments_rounds(clt_trainer *trainer);

#endif
