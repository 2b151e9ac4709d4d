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

/* x / (1 + exp(-x)), and that of a, times b: of the two halves of a gated layer (Shazeer, "GLU
 * Variants Improve Transformer"). a and b broadcast. */
CLT_API clt_value *clt_silu(clt_value *x);
CLT_API clt_value *clt_swiglu(clt_value *a, clt_value *b);

/* e^x, the natural logarithm (PyTorch's log), the square root and 1 / sqrt(x). Outside their range,
 * these are NaN; the logarithm of 0 is -infinity, rsqrt(0) infinity. */
CLT_API clt_value *clt_exp(clt_value *x);
CLT_API clt_value *clt_ln(clt_value *x);
CLT_API clt_value *clt_sqrt(clt_value *x);
CLT_API clt_value *clt_rsqrt(clt_value *x);

/* |x|; the gradient at 0 is 0. */
CLT_API clt_value *clt_abs(clt_value *x);

/* x to the power of a number, which is rounded to f32 and must be finite, and of a tensor; operands
 * broadcast. As in PyTorch, exponents 2, 3, 0.5, -0.5 and -1 are products, roots and quotients; a
 * negative base needs an integer for an exponent, else the result is NaN. Gradients where base or
 * exponent is 0 are PyTorch's: none for the base with exponent 0, none for the exponent with base 0
 * unless that is negative. */
CLT_API clt_value *clt_pow_scalar(clt_value *x, double exponent);
CLT_API clt_value *clt_pow(clt_value *x, clt_value *exponent);

/* min(max(x, least), most), numbers rounded to f32; an infinite one holds nothing. `least` may not
 * exceed `most`, and neither may be NaN. A NaN stays one. The gradient is that of x where x is
 * within, the bounds included, and 0 elsewhere. */
CLT_API clt_value *clt_clamp(clt_value *x, double least, double most);

/*
 * Masks. A mask is u8: 0 is false, everything else true; these write 0 and 1. Comparisons take f32
 * operands or masks, logical operators masks; all broadcast. Everything but != is false where an
 * operand is NaN. No gradient goes through a mask. As f32: clt_cast.
 */
CLT_API clt_value *clt_eq(clt_value *a, clt_value *b); /* a == b */
CLT_API clt_value *clt_ne(clt_value *a, clt_value *b); /* a != b */
CLT_API clt_value *clt_lt(clt_value *a, clt_value *b); /* a < b */
CLT_API clt_value *clt_le(clt_value *a, clt_value *b); /* a <= b */
CLT_API clt_value *clt_gt(clt_value *a, clt_value *b); /* a > b */
CLT_API clt_value *clt_ge(clt_value *a, clt_value *b); /* a >= b */
CLT_API clt_value *clt_logical_and(clt_value *a, clt_value *b);
CLT_API clt_value *clt_logical_or(clt_value *a, clt_value *b);
CLT_API clt_value *clt_logical_xor(clt_value *a, clt_value *b);
CLT_API clt_value *clt_logical_not(clt_value *a);

/* a where the u8 mask is true, b elsewhere: f32 operands; all three broadcast. What is not taken,
 * be it NaN, has no influence, on the gradient neither. */
CLT_API clt_value *clt_where(clt_value *mask, clt_value *a, clt_value *b);

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

/* 1 to 256 values of one shape and element type along a new axis, which is axis `axis` of the
 * result (negative ones count from its end). */
CLT_API clt_value *clt_stack(clt_value *const *values, int count, int axis);

/* The reverse of clt_concat (torch.split with a list of sizes): parts[i], 0 <= i < count, has
 * sizes[i] elements of x along an axis (negative ones count from the end) that does not depend on
 * the batch; together they are all of it. clt_chunk makes parts of one size, which must divide the
 * axis. On failure all of `parts` are NULL, and the graph keeps the failure. */
CLT_API clt_status clt_split_with_sizes(clt_value *x, const int64_t *sizes, int count, int axis,
                                        clt_value **parts);
CLT_API clt_status clt_chunk(clt_value *x, int count, int axis, clt_value **parts);

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
