/* How a batch is divided over the devices of all ranks, and a device's share over micro-batches. */
#ifndef CLT_TRAIN_RANKS_SHARES_H
#define CLT_TRAIN_RANKS_SHARES_H

#include "exec/collective.h"
#include "train/ranks/world.h"

/* A device's share of a batch. It runs as `micros` micro-batches, each of whole quanta if the plan
 * has room for that. Rounds without samples follow if the plan has collectives and other devices
 * have more micro-batches. */
typedef struct clt_share {
    int64_t begin, count;     /* samples of the batch */
    int64_t per_run, quantum; /* per_run: the most samples of a micro-batch */
    int micros, rounds;
} clt_share;

/* What a device gets of a batch in one run. */
typedef struct clt_part {
    int64_t begin, count; /* samples of the batch */
    int64_t device_begin; /* the first sample of the device in the batch */
    int micro;            /* which of the step's micro-batches */
} clt_part;

/* The first sample, within the share, of a micro-batch; of number `micros`: the share's end. */
int64_t clt_share_begin(const clt_share *share, int micro);

/* The samples of a micro-batch: none if its number is `micros` or more. */
clt_part clt_share_part(const clt_share *share, int micro);

typedef struct clt_shares {
    int64_t per_run; /* the most samples of a plan's run */
    int max_micros;  /* of such runs in a step */
    int accumulate;  /* micro-batches of a share, if it has as many samples and they fit */
    int64_t quantum; /* samples: shares and micro-batches are multiples of it where possible */
    double *weights; /* by participant; NULL: equal */

    /* Of the batch under way. */
    int64_t *offsets; /* by device of this process, and one more */
    int32_t *counts;  /* by participant, its samples, if `counted`; so for each device of this
                         process */
    bool counted;
    int rounds; /* of all devices, if the plan has collectives; else 0 */
} clt_shares;

/* Makes room for the offsets and counts. `shares`: zeros. */
clt_status clt_shares_create(const clt_participants *all, clt_shares *shares);
void clt_shares_free(clt_shares *shares);

/* Divides this rank's `count` samples of a batch by the weights of its devices. */
clt_status clt_shares_split(clt_shares *shares, const clt_participants *all, int64_t count);

/* A share of `count` samples: it has as many micro-batches as asked for, more if the plan is
 * smaller, none without samples. */
clt_share clt_share_of(const clt_shares *shares, int64_t count);

/* A device's share of the batch under way. */
clt_share clt_shares_device(const clt_shares *shares, int device);

/* Finds how many samples of the batch each device of all ranks has, once a batch. On the caller's
 * thread. Collective over the ranks. */
clt_status clt_shares_count(clt_shares *shares, const clt_participants *all,
                            const clt_collectives *collectives);

/* Where this rank's samples lie in the global batch, and how many that has, in *batch: from the
 * caller, else the ranks tell each other. On the caller's thread. */
clt_status clt_shares_place(clt_shares *shares, const clt_participants *all,
                            const clt_collectives *collectives, clt_step_batch *batch);

#endif
