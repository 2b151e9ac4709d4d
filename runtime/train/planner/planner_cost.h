/* The measurements of a planner, for predictions of other meshes. */
#ifndef CLT_TRAIN_PLANNER_PLANNER_COST_H
#define CLT_TRAIN_PLANNER_PLANNER_COST_H

#include "train/planner/cost.h"
#include <cltrain/planner.h>

/* Returns the cost model with the speeds of the devices of all ranks. Valid as long as the planner.
 */
const clt_cost *clt_planner_cost(const clt_planner *planner);

#endif
