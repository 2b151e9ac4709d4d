/* Layers of networks: products, convolution, pooling, losses, metrics. See ops.h for the
 * conventions. Init functions set the defaults of options, which stand at the members. Options
 * NULL: the defaults. Pairs are height, width. */
#ifndef CLTRAIN_OPS_NN_H
#define CLTRAIN_OPS_NN_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/*
 * Multiplies a [M, K] and b [K, N]: [M, N].
 *
 * - With trans_a not 0, `a` is [K, M]. With trans_b not 0, `b` is [N, K].
 * - An untransposed `a` may have more leading dimensions, which the result keeps.
 * - If both have the same number of dimensions, more than two, the leading ones must be equal. Each
 *   pair of matrices is multiplied: [.., M, K] and [.., K, N] to [.., M, N], without broadcasting.
 * - Any of M, N and K may depend on the batch, but not both M and N.
 */
CLT_API clt_value *clt_matmul(clt_value *a, clt_value *b, int trans_a, int trans_b);

/* Computes x weight^T + bias: x [.., K] of at least two dimensions, weight [O, K], bias [O] or NULL
 * to [.., O]. */
CLT_API clt_value *clt_linear(clt_value *x, clt_value *weight, clt_value *bias);

typedef struct clt_conv2d_options {
    size_t struct_size;
    int stride[2];   /* 1 */
    int padding[2];  /* zeros on each side: 0 */
    int dilation[2]; /* 1 */
    int groups;      /* 1; divides both numbers of channels */
} clt_conv2d_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_conv2d_options_init(clt_conv2d_options *options);

/* Computes a convolution: x [B, C, H, W], weight [O, C / groups, KH, KW], bias [O] or NULL to [B,
 * O, OH, OW]. */
CLT_API clt_value *clt_conv2d(clt_value *x, clt_value *weight, clt_value *bias,
                              const clt_conv2d_options *options);

typedef struct clt_pool2d_options {
    size_t struct_size;
    int kernel[2];         /* 2 */
    int stride[2];         /* 0: the kernel's size */
    int padding[2];        /* 0; at most half of the kernel */
    int dilation[2];       /* 1; max_pool2d only */
    int ceil_mode;         /* 0; not 0: windows may reach beyond the right and lower edge */
    int count_include_pad; /* 1; 0: means over input elements only */
} clt_pool2d_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_pool2d_options_init(clt_pool2d_options *options);

/* Computes the means over windows of x [B, C, H, W]: [B, C, OH, OW]. In ceil mode the last window
 * must start inside the input or its left padding. The part beyond the padding does not count. */
CLT_API clt_value *clt_avg_pool2d(clt_value *x, const clt_pool2d_options *options);

/* Computes the maxima over windows, without the padding. A NaN is larger than every number. Of
 * equal maxima, the first gets the gradient. */
CLT_API clt_value *clt_max_pool2d(clt_value *x, const clt_pool2d_options *options);

/* Compute exp(x) / sum of exp(x) over `axis`, and its logarithm. A negative axis counts from the
 * end. Errors: INVALID_ARGUMENT, UNSUPPORTED if the axis depends on the batch. */
CLT_API clt_value *clt_softmax(clt_value *x, int axis);
CLT_API clt_value *clt_log_softmax(clt_value *x, int axis);

typedef struct clt_cross_entropy_options {
    size_t struct_size;
    double label_smoothing; /* 0; between 0 and 1 */
    int ignore_index;       /* -100: positions with this label count neither in sum nor in weight */
    /* As many weights as classes: 0, or from 1e-18 to 1e18, so that sums fit in f32. NULL: all are
     * 1. *sum and *weight are then weighted sums, so that their quotient is that of PyTorch's
     * CrossEntropyLoss(weight). Needs logits [P, C]. The loss consists of several nodes, and its
     * weight is computed on the devices. With a precision of 16 bits the logits and their gradient
     * are rounded, as without weights; the loss is computed in f32. Copied. */
    const double *class_weights;
} clt_cross_entropy_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_cross_entropy_options_init(clt_cross_entropy_options *options);

/*
 * Computes the cross entropy of softmax(logits [P, C, d..]) over axis 1 and i32 labels [P, d..] in
 * 0 .. C - 1. *sum is the sum over all positions, *weight the number of positions that are not
 * ignored, one f32 each, for clt_loss. PyTorch's mean is their quotient. Only *sum has a gradient.
 * A label that is neither a class nor ignored makes *sum and its gradient NaN. On failure both are
 * NULL, and the graph keeps the failure.
 */
CLT_API clt_status clt_cross_entropy(clt_value *logits, clt_value *labels,
                                     const clt_cross_entropy_options *options, clt_value **sum,
                                     clt_value **weight);

/* Computes the sum of (x - target)^2 and the number of elements. Both operands have one shape.
 * Results are as for clt_cross_entropy. */
CLT_API clt_status clt_mse(clt_value *x, clt_value *target, clt_value **sum, clt_value **weight);

/* Computes a metric: *sum is the number of labels among the k largest logits, *weight the number of
 * labels other than `ignore_index`. Of equal logits, the one with the lower index counts as larger.
 * Shapes, labels and failures are as for clt_cross_entropy. No gradient. */
CLT_API clt_status clt_correct(clt_value *logits, clt_value *labels, int k, int ignore_index,
                               clt_value **sum, clt_value **weight);

CLT_END_DECLS

#endif
