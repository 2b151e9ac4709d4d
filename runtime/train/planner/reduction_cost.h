/* What the communicator takes for an all-reduce among devices. */
#ifndef CLT_TRAIN_PLANNER_REDUCTION_COST_H
#define CLT_TRAIN_PLANNER_REDUCTION_COST_H

#include "device/core/device.h"
#include "train/planner/cost.h"
#include <cltrain/train.h>

/* Measures a small one and a large one, of at most `bytes` (the largest bucket's parameters), among
 * the devices of all ranks of the trainer's world, `total` in all, in the trainer's precision; the
 * cost is by byte of the parameters, which are f32. The same numbers on all ranks; collective. */
clt_status clt_reduction_measure(clt_device *const *devices, int count, int total,
                                 const clt_trainer_options *trainer, int64_t bytes,
                                 clt_reduction_cost *cost);

#endif
