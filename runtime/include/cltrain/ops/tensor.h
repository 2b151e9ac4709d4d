/* Operators on tensors: element by element, reductions, shapes. See ops.h for the conventions. */
#ifndef CLTRAIN_OPS_TENSOR_H
#define CLTRAIN_OPS_TENSOR_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/* --- element by element ---------------------------------------------------------------------- */

/* Compute a + b, a - b, a * b and a / b with PyTorch's broadcasting: shapes are aligned at their
 * last dimensions, and a dimension that is 1 or missing repeats. Errors: SHAPE, UNSUPPORTED (other
 * types than f32). */
CLT_API clt_value *clt_add(clt_value *a, clt_value *b);
CLT_API clt_value *clt_sub(clt_value *a, clt_value *b);
CLT_API clt_value *clt_mul(clt_value *a, clt_value *b);
CLT_API clt_value *clt_div(clt_value *a, clt_value *b);

/* Compute x * factor and x + term. The numbers are rounded to f32. */
CLT_API clt_value *clt_scale(clt_value *x, double factor);
CLT_API clt_value *clt_add_scalar(clt_value *x, double term);

/* Copies x to memory of its own. Any element type. */
CLT_API clt_value *clt_copy(clt_value *x);

/* Returns x itself, without a gradient. Any element type. */
CLT_API clt_value *clt_detach(clt_value *x);

/* Computes max(x, 0). The gradient at 0 is 0. A NaN stays NaN. */
CLT_API clt_value *clt_relu(clt_value *x);

/* Computes x where x > 0, else slope * x. The gradient at 0 is `slope`. */
CLT_API clt_value *clt_leaky_relu(clt_value *x, double slope);

/* Computes 1 / (1 + exp(-x)). */
CLT_API clt_value *clt_sigmoid(clt_value *x);

/* Computes the hyperbolic tangent. */
CLT_API clt_value *clt_tanh(clt_value *x);

/* Compute x times the probability that a normal number is below x. clt_gelu is exact (by erf).
 * clt_gelu_tanh is 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
CLT_API clt_value *clt_gelu(clt_value *x);
CLT_API clt_value *clt_gelu_tanh(clt_value *x);

/* Compute silu, x / (1 + exp(-x)), and silu(a) * b, where a and b are the halves of a gated layer
 * (Shazeer, "GLU Variants Improve Transformer") and broadcast. */
CLT_API clt_value *clt_silu(clt_value *x);
CLT_API clt_value *clt_swiglu(clt_value *a, clt_value *b);

/* Compute e^x, the natural logarithm (PyTorch's log), the square root and 1 / sqrt(x). Results are
 * NaN outside the functions' ranges. The logarithm of 0 is -infinity, and rsqrt(0) is infinity. */
CLT_API clt_value *clt_exp(clt_value *x);
CLT_API clt_value *clt_ln(clt_value *x);
CLT_API clt_value *clt_sqrt(clt_value *x);
CLT_API clt_value *clt_rsqrt(clt_value *x);

/* Computes |x|. The gradient at 0 is 0. */
CLT_API clt_value *clt_abs(clt_value *x);

/* Compute powers: of a number, which is rounded to f32 and must be finite, and of a tensor, with
 * broadcasting. Numbers and gradients are PyTorch's:
 *
 * - Exponents 2, 3, 0.5, -0.5 and -1 are products, roots and quotients.
 * - A negative base with an exponent that is no integer gives NaN.
 * - With exponent 0 the base has no gradient. With base 0 the exponent has none, unless it is
 *   negative. */
CLT_API clt_value *clt_pow_scalar(clt_value *x, double exponent);
CLT_API clt_value *clt_pow(clt_value *x, clt_value *exponent);

/* Computes min(max(x, least), most). The bounds are rounded to f32 and may be infinite. A NaN stays
 * NaN. The gradient is 1 if x is within the bounds or equal to one, else 0. Errors:
 * INVALID_ARGUMENT if `least` exceeds `most` or a bound is NaN. */
CLT_API clt_value *clt_clamp(clt_value *x, double least, double most);

/*
 * Compute masks. A mask is u8: 0 is false, everything else is true. Results are 0 and 1.
 * Comparisons take f32 operands or masks, logical operators take masks. All broadcast. If an
 * operand is NaN, every comparison but != is false. Masks have no gradient. clt_cast turns a mask
 * into f32.
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

/* Takes a where the u8 mask is true, else b. a and b are f32. All three broadcast. Elements that
 * are not taken have no influence on results and gradients, even if they are NaN. */
