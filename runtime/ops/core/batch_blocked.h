/* What the variants for values in LANES share: sums over the batch in chunks. */
#ifndef CLT_OPS_CORE_BATCH_BLOCKED_H
#define CLT_OPS_CORE_BATCH_BLOCKED_H

#include "ops/core/launch.h"

/* Groups of lanes that one work-group sums where `groups` work-groups share the rest of the work:
 * all, unless that leaves compute units without any. */
int64_t clt_lanes_chunk(const clt_target *target, int64_t groups);

/* output[i] = the sum over the chunks of scratch[block][chunk][i], i < count, in order. */
void clt_lanes_sum_chunks(clt_program *program, const clt_target *target, int block, int output,
                          int64_t count, int64_t chunk);

#endif
