/* Operators on tensors: element by element, reductions, shapes. See ops.h for the conventions. */
#ifndef CLTRAIN_OPS_TENSOR_H
#define CLTRAIN_OPS_TENSOR_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/* --- element by element ---------------------------------------------------------------------- */

/* a + b, a - b, a * b, a / b of f32 operands, with PyTorch's broadcasting: shapes are aligned at
 * their last dimensions, and a dimension that is 1 or missing repeats. */
CLT_API clt_value *clt_add(clt_value *a, clt_value *b);
CLT_API clt_value *clt_sub(clt_value *a, clt_value *b);
CLT_API clt_value *clt_mul(clt_value *a, clt_value *b);
CLT_API clt_value *clt_div(clt_value *a, clt_value *b);

/* x * factor and x + term; the numbers are rounded to f32. */
CLT_API clt_value *clt_scale(clt_value *x, double factor);
CLT_API clt_value *clt_add_scalar(clt_value *x, double term);

/* The same numbers in memory of their own; any element type. */
CLT_API clt_value *clt_copy(clt_value *x);

/* x itself, through which no gradient goes; any element type. */
CLT_API clt_value *clt_detach(clt_value *x);

/* max(x, 0); the gradient at 0 is 0. A NaN stays one. */
CLT_API clt_value *clt_relu(clt_value *x);

/* x where x > 0, slope * x elsewhere; the gradient at 0 is `slope`. */
CLT_API clt_value *clt_leaky_relu(clt_value *x, double slope);

/* 1 / (1 + exp(-x)). */
CLT_API clt_value *clt_sigmoid(clt_value *x);

CLT_API clt_value *clt_tanh(clt_value *x);

/* x times the normal distribution's probability of less than x: exact (by erf), and the
 * approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
CLT_API clt_value *clt_gelu(clt_value *x);
CLT_API clt_value *clt_gelu_tanh(clt_value *x);

/* While training, sets elements to 0 with probability p and multiplies the others by 1 / (1 - p);
 * in plans for evaluation, x itself. Which elements: a pure function of the seed, the node, the
 * step, the sample's position in the global batch and the element, whatever the number of devices
 * and micro-batches. A batch must be x's first dimension. An x without a batch gets the same zeros
 * on every device. */
CLT_API clt_value *clt_dropout(clt_value *x, double p);

/* x as another element type. Among floats, rounded to the nearest (ties to even); from floats to
 * integers, towards zero and held to the type's range (NaN: 0); i32 to u8 keeps the low bits. f64
 * needs a device with f64. Between floats, the gradient is cast back; otherwise it is zero. */
CLT_API clt_value *clt_cast(clt_value *x, clt_dtype to);

/* --- reductions of f32 ----------------------------------------------------------------------- */

/*
 * Sum, mean and maximum over `axes` (negative ones count from the end; n_axes 0: all of them). With
 * `keepdims` not 0 the reduced axes stay with size 1. Over the batch, these are over the images
 * that a device has in a (micro-)batch: losses are sums and weights for that reason (clt_loss).
 * Over no image at all, sum and mean are 0 and the maximum is -infinity. clt_reduce_max is
 * PyTorch's amax: equal maxima share the gradient evenly, and a NaN wins; where one does, the
 * gradient is NaN.
 */
CLT_API clt_value *clt_reduce_sum(clt_value *x, const int *axes, int n_axes, int keepdims);
CLT_API clt_value *clt_reduce_mean(clt_value *x, const int *axes, int n_axes, int keepdims);
CLT_API clt_value *clt_reduce_max(clt_value *x, const int *axes, int n_axes, int keepdims);

/* --- shapes; any element type ---------------------------------------------------------------- */

/* The same elements in row-major order under another shape. At most one dimension may depend on the
 * batch, and does if one of x does. */
CLT_API clt_value *clt_reshape(clt_value *x, int rank, const int64_t *dims);

/* All dimensions but the first become one. */
CLT_API clt_value *clt_flatten(clt_value *x);

/* Axis k of the result is axis permutation[k] of x; one entry a dimension. */
CLT_API clt_value *clt_transpose(clt_value *x, const int *permutation);

/* 1 to 16 values one behind the other along an axis; all other dimensions, and the element types,
 * are equal. Along the batch, the result has a multiple of it. */
CLT_API clt_value *clt_concat(clt_value *const *values, int count, int axis);

/* A stop of clt_slice: the end of the axis, whatever its size. */
#define CLT_TO_END INT64_MAX

/* Elements start, start + step, .. below stop of each axis; one entry a dimension. Negative starts
 * and stops count from the end, stops beyond it are the end; steps are positive (`step` NULL: 1).
 * An axis of the batch must be taken whole: start 0, stop CLT_TO_END, step 1. */
CLT_API clt_value *clt_slice(clt_value *x, const int64_t *start, const int64_t *stop,
                             const int64_t *step);

/* x with `before` and `after` elements of `value` around each axis, 0 of them on the batch's; one
 * entry a dimension. Types other than f32 and i32 can be padded with 0 only. */
CLT_API clt_value *clt_pad(clt_value *x, const int64_t *before, const int64_t *after, double value);

CLT_END_DECLS

#endif
