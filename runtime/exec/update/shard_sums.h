/*
 * Sums of buffers over consecutive virtual shards of a device, in the order of a binary tree. The
 * sums of complete nodes wait on a stack, as the digits of a binary counter. So log2(shards) more
 * sets of buffers suffice.
 */
#ifndef CLT_EXEC_UPDATE_SHARD_SUMS_H
#define CLT_EXEC_UPDATE_SHARD_SUMS_H

#include "exec/update/update.h"

typedef struct clt_shard_sums clt_shard_sums;

/* Makes sets of `count` buffers beside `result`, for so many shards, a power of two. bytes[i] 0: no
 * buffer. The result is borrowed. `floats`: the elements are floats, else gradients in `precision`.
 * *sums is NULL for one shard. */
clt_status clt_shard_sums_create(clt_device *device, const cl_mem *result, const int64_t *bytes,
                                 int count, bool floats, clt_dtype precision, int64_t shards,
                                 clt_shard_sums **sums);

/* The same for a replica's gradients. */
clt_status clt_shard_sums_of_gradients(const clt_replica *replica, clt_dtype precision,
                                       int64_t shards, clt_shard_sums **sums);

/* Takes NULL. */
void clt_shard_sums_destroy(clt_shard_sums *sums);

/* Returns the sets that so many shards need beside the result. */
int clt_shard_sums_sets(int64_t shards);

/* Returns the set into which shard `shard` (0, 1, ... on this device) writes. */
const cl_mem *clt_shard_sums_target(const clt_shard_sums *sums, int shard);

/* Adds shard `shard`, whose set is written, to the shards before. After the last shard the result
 * holds the sum. */
clt_status clt_shard_sums_add(const clt_shard_sums *sums, clt_update *update, int shard);

#endif
