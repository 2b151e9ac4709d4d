/*
 * What conv2d, conv3d and their gradients share. All arrays hold depth (conv3d), height, width.
 *
 * conv3d(x [B, C, D, H, W], w [O, C / groups, KD, KH, KW], bias [O] or NULL) -> [B, O, OD, OH, OW]
 * conv3d_data_grad(dy, w) -> dx; `in` holds D, H and W.
 * conv3d_weight_grad(x, dy) -> dw, db; `kernel` holds KD, KH and KW. Without `bias`, output 1 is
 * one element that no kernel writes.
 */
#ifndef CLT_OPS_CONV_CONV_H
#define CLT_OPS_CONV_CONV_H

#include "ops/core/dims.h"
#include "ops/core/nn.h"

typedef struct clt_conv3d_attr {
    int stride[3], padding[3], dilation[3];
    int groups;
    clt_epilogue epilogue; /* conv3d */
    int in[3];             /* conv3d_data_grad */
    int kernel[3];         /* conv3d_weight_grad */
    bool bias;             /* conv3d_weight_grad */
    char unused[7];
} clt_conv3d_attr;

/* The sizes of a node of any of the six operators. */
typedef struct clt_conv_shape {
    int axes;      /* 2 or 3 */
    int64_t batch; /* as in clt_type.dims */
    int channels, in[3];
    int out_channels, out[3];
    int kernel[3], stride[3], padding[3], dilation[3];
    int groups;
} clt_conv_shape;

extern const clt_op clt_op_conv3d, clt_op_conv3d_data_grad, clt_op_conv3d_weight_grad;

/* Return whether the operator is conv3d or one of its gradients, and which gradient a node is. */
bool clt_is_conv3d(const clt_op *op);
bool clt_conv_is_data_grad(const clt_node *node);
bool clt_conv_is_weight_grad(const clt_node *node);

/* Return what the attribute says: what is applied to the result, and whether dbias is wanted. */
clt_epilogue clt_conv_epilogue(const clt_node *node);
bool clt_conv_wants_bias(const clt_node *node);

/* Returns the sizes of an inferred node. A gradient node takes the result's size from dy, because
 * pooling may have cut the result. */
clt_conv_shape clt_conv_shape_of(const clt_node *node);

/* Returns the 2D convolution of planes that computes a node of conv3d. Its images are the planes of
 * the result (data gradient: of dx). Its channels are pairs of a channel and a tap along the depth
 * (data gradient: of a channel of dy and a tap). */
clt_conv2d_shape clt_conv3d_planes(const clt_node *node);

/* --- members of the six operators ------------------------------------------------------------ */

clt_status clt_conv_infer(const clt_node *node, clt_type *out);
clt_status clt_conv_infer_data_grad(const clt_node *node, clt_type *out);
clt_status clt_conv_infer_weight_grad(const clt_node *node, clt_type *out);
clt_status clt_conv_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                             clt_value **dx);
void clt_conv_describe(const clt_node *node, clt_str *text);
double clt_conv_flops(const clt_node *node, int64_t n);
bool clt_conv_absorb(clt_node *node, const clt_node *next);
void clt_conv_dims(const clt_node *node, clt_node_dims *dims);
bool clt_conv_reach(const clt_node *node, clt_window *window);
clt_value *clt_conv_within(const clt_node *node, const clt_window *window, clt_value *const *in);
clt_status clt_conv_localise(const clt_node *node, const clt_node_part *part, void *copy);

/* The portable variants. */
void clt_conv_portable(const clt_node *node, const clt_target *target, clt_program *p);
void clt_conv_weight_grad_portable(const clt_node *node, const clt_target *target, clt_program *p);

/* Rows of attributes, in braces; COUNT is as in clt_attribute. The layers in 1D and the transposed
 * ones have some of them too. */
