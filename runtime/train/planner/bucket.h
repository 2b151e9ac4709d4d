/* Chooses the size of gradient buckets by the cost model. Small buckets begin their reduction
 * earlier and end sooner after backward; large buckets cost less latency. Works on plain numbers,
 * without devices. */
#ifndef CLT_TRAIN_PLANNER_BUCKET_H
#define CLT_TRAIN_PLANNER_BUCKET_H

#include "base/str.h"
#include "plan/buckets.h"
#include "train/planner/cost.h"

/* A parameter's gradient, in the order of the layout. */
typedef struct clt_gradient_cost {
    double bytes; /* size with padding */
    double ready; /* fraction of compute after which this and all earlier gradients are written */
} clt_gradient_cost;

typedef struct clt_gradients_cost {
    clt_gradient_cost *list;
    int count;
    int64_t max_bytes; /* most bytes of a buffer */
} clt_gradients_cost;

/* Fills buckets[], which has room for as many buckets as there are gradients. Returns the number of
 * buckets. */
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
    int best; /* index into tries; -1: nothing is reduced, so the size does not matter */
} clt_bucket_choice;

/* Chooses the size that is predicted fastest for a step of samples[d] on each device, on each of
 * `ranks` (see clt_cost_between; 1 and NULL: one rank). Sizes within half a percent of the fastest
 * count as equal, so that noise does not change the choice. Of these, the size with the fewest
 * buckets wins, then the largest. cost->buckets are not read. */
clt_status clt_bucket_choose(const clt_cost *cost, const clt_gradients_cost *gradients,
                             const double *samples, int ranks, const clt_network *network,
                             clt_bucket_choice *choice);

/* Writes one line about the choice and its reason. Writes nothing if nothing is reduced. */
void clt_bucket_describe(const clt_bucket_choice *choice, bool on_host, clt_str *text);

#endif
