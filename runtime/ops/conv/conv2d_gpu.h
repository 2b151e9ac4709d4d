/* Convolution and its gradients on GPUs: clkernels/conv/gpu/conv2d.cl. */
#ifndef CLT_OPS_CONV_CONV2D_GPU_H
#define CLT_OPS_CONV_CONV2D_GPU_H

#include "ops/core/launch.h"

bool clt_conv2d_gpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* Sizes and activations that these kernels can have, and those of depthwise.cl. */
bool clt_conv2d_gpu_fits(const clt_node *node, const clt_target *target, char *why);

void clt_conv2d_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_data_grad_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_weight_grad_gpu(const clt_node *node, const clt_target *target,
                                clt_program *program);

/*
 * Where a weight gradient is summed in several slices, each has `part` elements of scratch: the
 * weights, then the biases. The second kernel is launched by `end`; between the two, `arg` is the
 * argument that is written to: the scratch block, or output 0.
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
