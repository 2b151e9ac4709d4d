/*
 * The collectives of the graph: all devices come to them in the same order, as often as each other.
 * step/generate.c says between which segments of a plan they start and complete.
 */
#ifndef CLT_TRAIN_STEP_GRAPH_COLLECTIVES_H
#define CLT_TRAIN_STEP_GRAPH_COLLECTIVES_H

#include "train/core/exchange.h"
#include "train/core/session.h"

/* Fails if this process' devices come to the collectives of a session in different orders. */
clt_status clt_segments_check(const clt_session *session);

/* When the trainer is made: checks its sessions, and makes room for the requests of collectives. */
clt_status clt_segments_prepare(const clt_graph *graph, const clt_session *training,
                                const clt_session *evaluation, clt_exchange *exchange);

/* Then the ranks agree on it, or all fail. */
clt_status clt_segments_agree(const clt_graph *graph, const clt_session *training,
                              const clt_session *evaluation, const clt_participants *all);

/* When the trainer has its communicator: memory that collectives need is there before the first. */
clt_status clt_segments_reserve(const clt_session *training, const clt_session *evaluation,
                                const clt_participants *all, const clt_exchange *exchange);

/* Finds shares->rounds: how often all devices run the session's plan in this step if it has
 * collectives; those with fewer micro-batches run it without samples. On the caller's thread. */
clt_status clt_segments_rounds(const clt_session *session, const clt_participants *all,
                               const clt_exchange *exchange, clt_shares *shares);

#endif
