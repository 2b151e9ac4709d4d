/* Data that the devices of all ranks exchange in steps, and how long they wait for it. */
#ifndef CLT_TRAIN_CORE_EXCHANGE_H
#define CLT_TRAIN_CORE_EXCHANGE_H

#include "exec/collective.h"
#include "plan/plan.h"
#include "train/core/heartbeat.h"
#include "train/ranks/world.h"

/* Bits of a vote. STOP: stop after this step. DROP: drop this step, because a rank could not read
 * its samples. TELL: tell idle ranks after this step how far training is (fit/idle.c). */
enum { CLT_VOTE_STOP = 1, CLT_VOTE_DROP = 2, CLT_VOTE_TELL = 4 };

/* What a device tells all others about a step, if no bucket's reduction reaches all of them or the
 * caller has set gradients. */
typedef struct clt_words {
    /* Sums of squares of the device's reduced gradients: of parameters that are whole on all
     * devices, and of parts of split ones */
    double whole, parts;
    uint64_t checksum; /* of gradients that the caller has set; 0 if they need not be equal */
    int32_t finite, vote;
} clt_words;

typedef struct clt_exchange_device {
    /* collectives under way; step/step_exchange.c lists their order */
    clt_collective_request *requests;
    clt_collective_result *reduced; /* by bucket: the result of its last reduction */
    clt_words *words;               /* by participant; NULL: there is one */
    double exposed;                 /* seconds of waiting for reductions, of all steps */
    double waited;      /* seconds of waiting for collectives between nodes, of the last step */
    double began, busy; /* for rebalancing: of the last step, until its gradients were ready */
} clt_exchange_device;

/* Gradients in 16 bits with error feedback; step/wire.c. */
typedef struct clt_wire {
    clt_dtype dtype; /* of gradients between devices; F32: there is no error feedback */
    bool rounds;     /* devices round gradients that they have in f32 */
    clt_collective_residual **sums; /* by bucket; NULL: not connected */
    char *layout; /* of devices and ranks; on the same layout a run resumes with the same bits */
    _Atomic int64_t accepted; /* number of the last step whose residuals count, plus 1 */
} clt_wire;

typedef struct clt_exchange {
    clt_collectives collectives; /* used with several devices */
    /* By axis of the mesh, and for CLT_AXIS_SAMPLES: the group of devices that differ only along
     * the axis, for clt_collective.group; -1: the axis has one place */
    int groups[CLT_AXES + 1];
    /* The same for two stages of a pipeline, [stage that sends][stage that receives], then for the
     * stages of each slot; NULL: there is no pipeline; -1: nothing is exchanged */
    int *edges;
    clt_exchange_device *devices; /* by device of this process */
    int n_devices, n_buckets;
    int n_nodes;   /* requests for collectives of a plan, for each micro-batch in flight */
    char **labels; /* by bucket, for messages */
    clt_wire wire;
    clt_heartbeat *beat;         /* NULL: none */
    struct clt_profile *profile; /* NULL: no profile is recorded */
    int vote;                    /* bits that this rank sends in its next steps */
    int votes;                   /* bits that all ranks sent in the last step */
} clt_exchange;

/* Allocates the per-device state of `n_devices` devices for the buckets of a store. */
clt_status clt_exchange_create(const clt_buckets *layout, int n_devices, clt_exchange *exchange);

/* Allocates the requests of all collectives that can be under way. `nodes` is the largest number of
 * collectives in a plan, and `in_flight` that of micro-batches in flight. */
clt_status clt_exchange_reserve(clt_exchange *exchange, int nodes, int in_flight);

/* Allocates the words of all participants if there are several. */
clt_status clt_exchange_reserve_words(clt_exchange *exchange, const clt_participants *all);

/* Makes the groups along the mesh's axes. The collectives must be open. Collective over the ranks.
 */
clt_status clt_exchange_split(clt_exchange *exchange, const clt_participants *all);

/* Makes the groups of two stages for which used[from * stages + to] is true, on all ranks, and of
 * the stages of each tied slot of `layout`. With NULL gradients are not exchanged. Collective over
 * the ranks. */
clt_status clt_exchange_join_stages(clt_exchange *exchange, const clt_participants *all,
                                    const bool *used, const clt_buckets *layout);

/* Undoes the functions above and closes the collectives. The heartbeat keeps running. */
void clt_exchange_free(clt_exchange *exchange);

#endif
