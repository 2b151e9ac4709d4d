/*
 * A convolution with its bias, activation and 2 x 2 pooling in one kernel, for the batch-blocked
 * layout. A pass creates it (passes/fuse_pool.c). Instead of the convolution's result it stores a
 * mask, which says through which of the four elements of a window the gradient flows.
 *
 *   conv2d_pool(x, w, bias or NULL) -> y [B, O, OH / 2, OW / 2], mask u8 of the same dimensions
 *   unpool2d(dy, mask)              -> dz [B, O, OH / 2 * 2, OW / 2 * 2]
 *   conv2d_pool_weight_grad(x, dy, mask) -> dw, db
 */
#ifndef CLT_OPS_CONV_CONV2D_POOL_H
#define CLT_OPS_CONV_CONV2D_POOL_H

#include "ops/core/nn.h"

typedef enum clt_pool_kind { CLT_POOL_AVERAGE = 1, CLT_POOL_MAXIMUM = 2 } clt_pool_kind;

/* The attribute of all three operators. */
typedef struct clt_conv2d_pool_attr {
    clt_conv2d_attr conv; /* as in conv2d; `kernel` and `bias` as in conv2d_weight_grad */
    clt_pool_kind pool;
    int out[2]; /* height and width of the convolution's result before pooling */
    int unused;
} clt_conv2d_pool_attr;

extern const clt_op clt_op_conv2d_pool, clt_op_unpool2d, clt_op_conv2d_pool_weight_grad;

/* Returns the clt_pool_kind of a node that conv2d_pool can compute: 2 x 2, stride 2, no padding,
 * whole windows only. Returns 0 for other nodes. */
int clt_conv2d_pool_kind(const clt_node *pool);

#endif
