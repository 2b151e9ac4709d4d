/* The variants of conv2d and its gradients for values in the batch-blocked layout. */
#ifndef CLT_OPS_CONV_CONV2D_BATCH_BLOCKED_H
#define CLT_OPS_CONV_CONV2D_BATCH_BLOCKED_H

#include "ops/core/nn.h"

/* The forward kernel and the weight gradient, both optionally with pooling. `pool` is 0 for none,
 * else a clt_pool_kind. With pooling, the forward kernel writes the mask as output 1. The weight
 * gradient then reads the gradient of the pooled values (operand 1) through the mask (operand 2).
 */
void clt_conv2d_emit_batch_blocked(const clt_node *node, const clt_conv2d_shape *shape,
                                   const clt_epilogue *epilogue, int pool, const clt_target *target,
                                   clt_program *program);
void clt_conv2d_emit_weight_grad_batch_blocked(const clt_node *node, const clt_conv2d_shape *shape,
                                               bool bias, int pool, const clt_target *target,
                                               clt_program *program);

/* For clt_variant.tiles: write alternative number `index`. */
bool clt_conv2d_batch_blocked_choices(const clt_conv2d_shape *shape, int pool,
                                      const clt_target *target, int index, char *text);
bool clt_conv2d_weight_grad_choices(const clt_conv2d_shape *shape, const clt_target *target,
                                    int index, char *text);
bool clt_conv2d_batch_blocked_tiles(const clt_node *node, const clt_target *target, int index,
                                    char *text);
bool clt_conv2d_data_grad_tiles(const clt_node *node, const clt_target *target, int index,
                                char *text);
bool clt_conv2d_weight_grad_tiles(const clt_node *node, const clt_target *target, int index,
                                  char *text);

void clt_conv2d_batch_blocked(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_data_grad_batch_blocked(const clt_node *node, const clt_target *target,
                                        clt_program *program);
void clt_conv2d_weight_grad_batch_blocked(const clt_node *node, const clt_target *target,
                                          clt_program *program);

/* The arguments WINDOW_ARGS of a kernel (core/batch_blocked/window.clh), for CLT_ARGS. */
#define CLT_CONV2D_WINDOW(s)                                                                       \
    CLT_FIXED((s)->kernel[0]), CLT_FIXED((s)->kernel[1]), CLT_FIXED((s)->stride[0]),               \
        CLT_FIXED((s)->stride[1]), CLT_FIXED((s)->dilation[0]), CLT_FIXED((s)->dilation[1]),       \
        CLT_FIXED((s)->padding[0]), CLT_FIXED((s)->padding[1])

/* The forward and the data gradient as a product of gathered inputs. */
bool clt_conv2d_gathered_accepts(const clt_node *node, const clt_target *target, char *why);
bool clt_conv2d_gathered_tiles(const clt_node *node, const clt_target *target, int index,
                               char *text);
void clt_conv2d_gathered(const clt_node *node, const clt_target *target, clt_program *program);

/* The gradient of the weights as a product of gathered inputs. */
bool clt_conv2d_weight_gathered_accepts(const clt_node *node, const clt_target *target, char *why);
bool clt_conv2d_weight_gathered_tiles(const clt_node *node, const clt_target *target, int index,
                                      char *text);
void clt_conv2d_weight_gathered(const clt_node *node, const clt_target *target,
                                clt_program *program);

#endif
