/* The data that the instructions of a program work on. */
#ifndef CLT_TRAIN_STEP_BOUND_H
#define CLT_TRAIN_STEP_BOUND_H

#include "train/core/call.h"
#include "train/core/exchange.h"
#include "train/core/updates.h"

/* One device's part of a call. It is filled before the program runs, so that the interpreter reads
 * no options. */
typedef struct clt_bound {
    int device; /* index among the devices of this process */
    clt_replica *replica;
    clt_arena *arena;
    const clt_call *call;
    clt_share share; /* of the call's batch */
    int64_t leaves;  /* virtual shards of the device; 0: there are none */
    bool leads;      /* the first of this process' devices with this share */

    /* A trainer's parts; NULL for a predictor. */
    const clt_participants *all;
    clt_updates *updates;
    clt_exchange *exchange;
    struct clt_states *states;
    struct clt_verification *verification; /* NULL: one participant */
    struct clt_diagnosis *diagnosis;       /* NULL: the program is no diagnosis */
} clt_bound;

#endif
