/* Launches of clkernels/shape/gpu/move.cl. */
#ifndef CLT_OPS_SHAPE_MOVE_GPU_H
#define CLT_OPS_SHAPE_MOVE_GPU_H

#include "ops/core/group_gpu.h"
#include "ops/shape/move.h"

/* Like clt_move_emit, for operand `operand` of `node`. */
void clt_move_gpu_emit(const clt_node *node, clt_move *move, int operand, clt_program *program);

/* Writes every element of output 0. Index i of operand 0 goes to start[k] + i[k] * step[k] along
 * each axis k. All other elements get `bits`, which must be 0 unless elements have 4 bytes. */
void clt_place_gpu_emit(const clt_node *node, const int64_t *start, const int64_t *step,
                        uint32_t bits, clt_program *program);

/* Defines the table NAME of variants for operators that do nothing but move elements, by COUNT
 * launches: MOVE(node, i) is the move of launch i, from operand OPERAND. */
#define CLT_MOVE_VARIANTS(NAME, COUNT, MOVE, OPERAND)                                              \
    static void NAME##_emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)    \
    {                                                                                              \
        for (int i = 0; i < (COUNT); i++) {                                                        \
            clt_move move = MOVE(node, i);                                                         \
            clt_move_emit_cpu(&move, OPERAND, NULL, target, p);                                    \
        }                                                                                          \
    }                                                                                              \
    static void NAME##_emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)    \
    {                                                                                              \
        (void)target;                                                                              \
        for (int i = 0; i < (COUNT); i++) {                                                        \
            clt_move move = MOVE(node, i);                                                         \
            clt_move_gpu_emit(node, &move, OPERAND, p);                                            \
        }                                                                                          \
    }                                                                                              \
    static void NAME##_emit(const clt_node *node, const clt_target *target, clt_program *p)        \
    {                                                                                              \
        for (int i = 0; i < (COUNT); i++) {                                                        \
            clt_move move = MOVE(node, i);                                                         \
            clt_move_emit(&move, OPERAND, target, p);                                              \
        }                                                                                          \
    }                                                                                              \
    static const clt_variant NAME[] = {                                                            \
        {"runs_cpu", clt_accepts_cpu_vectors, NAME##_emit_cpu},                                    \
        {"vectors_gpu", clt_gpu_elements_accepts, NAME##_emit_gpu},                                \
        {"portable", NULL, NAME##_emit},                                                           \
        {0},                                                                                       \
    }

#endif
