/* Functions that operators with a sum and a weight as results share: cross_entropy, mse,
 * correct. */
#ifndef CLT_OPS_LOSS_LOSS_H
#define CLT_OPS_LOSS_LOSS_H

#include "ops/core/nn.h"

/* Checks logits [P, C, d..] against labels [P, d..]. */
clt_status clt_check_labels(const clt_node *node, int logits, int labels);

/* Returns the type of a loss's sum or weight: one f32. */
clt_type clt_scalar_type(void);

/* Return the number of classes, and the stride of classes: the product of d... */
int clt_loss_classes(const clt_node *node);
int64_t clt_loss_inner(const clt_node *node); /* negative: a multiple of the batch size */

/* Returns the number of the labels' positions as an extent. */
clt_extent clt_loss_positions(const clt_node *node, int labels);

/* Returns how many partial sums the first kernel of a loss over `elements` writes. */
int64_t clt_loss_parts(const clt_target *target, clt_extent elements);

/* Adds scratch memory for that many partial sums and returns its index. */
int clt_loss_scratch(clt_program *program, int64_t parts);

/* Returns the i32 input that alone determines the weight of a loss: the number of its labels that
 * are not *ignored. NULL: the loss is another, or its labels are computed. */
const clt_value *clt_loss_targets(const clt_mean *loss, int *ignored);

/* For clt_op.batch_blocked: FOLLOW if logits [B, C] can be batch-blocked. */
int clt_loss_batch_blocked(const clt_node *node);

/* The kernels of loss/batch_blocked/loss.cl take logits of the batch-blocked layout, or, on other
 * targets, plain logits [P, C] of few classes.
 *
 * clt_loss_accepts_few_classes: a CPU, the plain layout, contiguous classes, at most 32 of them.
 * clt_loss_begin_blocks: begins a launch with its build options.
 * clt_loss_samples: the argument `n`. clt_loss_blocks: the number of blocks of samples.
 * clt_loss_parts_of_blocks: how many partial sums are written: enough for all compute units. */
bool clt_loss_accepts_few_classes(const clt_node *node, const clt_target *target, char *why);
void clt_loss_begin_blocks(clt_program *program, const clt_node *node, const clt_target *target,
                           const char *kernel);
clt_arg clt_loss_samples(const clt_node *node);
clt_extent clt_loss_blocks(const clt_node *node, const clt_target *target);
int64_t clt_loss_parts_of_blocks(const clt_target *target);

/* Adds the last launch, which sums the partial sums and counts in order into outputs 0 and 1. */
void clt_loss_total(clt_program *program, const clt_target *target, int sums, int counts,
                    int64_t parts);

/* The same on GPUs. */
void clt_loss_total_gpu(clt_program *program, int sums, int counts, int64_t parts);

/* Adds a loss node and writes its two values; see clt_cross_entropy. */
clt_status clt_loss_emit(const clt_op *op, const void *attr, clt_value *a, clt_value *b,
                         clt_value **sum, clt_value **weight);

#endif
