/* What the operators that end in a sum and a weight share: cross_entropy, mse, correct. */
#ifndef CLT_OPS_LOSS_LOSS_H
#define CLT_OPS_LOSS_LOSS_H

#include "ops/core/nn.h"

/* Checks logits [P, C, d..] against labels [P, d..]. */
clt_status clt_check_labels(const clt_node *node, int logits, int labels);

/* The type of a loss' sum or weight: one f32. */
clt_type clt_scalar_type(void);

/* Classes, and positions that share a class vector's stride (the product of d..). */
int clt_loss_classes(const clt_node *node);
int64_t clt_loss_inner(const clt_node *node); /* may be negative: times the batch */

/* Positions of the labels, as an extent. */
clt_extent clt_loss_positions(const clt_node *node, int labels);

/* How many partial sums the first kernel of a loss over `elements` writes. */
int64_t clt_loss_parts(const clt_target *target, clt_extent elements);

/* Scratch for that many partial sums. */
int clt_loss_scratch(clt_program *program, int64_t parts);

/* FOLLOW where logits [B, C] can lie in LANES. */
int clt_loss_lanes(const clt_node *node);

/* How many partial sums the kernels in lanes write: enough for all compute units. */
int64_t clt_loss_parts_lanes(const clt_target *target);

/* The last launch: adds partial sums and counts in order into outputs 0 and 1. */
void clt_loss_total(clt_program *program, const clt_target *target, int sums, int counts,
                    int64_t parts);

/* The same on GPUs. */
void clt_loss_total_gpu(clt_program *program, int sums, int counts, int64_t parts);

/* Emits a loss node and hands out its two values; see clt_cross_entropy. */
clt_status clt_loss_emit(const clt_op *op, const void *attr, clt_value *a, clt_value *b,
                         clt_value **sum, clt_value **weight);

#endif
