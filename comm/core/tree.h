/* Sums in the order of a binary tree over leaves. An array is the sum of an aligned block of
 * consecutive leaves, as a node of the tree. Its level is the binary logarithm of the number of
 * leaves. So the bits of a sum do not depend on how the leaves are divided over arrays. */
#ifndef CLT_COMM_TREE_H
#define CLT_COMM_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include <cltrain/types.h>

/* Most levels: clt_comm_op.leaves is at most 2^20. */
enum { CLT_TREE_LEVELS = 21 };

/* Returns the level of a block of so many leaves; -1: the number is no power of two, or too large.
 */
int clt_tree_level(int64_t leaves);

/* Returns the level of the node that consecutive blocks form; -1: they are no aligned block. */
int clt_tree_join(const int8_t *levels, int count);

/* Sums `in_count` arrays of n elements, blocks of the tree with these levels, and writes the sum to
 * `out_count` arrays, as clt_reduce_fn. Blocks must form a node (clt_tree_join). A 16-bit type is
 * rounded at each node. Squares and `finite` are as in clt_reduce_fn, but with an order of their
 * own, which depends on n only. */
void clt_tree_sum(clt_dtype dtype, const void *const *in, const int8_t *levels, int in_count,
                  void *const *out, int out_count, int64_t n, double *squares, bool *finite);

#endif
