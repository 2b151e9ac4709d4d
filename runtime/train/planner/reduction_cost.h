/* Measures an all-reduce among devices by the communicator. */
#ifndef CLT_TRAIN_PLANNER_REDUCTION_COST_H
#define CLT_TRAIN_PLANNER_REDUCTION_COST_H

#include "device/core/device.h"
#include "train/planner/cost.h"
#include <cltrain/train.h>

/* Measures a small and a large all-reduce, in the trainer's precision, among the `total` devices of
 * all ranks. The large one has at most `bytes`, the parameters of the largest bucket. The cost is
 * per byte of the parameters, which are f32. All ranks get the same numbers. Collective. */
clt_status clt_reduction_measure(clt_device *const *devices, int count, int total,
                                 const clt_trainer_options *trainer, int64_t bytes,
                                 clt_reduction_cost *cost);

#endif
