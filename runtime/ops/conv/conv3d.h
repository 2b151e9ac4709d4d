/*
 * conv3d(x [B, C, D, H, W], w [O, C / groups, KD, KH, KW], bias [O] or NULL) -> [B, O, OD, OH, OW]
 * conv3d_data_grad(dy, w) -> dx; `in` holds D, H and W.
 * conv3d_weight_grad(x, dy) -> dw, db; `kernel` holds KD, KH and KW. Without `bias`, output 1 is
 * one element that no kernel writes. Triples are depth, height, width.
 */
#ifndef CLT_OPS_CONV_CONV3D_H
#define CLT_OPS_CONV_CONV3D_H

#include "ops/core/nn.h"

typedef struct clt_conv3d_attr {
    int stride[3], padding[3], dilation[3];
    int groups;
    clt_epilogue epilogue; /* conv3d */
    int in[3];             /* conv3d_data_grad */
    int kernel[3];         /* conv3d_weight_grad */
    bool bias;             /* conv3d_weight_grad */
} clt_conv3d_attr;

/* The sizes of a conv3d node or of one of its gradient nodes. */
typedef struct clt_conv3d_shape {
    int64_t batch; /* as in clt_type.dims */
    int channels, in[3];
    int out_channels, out[3];
    int kernel[3], stride[3], padding[3], dilation[3];
    int groups;
} clt_conv3d_shape;

extern const clt_op clt_op_conv3d, clt_op_conv3d_data_grad, clt_op_conv3d_weight_grad;

/* Returns whether the operator is conv3d or one of its gradients. */
bool clt_is_conv3d(const clt_op *op);

/* Returns the sizes of an inferred node of conv3d or one of its gradients. */
clt_conv3d_shape clt_conv3d_shape_of(const clt_node *node);

/* Returns the 2D convolution of planes that computes the node. Its images are the planes of the
 * result (data gradient: of dx). Its channels are pairs of a channel and a tap along the depth
 * (data gradient: of a channel of dy and a tap). */
clt_conv2d_shape clt_conv3d_planes(const clt_node *node);

/* The variants for GPUs, in conv3d_gpu.c. */
bool clt_conv3d_gpu_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_conv3d_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv3d_data_grad_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv3d_weight_grad_gpu(const clt_node *node, const clt_target *target,
                                clt_program *program);

#endif
