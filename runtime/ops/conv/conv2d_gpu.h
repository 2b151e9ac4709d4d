/* Convolution and its gradients on GPUs: clkernels/conv/gpu/conv2d.cl. */
#ifndef CLT_OPS_CONV_CONV2D_GPU_H
#define CLT_OPS_CONV_CONV2D_GPU_H

#include "ops/core/activation.h"
#include "ops/core/launch.h"
#include "ops/core/nn.h"

bool clt_conv2d_gpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* Whether these kernels and those of depthwise.cl support the node's sizes and activation. */
bool clt_conv2d_gpu_fits(const clt_node *node, const clt_target *target, char *why);

void clt_conv2d_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_data_grad_gpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_weight_grad_gpu(const clt_node *node, const clt_target *target,
                                clt_program *program);

/* The matrix product that computes one group of a convolution, for batches of `batch` samples. */
typedef struct clt_conv2d_product {
    int64_t m, n, k;
    int64_t kinds; /* products of a group: classes of pixels by remainder modulo the stride */
} clt_conv2d_product;

clt_conv2d_product clt_conv2d_product_of(const clt_node *node, const clt_conv2d_shape *s,
                                         int64_t batch);

/* Returns the plan's largest batch, at least 1. */
int64_t clt_conv2d_batch(const clt_conv2d_shape *s, const clt_target *target);

/* Returns an extent of as many columns as the batch has pixels, with `pixels` in a sample. */
clt_extent clt_conv2d_columns(const clt_conv2d_shape *s, int64_t pixels);

/* Adds scratch memory of so many floats for each slice of sums. Returns its index, or -1 for one
 * slice. */
int clt_conv2d_add_slices(clt_program *program, int64_t slices, int64_t elements);

/* Adds the argument for the result: the scratch block, or output 0 if it is negative. */
void clt_conv2d_arg_result(clt_program *program, int block);

/* Launches the kernel that adds the slices of samples of `channels` x `pixels`, then applies the
 * bias (index of an operand, or -1) and the activation. */
void clt_conv2d_sum(clt_program *program, const clt_conv2d_shape *s, int64_t channels,
                    int64_t pixels, int block, int64_t slices, int bias,
                    const clt_epilogue *epilogue);

/* conv/gpu/conv2d_matrix.cl, for GPUs with matrix units. clt_conv2d_matrix_fits: whether the node's
 * values that are in 16 bits may stay so; then the other variants decline. */
bool clt_conv2d_matrix_fits(const clt_node *node, const clt_target *target, char *why);
bool clt_conv2d_matrix_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_conv2d_matrix(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_data_grad_matrix(const clt_node *node, const clt_target *target,
                                 clt_program *program);
void clt_conv2d_weight_grad_matrix(const clt_node *node, const clt_target *target,
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

/* Returns `slices`, doubled until offsets of images within a slice fit an int. */
int64_t clt_conv2d_least_slices(const clt_conv2d_shape *s, int64_t batch, int64_t slices);

clt_conv2d_slices clt_conv2d_slices_begin(const clt_node *node, int64_t slices,
                                          clt_program *program);
void clt_conv2d_slices_arg(const clt_conv2d_slices *s, clt_program *program);
void clt_conv2d_slices_end(const clt_conv2d_slices *s, clt_program *program);

#endif
