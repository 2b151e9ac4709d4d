/* How a batch is divided over the devices of all ranks, and a device's share over micro-batches. */
#ifndef CLT_TRAIN_RANKS_SHARES_H
#define CLT_TRAIN_RANKS_SHARES_H

#include "exec/collective.h"
#include "train/ranks/world.h"

/* A device's share of a batch. The share runs as `micro_batches` micro-batches, each a multiple of
 * `quantum` if the plan has room. If the plan has collectives and other devices have more
 * micro-batches, rounds without samples follow. */
typedef struct clt_share {
    int64_t begin, count;     /* samples of the batch */
    int64_t per_run, quantum; /* per_run: the most samples of a micro-batch */
    int micro_batches, rounds;
    /* With virtual shards each micro-batch is a shard, of `total` samples on all devices. `shards`
     * 0: there are none. */
    int64_t shards, first_shard, total;
} clt_share;

/* The samples of a device in one run. */
typedef struct clt_part {
    int64_t begin, count; /* samples of the batch */
    int64_t device_begin; /* the first sample of the device in the batch */
    int micro;            /* index of the micro-batch in the step */
} clt_part;

/* Returns the first sample of a micro-batch, counted from the start of the share. `micro` =
 * `micro_batches` gives the end of the share. */
int64_t clt_share_begin(const clt_share *share, int micro);

/* Returns the samples of a micro-batch. There are none if `micro` is `micro_batches` or more. */
clt_part clt_share_part(const clt_share *share, int micro);

typedef struct clt_shares {
    int64_t per_run;       /* the most samples of a plan's run */
    int max_micro_batches; /* most runs in a step */
    int accumulate; /* micro-batches wanted for a share, if it has as many samples and they fit */
    /* shares and micro-batches are multiples of this number of samples where possible */
    int64_t quantum;
    /* By part of all ranks, and the end: first virtual shards; NULL: there are none. Every share
     * then has as many micro-batches as shards */
    int64_t *bounds;
    int first_part, all_parts; /* of this rank in `bounds`, and the number of parts there */
    double *weights;           /* weights of the parts of a batch of all ranks; NULL: equal */
    int parts;                 /* number of parts of this rank's batch */
    int *part;                 /* by device of this process: the part that it has, from 0 */
    int *stage;                /* by device of this process: its stage along axis pp */
    /* By device of this process: its results are added. Devices with the same parts of samples have
     * the same results, and the first counts */
    bool *counts_results;

    /* The fields below describe the batch under way. */
    int64_t total;    /* with virtual shards: its samples on all ranks */
    int64_t *offsets; /* first samples of this rank's parts, and the end */
    /* Samples by participant, valid if `counted`; repeated for each device of this process, as the
     * all-gather needs. */
    int32_t *counts;
    bool counted;
    int rounds; /* rounds of all devices if the plan has collectives; else 0 */
} clt_shares;

/* Allocates the offsets and counts, and finds the devices' parts. */
clt_status clt_shares_create(const clt_participants *all, clt_shares *shares);
void clt_shares_free(clt_shares *shares);

/* Returns the first sample, of the batch of all ranks, of this rank's part `part`, or their end. */
int64_t clt_shares_shard_begin(const clt_shares *shares, int part);

/* Returns how many virtual shards device `d` has; 1 without virtual shards. */
int64_t clt_shares_leaves(const clt_shares *shares, int d);

/* Divides this rank's `count` samples over its parts by their weights. */
clt_status clt_shares_split(clt_shares *shares, const clt_participants *all, int64_t count);

/* Computes the micro-batches of a share of `count` samples: as many as `accumulate` asks for, and
 * more if the plan is too small. A share without samples has none. */
clt_share clt_share_of(const clt_shares *shares, int64_t count);

/* A device's share of the batch under way. */
clt_share clt_shares_device(const clt_shares *shares, int device);

/* Returns the number of the device's first sample in this rank's batch. */
static inline int64_t clt_shares_begin(const clt_shares *shares, int device)
{
    return shares->offsets[shares->part[device]];
}

/* Returns the number of the device's samples. */
static inline int64_t clt_shares_samples(const clt_shares *shares, int device)
{
    return shares->offsets[shares->part[device] + 1] - shares->offsets[shares->part[device]];
}

/* Returns true for one of the devices of this process that have a part of the batch and a stage:
 * the first. */
bool clt_shares_leads(const clt_shares *shares, int device);

/* Gathers `count` numbers of each participant. `numbers` has a block of all participants' numbers
 * for each device of this process, with those of this process' devices set in each block. Runs on
 * the caller's thread. Collective over the ranks; does nothing for one rank. `label` names the
 * exchange in messages. */
clt_status clt_shares_gather(const clt_participants *all, const clt_collectives *c,
                             const char *label, int32_t *numbers, int64_t count);

/* Exchanges how many samples of the batch each device of all ranks has, once a batch. Runs on the
 * caller's thread. Collective over the ranks. INVALID_ARGUMENT on all ranks if two devices with one
 * part have different numbers of samples. */
clt_status clt_shares_count(clt_shares *shares, const clt_participants *all,
                            const clt_collectives *collectives);

/* Sets in *batch where this rank's samples lie in the global batch, and the size of the global
 * batch. The ranks exchange these numbers unless the caller set them. Runs on the caller's thread.
 */
clt_status clt_shares_place(clt_shares *shares, const clt_participants *all,
                            const clt_collectives *collectives, clt_step_batch *batch);

#endif
