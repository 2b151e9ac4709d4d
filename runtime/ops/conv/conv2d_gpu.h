/* Convolution and its gradients on GPUs: clkernels/conv/gpu/conv2d.cl. */
#ifndef CLT_OPS_CONV_CONV2D_GPU_H
#define CLT_OPS_CONV_CONV2D_GPU_H

#include "ops/core/launch.h"

bool clt_conv2d_gpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* Whether these kernels and those of depthwise.cl support the node's sizes and activation. */
bool clt_conv2d_gpu_fits(const clt_node *node, const clt_target *target, char *why);

void clt_conv2d_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_data_grad_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_weight_grad_gpu(const clt_node *node, const clt_target *target,
                                clt_program *program);

/*
 * Slices of a weight gradient. With several slices, each has `part` elements of scratch memory: the
 * weights, then the biases. `end` launches the second kernel, which adds the slices. Before it,
 * `arg` adds the argument for the first kernel's result: the scratch block, or output 0.
 */
typedef struct clt_conv2d_slices {
    int64_t slices, weights, biases, part;
    int block; /* -1: one slice */
} clt_conv2d_slices;

clt_conv2d_slices clt_conv2d_slices_begin(const clt_node *node, int64_t slices,
                                          clt_program *program);
void clt_conv2d_slices_arg(const clt_conv2d_slices *s, clt_program *program);
void clt_conv2d_slices_end(const clt_conv2d_slices *s, clt_program *program);

#endif
