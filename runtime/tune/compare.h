/* Reads the outputs of a node, and compares those of two kernels. */
#ifndef CLT_TUNE_COMPARE_H
#define CLT_TUNE_COMPARE_H

#include "tune/lab.h"

/* The outputs of a node. */
typedef struct clt_outcome {
    char *values[CLT_MAX_OUTPUTS]; /* NULL: nothing reads this output */
    int64_t count[CLT_MAX_OUTPUTS];
    clt_dtype dtype[CLT_MAX_OUTPUTS];
    int rows[CLT_MAX_OUTPUTS]; /* parts of the output that are compared alone; 0 or 1: the whole */
} clt_outcome;

/* Returns the number of these parts for the node's outputs. The moments of batch norm have three:
 * their counts would hide wrong means. */
int clt_outcome_rows(const clt_node *node);

/* Whether another node, the host or an optimizer reads the output. Other outputs need not be
 * written. */
bool clt_outcome_wanted(const clt_plan *plan, const clt_value *output);

/* Frees the values. */
void clt_outcome_drop(clt_outcome *outcome);

/*
 * Runs node number `index` of the lab's plan for lab->run.count images and reads its outputs. The
 * outputs and the node's scratch memory are first filled with a pattern that no kernel writes,
 * which shows outputs that a kernel leaves unwritten. Of a batch-blocked output only whole blocks
 * are read, because the rest of the last block is unspecified; the whole output is read if it has
 * no whole block. `plain`: reads exactly the images of the run, in row-major order. The caller
 * drops the outcome, on failure too.
 */
clt_status clt_outcome_read(clt_lab *lab, int index, bool plain, clt_outcome *outcome);

/*
 * Whether `b` equals `a`, except for rounding and the order of sums. For outputs that are sums,
 * `magnitudes` holds the sum of the terms' magnitudes of each element, see clt_sums_equal. If
 * `magnitudes` is NULL or has no values for an output, clt_values_equal decides.
 */
bool clt_outcome_equal(const clt_outcome *a, const clt_outcome *b, const clt_outcome *magnitudes,
                       double share);

/*
 * Compare two arrays of sums whose terms may cancel. For example, the gradient of a convolution's
 * bias before batch norm is zero, and each kernel computes a different rounding error in its place.
 * An element is therefore right if the difference is at most `share` of its magnitude, the sum of
 * its terms' absolute values. clt_values_equal's rule holds for all other elements.
 */
bool clt_sums_equal(const float *a, const float *b, const float *magnitudes, double share,
                    int64_t count);

/* Compares two arrays. The largest difference of floats that are finite in both arrays may be 1e-4
 * of the largest magnitude. Other floats must have the same bits, or be NaN in both arrays. Bytes
 * are masks, in which rounding may change one element in a thousand. Other types must be equal. */
bool clt_values_equal(clt_dtype dtype, const void *a, const void *b, int64_t count);

/* Copies an array of `count` images from batch-blocked to row-major order. An image has `rest`
 * elements of `bytes` bytes. */
void clt_batch_blocked_to_plain(const char *from, int64_t count, int64_t rest, int lanes, int bytes,
                                char *to);

#endif
