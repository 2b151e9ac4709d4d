/* What the devices of all ranks exchange in steps, and how long they wait for it. */
#ifndef CLT_TRAIN_CORE_EXCHANGE_H
#define CLT_TRAIN_CORE_EXCHANGE_H

#include "exec/collective.h"
#include "plan/plan.h"
#include "train/core/heartbeat.h"

/* Bits of a vote: stop after this step; drop this step, since a rank could not read its samples. */
enum { CLT_VOTE_STOP = 1, CLT_VOTE_DROP = 2 };

typedef struct clt_exchange_device {
    clt_collective_request *requests; /* under way; step/step_exchange.c says which */
    clt_collective_result *reduced;   /* by bucket: what its last reduction measured */
    double exposed;                   /* seconds that it waited for reductions, of all steps */
    double waited;      /* likewise for collectives between its nodes, of the last step */
    double began, busy; /* rebalance: of the last step, until its gradients were there */
} clt_exchange_device;

typedef struct clt_exchange {
    clt_collectives collectives;  /* of several devices */
    clt_exchange_device *devices; /* of this process */
    int n_devices, n_buckets;
    char **labels;               /* by bucket, for messages */
    clt_heartbeat *beat;         /* NULL: none */
    struct clt_profile *profile; /* NULL: none is recorded */
    int vote;                    /* what this rank says in its next steps */
    int votes;                   /* what all said in the last */
} clt_exchange;

/* Makes what `n_devices` need for the buckets of a store. */
clt_status clt_exchange_create(const clt_buckets *layout, int n_devices, clt_exchange *exchange);

/* Makes room for the requests of all collectives that can be under way; `nodes`: the most
 * collectives of a plan. */
clt_status clt_exchange_reserve(clt_exchange *exchange, int nodes);

/* The opposite of both. Closes the collectives; the heartbeat goes on. */
void clt_exchange_free(clt_exchange *exchange);

#endif
