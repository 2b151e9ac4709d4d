/* The variants of conv2d and its gradients for the plain layout on CPUs. */
#ifndef CLT_OPS_CONV_CONV2D_CPU_H
#define CLT_OPS_CONV_CONV2D_CPU_H

#include "ops/core/nn.h"

/* A node may also be one of conv3d: its planes are convolved one by one. */
bool clt_conv2d_cpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* clt_conv2d_cpu also computes the data gradient. */
void clt_conv2d_cpu(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_weight_grad_cpu(const clt_node *node, const clt_target *target,
                                clt_program *program);

/* For clt_variant.tiles. */
bool clt_conv2d_cpu_tiles(const clt_node *node, const clt_target *target, int index, char *text);

#endif
