/* What avg_pool2d and max_pool2d share. */
#ifndef CLT_OPS_POOL2D_H
#define CLT_OPS_POOL2D_H

#include "ops/nn.h"

/* The attributes for pooling x; fails x's graph and returns false if the options are not valid. */
bool clt_pool2d_attr_from(const char *op, const clt_value *x, const clt_pool2d_options *options,
                          clt_pool2d_attr *attr);

/* Types of the forward's result (from x) and of the gradient (from dy). */
clt_status clt_pool2d_infer(const clt_node *node, int x, clt_type *out);
clt_status clt_pool2d_infer_grad(const clt_node *node, int dy, clt_type *out);

void clt_pool2d_describe(const clt_node *node, clt_str *text);

/* WANT where the operand can lie in LANES; and the launch there of `kernel`, whose buffers are
 * the node's operands and then its result. */
int clt_pool2d_lanes(const clt_node *node);
void clt_pool2d_emit_lanes(const clt_node *node, const clt_target *target, const char *kernel,
                           clt_program *program);

/* The kernels' arguments from `int planes` on, and the range: an item an element of output 0. */
void clt_pool2d_args(const clt_node *node, const clt_target *target, clt_program *program);

#endif
