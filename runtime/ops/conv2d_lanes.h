/* The variants of conv2d and its gradients for values in the LANES layout. */
#ifndef CLT_OPS_CONV2D_LANES_H
#define CLT_OPS_CONV2D_LANES_H

#include "ops/launch.h"

bool clt_conv2d_lanes_accepts(const clt_node *node, const clt_target *target, char *why);

void clt_conv2d_lanes(const clt_node *node, const clt_target *target, clt_program *program);
void clt_conv2d_data_grad_lanes(const clt_node *node, const clt_target *target,
                                clt_program *program);
void clt_conv2d_weight_grad_lanes(const clt_node *node, const clt_target *target,
                                  clt_program *program);

#endif
