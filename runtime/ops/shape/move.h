/* Strided copies between two arrays, and fills, used by transpose, concat, slice and pad. They copy
 * bits, so they work for every element type on every device. */
#ifndef CLT_OPS_SHAPE_MOVE_H
#define CLT_OPS_SHAPE_MOVE_H

#include "ops/core/strided.h"

typedef struct clt_move {
    clt_strided strided; /* array 0: the operand, 1: the result */
    clt_extent from, to; /* offsets of the first element in both arrays */
    clt_extent count;    /* number of elements to move */
    clt_dtype dtype;
    int output; /* index of the node's output; 0 by default */
} clt_move;

/* Returns the move of all elements of `from` to the same indices of `to`. Both start at their first
 * element. They have the same rank, and the iteration has the dimensions of `from`. */
clt_move clt_move_of(const clt_type *from, const clt_type *to);

/* Adds `index` (not negative) times a dimension's stride to an offset. */
void clt_move_shift(clt_extent *offset, int64_t index, int64_t stride);

/* Adds the launch that moves from an operand to the output. */
void clt_move_emit(clt_move *move, int operand, const clt_target *target, clt_program *program);

/* Adds the launch that writes `bits` (of the element's size) to every element of output 0. */
void clt_fill_emit(const clt_node *node, uint64_t bits, const clt_target *target,
                   clt_program *program);

/* Returns the name of OpenCL C's unsigned integer of the element's size. */
const char *clt_move_unit(clt_dtype dtype);

/* For CPUs, in move_cpu.c, where clt_accepts_cpu_vectors. The first returns whether a launch can
 * also fill the rest of the result. The second adds the launch, which fills with *bits if `bits` is
 * not NULL. */
bool clt_move_cpu_fills(const clt_node *node, const clt_target *target, const clt_move *move,
                        char *why);
void clt_move_emit_cpu(clt_move *move, int operand, const uint64_t *bits, const clt_target *target,
                       clt_program *program);

#endif
