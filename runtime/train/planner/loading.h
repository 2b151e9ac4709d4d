/* Measures how long the host's cores take to assemble batches. */
#ifndef CLT_TRAIN_PLANNER_LOADING_H
#define CLT_TRAIN_PLANNER_LOADING_H

#include "plan/plan.h"

/* Returns the number of cores that this process may use. */
int clt_loading_cores(void);

/* Measures the core seconds to assemble a sample, on up to `samples` samples. Assumes that f32
 * inputs are bytes in the data set, as those of images are. */
clt_status clt_loading_measure(const clt_plan *plan, int64_t samples, double *seconds);

#endif