CLT_API clt_value *clt_where(clt_value *mask, clt_value *a, clt_value *b);

/* In training, sets elements to 0 with probability p and multiplies the others by 1 / (1 - p). In
 * evaluation it returns x. The zeros depend on the seed, the node, the step, the sample's position
 * in the global batch and the element only, not on devices and micro-batches. A batch must be the
 * first dimension of x. An x without a batch gets the same zeros on every device. Errors:
 * INVALID_ARGUMENT (p outside 0 to 1), UNSUPPORTED. */
CLT_API clt_value *clt_dropout(clt_value *x, double p);

/* Converts x to another element type.
 *
 * - Floats to floats: rounded to the nearest, ties to even. The gradient is cast back.
 * - Floats to integers: rounded towards zero and limited to the type's range; NaN gives 0. The
 *   gradient is 0, as it is for all integers.
 * - i32 to u8 keeps the low bits.
 * - f64 needs a device with f64. */
CLT_API clt_value *clt_cast(clt_value *x, clt_dtype to);

/* --- reductions of f32 ----------------------------------------------------------------------- */

/*
 * Compute the sum, mean and maximum over `axes`. Negative axes count from the end; n_axes 0 stands
 * for all axes. With `keepdims` not 0 the reduced axes stay, with size 1.
 *
 * - Over the batch they cover the samples of one device in a (micro-)batch. Losses are therefore
 *   sums and weights (clt_loss).
 * - Without samples, sum and mean are 0, and the maximum is -infinity.
 * - clt_reduce_max is PyTorch's amax: equal maxima share the gradient evenly. If an element is NaN,
 *   the maximum and its gradient are NaN.
 */
CLT_API clt_value *clt_reduce_sum(clt_value *x, const int *axes, int n_axes, int keepdims);
CLT_API clt_value *clt_reduce_mean(clt_value *x, const int *axes, int n_axes, int keepdims);
CLT_API clt_value *clt_reduce_max(clt_value *x, const int *axes, int n_axes, int keepdims);

/* --- shapes; any element type ---------------------------------------------------------------- */

/* Gives x another shape, with the same elements in row-major order. If a dimension of x depends on
 * the batch, exactly one of the result does. Errors: SHAPE. */
CLT_API clt_value *clt_reshape(clt_value *x, int rank, const int64_t *dims);

/* Makes one dimension of all dimensions but the first. */
CLT_API clt_value *clt_flatten(clt_value *x);

/* Permutes the axes. Axis k of the result is axis permutation[k] of x; one entry a dimension. */
CLT_API clt_value *clt_transpose(clt_value *x, const int *permutation);

/* Concatenates 1 to 16 values along an axis. The other dimensions and the element types must be
 * equal. Along the batch, the result has a multiple of the batch. */
CLT_API clt_value *clt_concat(clt_value *const *values, int count, int axis);

/* Stacks 1 to 256 values of one shape and element type along a new axis, which is axis `axis` of
 * the result. A negative axis counts from the end. */
CLT_API clt_value *clt_stack(clt_value *const *values, int count, int axis);

/* Split x along an axis, the reverse of clt_concat (torch.split with a list of sizes). parts[i], 0
 * <= i < count, has sizes[i] elements. The sizes add up to the axis, which may not depend on the
 * batch. A negative axis counts from the end. clt_chunk makes parts of one size, which must divide
 * the axis. On failure all `parts` are NULL, and the graph keeps the failure. */
CLT_API clt_status clt_split_with_sizes(clt_value *x, const int64_t *sizes, int count, int axis,
                                        clt_value **parts);
CLT_API clt_status clt_chunk(clt_value *x, int count, int axis, clt_value **parts);

/* A stop of clt_slice: the end of the axis. */
#define CLT_TO_END INT64_MAX

/* Takes the elements start, start + step, .. below stop of each axis; one entry a dimension.
 * Negative starts and stops count from the end. Stops beyond the end are the end. Steps are
 * positive (`step` NULL: 1). The batch must be taken whole: start 0, stop CLT_TO_END, step 1. */
CLT_API clt_value *clt_slice(clt_value *x, const int64_t *start, const int64_t *stop,
                             const int64_t *step);

/* Pads x with `before` and `after` elements of `value` on each axis; one entry a dimension, 0 for
 * the batch. Types other than f32 and i32 can be padded with 0 only. */
CLT_API clt_value *clt_pad(clt_value *x, const int64_t *before, const int64_t *after, double value);

CLT_END_DECLS

#endif
