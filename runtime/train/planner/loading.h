/* What the host's cores take to assemble batches. */
#ifndef CLT_TRAIN_PLANNER_LOADING_H
#define CLT_TRAIN_PLANNER_LOADING_H

#include "plan/plan.h"

/* Cores that this process may use. */
int clt_loading_cores(void);

/* Seconds of a core that a sample takes, if its f32 inputs are bytes in the data set, as those of
 * images are; measured on up to `samples`. */
clt_status clt_loading_measure(const clt_plan *plan, int64_t samples, double *seconds);

#endif
