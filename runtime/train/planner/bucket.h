/*
 * The size of the buckets in which gradients are reduced, by the cost model: small ones begin to be
 * reduced earlier and end sooner after backward, large ones cost less latency. Plain numbers, no
 * device.
 */
#ifndef CLT_TRAIN_PLANNER_BUCKET_H
#define CLT_TRAIN_PLANNER_BUCKET_H

#include "base/str.h"
#include "plan/buckets.h"
#include "train/planner/cost.h"

/* A parameter's gradient, in the order of the layout. */
typedef struct clt_gradient_cost {
    double bytes; /* with padding */
    double ready; /* the part of compute after which it and those before it are written */
} clt_gradient_cost;

typedef struct clt_gradients_cost {
    clt_gradient_cost *list;
    int count;
    int64_t max_bytes; /* of a buffer */
} clt_gradients_cost;

/* Fills buckets[], which has room for as many as there are gradients; returns their number. */
int clt_bucket_lay(const clt_gradients_cost *gradients, int64_t bucket_bytes,
                   clt_bucket_cost *buckets);

enum { CLT_BUCKET_SIZES = 5 }; /* 2, 4, 8, 16 and 32 MB */

typedef struct clt_bucket_try {
    int64_t bytes;
    int n_buckets;
    clt_step_cost step;
} clt_bucket_try;

typedef struct clt_bucket_choice {
    clt_bucket_try tries[CLT_BUCKET_SIZES];
    int best; /* of the tries; -1: nothing is reduced, and the size does not matter */
} clt_bucket_choice;

/*
 * For a step of `samples` by device, on each of `ranks` (clt_cost_between; 1, NULL: on these
 * devices alone). The size that is predicted fastest; of those within half a percent of its step,
 * so that noise does not change it, the one with the fewest buckets, and of as many the largest.
 * cost->buckets are not read.
 */
clt_status clt_bucket_choose(const clt_cost *cost, const clt_gradients_cost *gradients,
                             const double *samples, int ranks, const clt_network *network,
                             clt_bucket_choice *choice);

/* A line of what was chosen and why; nothing where nothing is reduced. */
void clt_bucket_describe(const clt_bucket_choice *choice, bool on_host, clt_str *text);

#endif
