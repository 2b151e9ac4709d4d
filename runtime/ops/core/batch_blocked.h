/* Sums over the batch in chunks, shared by the variants for the batch-blocked layout. */
#ifndef CLT_OPS_CORE_BATCH_BLOCKED_H
#define CLT_OPS_CORE_BATCH_BLOCKED_H

#include "ops/core/launch.h"

/* Returns how many batch blocks one work-group sums when `groups` work-groups share the other
 * dimensions. It is all blocks, unless compute units would then have no work. */
int64_t clt_batch_blocked_chunk(const clt_target *target, int64_t groups);

/* Sums scratch[block][chunk][i] over the chunks in order and writes output[i], for i < count. */
void clt_batch_blocked_sum_chunks(clt_program *program, const clt_target *target, int block,
                                  int output, int64_t count, int64_t chunk);

#endif
