/* linear, its weight gradient and matmul for values in the batch-blocked layout:
 * clkernels/matmul/batch_blocked/linear.cl.
 */
#ifndef CLT_OPS_MATMUL_LINEAR_BATCH_BLOCKED_H
#define CLT_OPS_MATMUL_LINEAR_BATCH_BLOCKED_H

#include "ops/core/launch.h"

/* clt_op.batch_blocked of linear, its weight gradient and matmul. */
int clt_linear_batch_blocked(const clt_node *node);
int clt_linear_weight_grad_batch_blocked(const clt_node *node);
int clt_matmul_batch_blocked(const clt_node *node);

void clt_linear_emit_batch_blocked(const clt_node *node, const clt_target *target,
                                   clt_program *program);
void clt_linear_weight_grad_emit_batch_blocked(const clt_node *node, const clt_target *target,
                                               clt_program *program);
void clt_matmul_emit_batch_blocked(const clt_node *node, const clt_target *target,
                                   clt_program *program);

#endif
