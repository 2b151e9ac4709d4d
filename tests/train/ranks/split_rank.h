/* What a rank needs for clt_fit of a network whose parameters may be split over ranks. */
#ifndef TESTS_TRAIN_RANKS_SPLIT_RANK_H
#define TESTS_TRAIN_RANKS_SPLIT_RANK_H

#include "train/split_model.h"
#include "train/world.h"

#include "base/error.h"
#include "checkpoint/scratch.h"
#include <cltrain/data.h>
#include <cltrain/fit.h>

static float xs[COUNT * IN];
static int32_t labels[COUNT];

static inline clt_status make_data(clt_dataset **set)
{
    return lab_samples(COUNT, IN, xs, labels, 0, set);
}

/* Makes the rank's trainer on a device of the lab, `devices` times. */
static inline clt_status make_split_trainer(const char *parallel, int zero, int64_t batch,
                                            int devices, const clt_world *world, lab *l)
{
    clt_device *list[RANKS_MOST];
    clt_store_options so;
    clt_trainer_options o;
    clt_store_options_init(&so);
    clt_trainer_options_init(&o);
    for (int d = 0; d < devices; d++)
        list[d] = l->devices[0];
    so.parallel = parallel;
    so.world = o.world = world;
    so.seed = 3;
    so.bucket_bytes = 512;
    so.zero = zero == 3 ? 3 : 0;
    o.optimizer = CLT_ADAMW;
    o.batch = batch;
    o.lr = 0.02;
    o.zero = zero;
    o.check_every = 1;
    o.comm_timeout = 60;
    l->graph = split_network(false);
    CLT_TRY(clt_store_create_with(l->graph, list, devices, &so, &l->store));
    return clt_trainer_create(l->graph, l->store, &o, &l->trainer);
}

static inline int open_all(void **state)
{
    make_samples(xs, labels, COUNT, IN, CLASSES);
    return scratch_make(state) || open_runtime(state);
}

static inline int close_all(void **state)
{
    return close_runtime(state) || scratch_remove(state);
}

#endif
