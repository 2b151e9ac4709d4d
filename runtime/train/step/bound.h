/* What the instructions of a program work on. */
#ifndef CLT_TRAIN_STEP_BOUND_H
#define CLT_TRAIN_STEP_BOUND_H

#include "train/core/exchange.h"
#include "train/core/session.h"
#include "train/core/updates.h"

/* One device's part of a call. Preparation fills it, so that the interpreter reads no options. */
typedef struct clt_bound {
    int device; /* of this process */
    clt_replica *replica;
    clt_arena *arena;
    clt_session *session; /* NULL: the program needs no plan */

    /* The call. */
    const clt_step_batch *batch;
    const clt_feed *given; /* gradients of outputs */
    int n_given;
    clt_share share;
    int64_t first; /* the number of the batch's first sample */
    const double *loss_weights;
    int entry;    /* of the ring of results */
    int parity;   /* which of the two sets of input buffers */
    int64_t step; /* 0: the first */
    uint64_t seed;
    double lr;

    /* A trainer's parts; NULL for a predictor. */
    const clt_participants *all;
    const int *owners; /* by bucket: a participant; NULL: every device updates all */
    clt_updates *updates;
    clt_exchange *exchange;
    struct clt_states *states;
    struct clt_verification *verification; /* NULL: one participant */
    struct clt_diagnosis *diagnosis;       /* NULL: the program is not that */
} clt_bound;

#endif
