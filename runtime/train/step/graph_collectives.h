/* Prepares the collectives of the graph. All devices must start them in the same order and equally
 * often. program/generate.c says between which segments of a plan they start and complete. */
#ifndef CLT_TRAIN_STEP_GRAPH_COLLECTIVES_H
#define CLT_TRAIN_STEP_GRAPH_COLLECTIVES_H

#include "train/core/exchange.h"
#include "train/core/session.h"

/* Fails if this process' devices have the collectives of a session in different orders. */
clt_status clt_segments_check(const clt_session *session);

/* Checks the sessions of a new trainer, and allocates the requests of collectives. */
clt_status clt_segments_prepare(const clt_graph *graph, const clt_session *training,
                                const clt_session *evaluation, clt_exchange *exchange);

/* Checks that all ranks have the same order, or fails on all. Called after clt_segments_prepare. */
clt_status clt_segments_agree(const clt_graph *graph, const clt_session *training,
                              const clt_session *evaluation, const clt_participants *all);

/* Reserves the memory of collectives before the first one. Called once the trainer has its
 * communicator. */
clt_status clt_segments_reserve(const clt_session *training, const clt_session *evaluation,
                                const clt_participants *all, const clt_exchange *exchange);

/* Finds shares->rounds: how often all devices run the session's plan in this step, if the plan has
 * collectives. Devices with fewer micro-batches run the plan without samples. Runs on the caller's
 * thread. */
clt_status clt_segments_rounds(const clt_session *session, const clt_participants *all,
                               const clt_exchange *exchange, clt_shares *shares);

#endif