#define CLT_CONV_STRIDE(TYPE, COUNT, DOC)                                                          \
    CLT_ATTRIBUTE(INT, "stride", TYPE, stride, DOC), .count = COUNT, .least = 1, .most = INT_MAX,  \
                                                     .default_value = 1
#define CLT_CONV_PADDING(TYPE, COUNT, DOC)                                                         \
    CLT_ATTRIBUTE(INT, "padding", TYPE, padding, DOC), .count = COUNT, .most = INT_MAX
#define CLT_CONV_DILATION(TYPE, COUNT)                                                             \
    CLT_ATTRIBUTE(INT, "dilation", TYPE, dilation,                                                 \
                  "Distance between the elements of the kernel."),                                 \
        .count = COUNT, .least = 1, .most = INT_MAX, .default_value = 1
#define CLT_CONV_GROUPS(TYPE)                                                                      \
    CLT_ATTRIBUTE(INT, "groups", TYPE, groups,                                                     \
                  "The number of groups of channels, which are convolved separately."),            \
        .least = 1, .most = INT_MAX, .default_value = 1

/* The rows of transposed convolutions' options. */
#define CLT_CONV_TRANSPOSE_ATTRIBUTES(TYPE, COUNT)                                                 \
    {CLT_CONV_STRIDE(TYPE, COUNT, "Distance in the result between neighbours of x.")},             \
        {CLT_CONV_PADDING(TYPE, COUNT, "Elements removed from each side of the result.")},         \
        {CLT_ATTRIBUTE(INT, "output_padding", TYPE, output_padding,                                \
                       "Elements added to one side of the result; below the stride."),             \
         .count = COUNT, .most = INT_MAX},                                                         \
        {CLT_CONV_DILATION(TYPE, COUNT)},                                                          \
    {                                                                                              \
        CLT_CONV_GROUPS(TYPE)                                                                      \
    }

/* The rows of clt_conv2d_attr and clt_conv3d_attr. */
#define CLT_CONV_ATTRIBUTES(TYPE, AXES)                                                            \
    {CLT_CONV_STRIDE(TYPE, AXES, "Step of the kernel.")},                                          \
        {CLT_CONV_PADDING(TYPE, AXES, "Zeros on each side.")}, {CLT_CONV_DILATION(TYPE, AXES)},    \
        {CLT_CONV_GROUPS(TYPE)},                                                                   \
        {CLT_ATTRIBUTE(CHOICE, "activation", TYPE, epilogue.activation,                            \
                       "The activation of the result. The fusion pass sets it."),                  \
         .choices = clt_activation_names, .internal = 1},                                          \
        {CLT_ATTRIBUTE(REAL, "slope", TYPE, epilogue.slope, "Slope of leaky_relu."),               \
         .internal = 1},                                                                           \
        {CLT_ATTRIBUTE(INT, "in", TYPE, in, "Gradient of x: size of dx."), .count = AXES,          \
         .internal = 1},                                                                           \
        {CLT_ATTRIBUTE(INT, "kernel", TYPE, kernel, "Weight gradient: kernel size."),              \
         .count = AXES, .internal = 1},                                                            \
    {                                                                                              \
        CLT_ATTRIBUTE(FLAG, "bias", TYPE, bias, "Weight gradient: computes dbias."), .internal = 1 \
    }

/* The members that an operator and its gradients have in common. */
#define CLT_CONV_MEMBERS(TYPE, HALO, WHOLE)                                                        \
    .halo = HALO, .whole = WHOLE, .dims = clt_conv_dims, .localise = clt_conv_localise,            \
    .reach = clt_conv_reach, .within = clt_conv_within, .attributes = attributes,                  \
    .attr_bytes = sizeof(TYPE), .describe = clt_conv_describe, .flops = clt_conv_flops

/* --- variants of conv3d for GPUs, in conv3d_gpu.c -------------------------------------------- */

bool clt_conv3d_gpu_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_conv3d_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv3d_data_grad_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv3d_weight_grad_gpu(const clt_node *node, const clt_target *target,
                                clt_program *program);

#endif
