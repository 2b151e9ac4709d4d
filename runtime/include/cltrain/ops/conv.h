/* More convolutions and resampling than in ops/nn.h: transposed, 1-D and 3-D convolution, adaptive
 * pooling, upsampling. See ops.h for the conventions, and ops/nn.h for options. */
#ifndef CLTRAIN_OPS_CONV_H
#define CLTRAIN_OPS_CONV_H

#include <cltrain/ops/nn.h>

CLT_BEGIN_DECLS

/* --- resampling of images -------------------------------------------------------------------- */

/*
 * Computes the means over windows that divide x [B, C, H, W] evenly: [B, C, height, width]
 * (torch.nn.AdaptiveAvgPool2d). Row i of the result is the mean of rows floor(i H / height) to
 * ceil((i + 1) H / height) - 1; columns likewise. Windows may overlap, and `height` may be larger
 * than H. 1 x 1 is global pooling.
 */
CLT_API clt_value *clt_adaptive_avg_pool2d(clt_value *x, int height, int width);

typedef enum clt_upsample_mode {
    CLT_UPSAMPLE_NEAREST, /* element floor(i * in / out) of each axis, computed in f32 as PyTorch */
    CLT_UPSAMPLE_BILINEAR /* linear between the two nearest elements of each axis */
} clt_upsample_mode;

typedef struct clt_upsample2d_options {
    size_t struct_size;
    clt_upsample_mode mode;
    int size[2];       /* height and width of the result; 0: floor(in * scale) */
    double scale[2];   /* 2; where `size` is 0 */
    int align_corners; /* 0; not 0, bilinear: first and last elements keep their places */
} clt_upsample2d_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_upsample2d_options_init(clt_upsample2d_options *options);

/*
 * Resizes x [B, C, H, W] to [B, C, OH, OW], smaller or larger. Positions are those of
 * torch.nn.Upsample and torch.nn.functional.interpolate: element i of the result lies at (i + 0.5)
 * r - 0.5 of x, but not before the first element. r is H / OH, or 1 / scale if a scale is given.
 * With align_corners it lies at i (H - 1) / (OH - 1). An axis whose size stays is copied, whatever
 * the scale. The gradient is added in a fixed order.
 */
CLT_API clt_value *clt_upsample2d(clt_value *x, const clt_upsample2d_options *options);

/* --- transposed convolution ------------------------------------------------------------------ */

typedef struct clt_conv_transpose2d_options {
    size_t struct_size;
    int stride[2];         /* 1 */
    int padding[2];        /* taken off each side: 0 */
    int output_padding[2]; /* added to one side: 0; less than the stride */
    int dilation[2];       /* 1 */
    int groups;            /* 1; divides both numbers of channels */
} clt_conv_transpose2d_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_conv_transpose2d_options_init(clt_conv_transpose2d_options *options);

/*
 * Computes a transposed convolution: the gradient of conv2d, with the same weight and options, for
 * its operand. x [B, C, H, W], weight [C, O / groups, KH, KW], bias [O] or NULL to [B, O, OH, OW],
 * with OH = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1. PyTorch also takes
 * an output_padding from the stride up to the dilation, which is refused here.
 */
CLT_API clt_value *clt_conv_transpose2d(clt_value *x, clt_value *weight, clt_value *bias,
                                        const clt_conv_transpose2d_options *options);

/* --- one dimension: x [B, C, L]. They are the 2-D operators on images of one row ----------------
 */

typedef struct clt_conv1d_options {
    size_t struct_size;
    int stride;   /* 1 */
    int padding;  /* zeros on each side: 0 */
    int dilation; /* 1 */
    int groups;   /* 1; divides both numbers of channels */
} clt_conv1d_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_conv1d_options_init(clt_conv1d_options *options);

/* Computes a convolution: weight [O, C / groups, K], bias [O] or NULL to [B, O, OL]. */
CLT_API clt_value *clt_conv1d(clt_value *x, clt_value *weight, clt_value *bias,
                              const clt_conv1d_options *options);

typedef struct clt_conv_transpose1d_options {
    size_t struct_size;
    int stride;         /* 1 */
    int padding;        /* taken off each side: 0 */
    int output_padding; /* 0; less than the stride */
    int dilation;       /* 1 */
    int groups;         /* 1; divides both numbers of channels */
} clt_conv_transpose1d_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_conv_transpose1d_options_init(clt_conv_transpose1d_options *options);

/* Computes a transposed convolution, as clt_conv_transpose2d: weight [C, O / groups, K], bias [O]
 * or NULL to [B, O, OL]. */
CLT_API clt_value *clt_conv_transpose1d(clt_value *x, clt_value *weight, clt_value *bias,
                                        const clt_conv_transpose1d_options *options);

typedef struct clt_pool1d_options {
    size_t struct_size;
    int kernel;            /* 2 */
    int stride;            /* 0: the kernel's size */
    int padding;           /* 0; at most half of the kernel */
    int dilation;          /* 1; max_pool1d only */
    int ceil_mode;         /* 0; not 0: windows may reach beyond the end */
    int count_include_pad; /* 1; 0: means over input elements only */
} clt_pool1d_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_pool1d_options_init(clt_pool1d_options *options);

/* Compute means and maxima over windows of x [B, C, L]: [B, C, OL], as clt_avg_pool2d and
 * clt_max_pool2d. */
CLT_API clt_value *clt_avg_pool1d(clt_value *x, const clt_pool1d_options *options);
CLT_API clt_value *clt_max_pool1d(clt_value *x, const clt_pool1d_options *options);

/* Computes means over `length` windows, as clt_adaptive_avg_pool2d: [B, C, length]. */
CLT_API clt_value *clt_adaptive_avg_pool1d(clt_value *x, int length);

/* --- three dimensions ------------------------------------------------------------------------ */

typedef struct clt_conv3d_options {
    size_t struct_size;
    int stride[3];   /* 1; depth, height, width */
    int padding[3];  /* zeros on each side: 0 */
    int dilation[3]; /* 1 */
    int groups;      /* 1; divides both numbers of channels */
} clt_conv3d_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_conv3d_options_init(clt_conv3d_options *options);

/* Computes a convolution: x [B, C, D, H, W], weight [O, C / groups, KD, KH, KW], bias [O] or NULL
 * to [B, O, OD, OH, OW]. */
CLT_API clt_value *clt_conv3d(clt_value *x, clt_value *weight, clt_value *bias,
                              const clt_conv3d_options *options);

CLT_END_DECLS

#endif
