/*
 * Division of batches among devices and ranks, and the order of samples in an epoch. These are
 * functions of their arguments alone, so all ranks compute the same without asking each other.
 */
#ifndef CLTRAIN_SPLIT_H
#define CLTRAIN_SPLIT_H

#include <stdint.h>

#include <cltrain/export.h>
#include <cltrain/status.h>

CLT_BEGIN_DECLS

/*
 * Divides [0, total) among `parts` devices or ranks in proportion to `weights` (NULL: equally).
 * Part p is [offsets[p], offsets[p + 1]), with offsets[0] = 0 and offsets[parts] = total.
 *
 * Each part is a multiple of `quantum` (at least 1), but for the last part that is not empty. Units
 * of `quantum` go one by one to the part whose load per weight stays lowest (D'Hondt's method; ties
 * go to the lower number):
 *
 * - The slowest part is as fast as possible. With equal weights the first parts are the larger
 *   ones.
 * - A part of weight 0 is empty. Other parts may be empty too.
 * - A larger total gives no part fewer units.
 * - The same arguments give the same division everywhere.
 *
 * Errors: INVALID_ARGUMENT for total < 0, parts < 1, quantum < 1, and weights that are negative,
 * not finite or all 0. Thread-safe.
 */
CLT_API clt_status clt_split(int64_t total, int parts, const double *weights, int64_t quantum,
                             int64_t *offsets);

/* Returns the first sample of virtual shard `shard` of a batch of `total` samples; `shard` =
 * `shards` gives the end. These are clt_split's equal parts with quantum 1, which depend on nothing
 * but these numbers. See clt_trainer_options.virtual_shards. Thread-safe. */
CLT_API int64_t clt_virtual_shard_begin(int64_t total, int64_t shards, int64_t shard);

/* Computes the most samples that clt_split gives to each part for any total up to `total`. Make a
 * device's staging memory so large. The number may exceed the part of `total` by less than one
 * quantum. Thread-safe. */
CLT_API clt_status clt_split_capacity(int64_t total, int parts, const double *weights,
                                      int64_t quantum, int64_t *capacity);

/*
 * Computes the sample numbers at positions [begin, begin + count) of an epoch of a data set of
 * `total` samples. The order is a pseudo-random permutation that depends on (seed, epoch) only. So
 * any thread, device or rank computes just its own part, and a run resumes anywhere. With `shuffle`
 * 0 the numbers are the positions. Thread-safe.
 */
CLT_API clt_status clt_data_order(int64_t total, int64_t seed, int64_t epoch, int shuffle,
                                  int64_t begin, int64_t count, int64_t *indices);

CLT_END_DECLS

#endif
