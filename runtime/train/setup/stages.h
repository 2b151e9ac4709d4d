/* Stages of a pipeline without looking at memory or times. */
#ifndef CLT_TRAIN_SETUP_STAGES_H
#define CLT_TRAIN_SETUP_STAGES_H

#include "graph/graph.h"

/* Keeps the cuts with which the stage with most floating-point operations has the fewest, and
 * removes the others: what clt_stages_choose does if all stages fit. The graph stays as it is if it
 * has no more cuts than the stages need. */
clt_status clt_stages_propose(clt_graph *graph, int stages);

#endif
