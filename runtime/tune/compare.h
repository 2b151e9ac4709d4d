/* What a node computed, and whether two kernels computed the same. */
#ifndef CLT_TUNE_COMPARE_H
#define CLT_TUNE_COMPARE_H

#include "tune/lab.h"

/* The node's outputs. */
typedef struct clt_outcome {
    char *values[CLT_MAX_OUTPUTS]; /* NULL: an output that nobody reads */
    int64_t count[CLT_MAX_OUTPUTS];
    clt_dtype dtype[CLT_MAX_OUTPUTS];
} clt_outcome;

/* Whether another node, a host or an optimizer reads the output. Others need not be written. */
bool clt_outcome_wanted(const clt_plan *plan, const clt_value *output);

/* Frees the values. */
void clt_outcome_drop(clt_outcome *outcome);

/*
 * Runs node number `index` of the lab's plan for lab->run.count images and reads its outputs. They
 * and the node's scratch memory are filled with what no kernel writes before, so that a kernel that
 * leaves some of them as they were is seen. Of an output in batch blocks, whole blocks are read, or
 * all where there are none: the other lanes hold anything. `plain`: of exactly the images there
 * are, and rearranged to row-major order. What it gives is the caller's to drop, on failure too.
 */
clt_status clt_outcome_read(clt_lab *lab, int index, bool plain, clt_outcome *outcome);

/*
 * Whether `b` is what `a` is, as far as rounding and the order of sums allow. `magnitudes` holds
 * the sum of the terms' magnitudes for each element of outputs that are sums, see clt_sums_equal.
 * NULL, or an output without values there: clt_values_equal decides.
 */
bool clt_outcome_equal(const clt_outcome *a, const clt_outcome *b, const clt_outcome *magnitudes,
                       double share);

/*
 * Compare two arrays of sums whose terms may cancel. The gradient of a convolution's bias before
 * batch norm is zero, and each kernel computes another rounding error in its place: no difference
 * is small beside the largest value. An element is therefore also right where the difference is at
 * most `share` of its magnitude, the sum of its terms' absolute values. clt_values_equal's rule
 * holds for all other elements.
 */
bool clt_sums_equal(const float *a, const float *b, const float *magnitudes, double share,
                    int64_t count);

/* The same for one array. Of floats that are finite on both sides the largest difference is at most
 * 1e-4 of the largest magnitude; others are the same bits, or NaN on both sides. Bytes are masks,
 * in which a rounding may change one in a thousand; all else is exact. */
bool clt_values_equal(clt_dtype dtype, const void *a, const void *b, int64_t count);

/* An array of `count` images in batch blocks, row-major: `rest` elements of `bytes` bytes an image.
 */
void clt_batch_blocked_to_plain(const char *from, int64_t count, int64_t rest, int lanes, int bytes,
                                char *to);

#endif
