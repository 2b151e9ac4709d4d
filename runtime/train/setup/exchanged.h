/* Counts the bytes that devices exchange in a step, from a plan alone. */
#ifndef CLT_TRAIN_SETUP_EXCHANGED_H
#define CLT_TRAIN_SETUP_EXCHANGED_H

#include "train/store/store.h"
#include <cltrain/train.h>

/* Bytes of the whole tensors in the collectives that a device takes part in, in a step of a whole
 * batch. Losses, norms, votes and means of states are left out. */
typedef struct clt_exchanged {
    int64_t axes[CLT_AXES]; /* values of the graph, by axis */
    int64_t tied;           /* gradients of parameters that several stages have */
    int64_t gradients;      /* gradients of the devices that divide the samples */
    int64_t parameters;     /* parameters of those, if each updates its shard */
} clt_exchanged;

/* Counts for a device with this plan of training. `shards`: of each bucket; 1: buckets are reduced
 * whole. */
void clt_exchanged_count(const clt_plan *plan, const clt_mesh *mesh,
                         const clt_trainer_options *options, int shards, clt_exchanged *exchanged);

/* Appends a line for each number that is not zero. */
void clt_exchanged_print(const clt_exchanged *exchanged, clt_str *text);

#endif
