/* Copies between strided places of two arrays, and fills: what transpose, concat, slice and pad are
 * made of. They move bits, so they work for every element type on every device. */
#ifndef CLT_OPS_SHAPE_MOVE_H
#define CLT_OPS_SHAPE_MOVE_H

#include "ops/core/strided.h"

typedef struct clt_move {
    clt_walk walk;       /* array 0: the operand, 1: the result */
    clt_extent from, to; /* where in them the first element lies */
    clt_extent count;    /* elements moved */
    clt_dtype dtype;
    int output; /* of the node; 0 unless it is set */
} clt_move;

/* All elements of `from` to the same index of `to`, where both start at their first element; the
 * dimensions walked are those of `from`, and of the same rank. */
clt_move clt_move_of(const clt_type *from, const clt_type *to);

/* Adds `index` (not negative) times a dimension's stride to an offset. */
void clt_move_shift(clt_extent *offset, int64_t index, int64_t stride);

/* Emits the launch that moves from an operand to the output. */
void clt_move_emit(clt_move *move, int operand, const clt_target *target, clt_program *program);

/* Emits the launch that writes `bits` (of the element's size) to every element of output 0. */
void clt_fill_emit(const clt_node *node, uint64_t bits, const clt_target *target,
                   clt_program *program);

/* The name of an unsigned integer in OpenCL C of the element's size. */
const char *clt_move_unit(clt_dtype dtype);

/* For CPUs, in move_cpu.c: whether they take the node's moves; whether a launch can also fill the
 * result around what it moves; and the launch, which fills with *bits if that is not NULL. */
bool clt_move_cpu_accepts(const clt_node *node, const clt_target *target, char *why);
bool clt_move_cpu_fills(const clt_node *node, const clt_target *target, const clt_move *move,
                        char *why);
void clt_move_emit_cpu(clt_move *move, int operand, const uint64_t *bits, const clt_target *target,
                       clt_program *program);

#endif
