/* The division of a run's batches in its checkpoints. */
#ifndef CLT_TRAIN_PLANNER_FROZEN_H
#define CLT_TRAIN_PLANNER_FROZEN_H

#include <cltrain/planner.h>

/* The section CLT_SECTION_SPLIT: devices, weights (none if equal) and quantum. Free with clt_free.
 */
clt_status clt_split_to_json(clt_device *const *devices, int count, const double *weights,
                             int64_t quantum, char **text);

#endif
