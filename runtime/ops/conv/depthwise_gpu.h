/* Depthwise convolution and its gradients on GPUs: clkernels/conv/gpu/depthwise.cl. */
#ifndef CLT_OPS_CONV_DEPTHWISE_GPU_H
#define CLT_OPS_CONV_DEPTHWISE_GPU_H

#include "ops/core/launch.h"

bool clt_depthwise_gpu_accepts(const clt_node *node, const clt_target *target, char *why);

void clt_depthwise_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_depthwise_data_grad_gpu(const clt_node *node, const clt_target *target,
                                 clt_program *program);
void clt_depthwise_weight_grad_gpu(const clt_node *node, const clt_target *target,
                                   clt_program *program);

/* For clt_variant.tiles: writes alternative number `index`. */
bool clt_depthwise_gpu_tiles(const clt_node *node, const clt_target *target, int index, char *text);

#endif
