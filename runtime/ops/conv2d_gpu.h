/* Convolution and its gradients on GPUs: clkernels/gpu/conv2d.cl. */
#ifndef CLT_OPS_CONV2D_GPU_H
#define CLT_OPS_CONV2D_GPU_H

#include "ops/launch.h"

bool clt_conv2d_gpu_accepts(const clt_node *node, const clt_target *target, char *why);

void clt_conv2d_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_data_grad_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_weight_grad_gpu(const clt_node *node, const clt_target *target,
                                clt_program *program);

#endif
