/* The division of a run's batches in its checkpoints. */
#ifndef CLT_TRAIN_PLANNER_FROZEN_H
#define CLT_TRAIN_PLANNER_FROZEN_H

#include "train/planner/balance.h"
#include <cltrain/planner.h>

/* The section CLT_SECTION_SPLIT: devices, weights (none if equal), quantum, and how it came to
 * these (`history`, with the trainer's per_device; may be NULL). Free with clt_free. */
clt_status clt_split_to_json(clt_device *const *devices, int count, const double *weights,
                             int64_t quantum, int64_t per_device, const clt_split_history *history,
                             char **text);

/* The history of a section for `count` devices; NULL if it has none of as many. Errors: FORMAT,
 * OUT_OF_MEMORY. */
clt_status clt_split_read_history(const char *section, int count, clt_split_history **history);

#endif
