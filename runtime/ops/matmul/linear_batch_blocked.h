/* linear, its weight gradient and matmul for values in the LANES layout:
 * clkernels/matmul/batch_blocked/linear.cl.
 */
#ifndef CLT_OPS_MATMUL_LINEAR_BATCH_BLOCKED_H
#define CLT_OPS_MATMUL_LINEAR_BATCH_BLOCKED_H

#include "ops/core/launch.h"

/* clt_op.lanes of the three. */
int clt_linear_lanes(const clt_node *node);
int clt_linear_weight_grad_lanes(const clt_node *node);
int clt_matmul_lanes(const clt_node *node);

void clt_linear_emit_lanes(const clt_node *node, const clt_target *target, clt_program *program);
void clt_linear_weight_grad_emit_lanes(const clt_node *node, const clt_target *target,
                                       clt_program *program);
void clt_matmul_emit_lanes(const clt_node *node, const clt_target *target, clt_program *program);

#endif
