/* Launches of clkernels/shape/gpu/move.cl. */
#ifndef CLT_OPS_SHAPE_MOVE_GPU_H
#define CLT_OPS_SHAPE_MOVE_GPU_H

#include "ops/shape/move.h"

/* For clt_variant.accepts: requires a GPU, the plain layout, and not too many elements. */
bool clt_move_gpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* Like clt_move_emit, for operand `operand` of `node`. */
void clt_move_gpu_emit(const clt_node *node, clt_move *move, int operand, clt_program *program);

/* Writes every element of output 0. Index i of operand 0 goes to start[k] + i[k] * step[k] along
 * each axis k. All other elements get `bits`, which must be 0 unless elements have 4 bytes. */
void clt_place_gpu_emit(const clt_node *node, const int64_t *start, const int64_t *step,
                        uint32_t bits, clt_program *program);

#endif
