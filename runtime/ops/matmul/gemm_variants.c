/* The variants of linear, its weight gradient and matmul: each is one matrix product. */
#include "ops/core/matrix_unit.h"
#include "ops/core/nn.h"
#include "ops/matmul/gemm.h"
#include "ops/matmul/gemm_gpu.h"
#include "ops/matmul/linear_batch_blocked.h"

static bool is_weight_grad(const clt_node *node)
{
    return node->op == &clt_op_linear_weight_grad;
}

static clt_gemm product_of(const clt_node *node)
{
    return node->op == &clt_op_matmul ? clt_matmul_gemm(node)
           : is_weight_grad(node)     ? clt_linear_weight_grad_gemm(node)
                                      : clt_linear_gemm(node);
}

typedef void (*emit_product)(const clt_gemm *gemm, const clt_target *target, clt_program *program);
typedef void (*emit_sums)(int operand, clt_dtype type, int out, int64_t rows, int64_t columns,
                          const clt_target *target, clt_program *program);

/* The bias' gradient is the sum of the rows of dy. */
static void emit(const clt_node *node, const clt_target *target, clt_program *program,
                 emit_product product, emit_sums bias_sums)
{
    const clt_gemm gemm = product_of(node);
    product(&gemm, target, program);
    if (is_weight_grad(node) && ((const clt_linear_weight_grad_attr *)node->attr)->bias)
        bias_sums(1, gemm.a_type, 1, gemm.k, gemm.m, target, program);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit(node, target, program, clt_gemm_portable, clt_column_sums_portable);
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit(node, target, program, clt_gemm_cpu, clt_column_sums_cpu);
}

static bool accepts_split(const clt_node *node, const clt_target *target, char *why)
{
    const clt_gemm gemm = product_of(node);
    return clt_gemm_split_accepts(&gemm, node, target, why);
}

static void emit_split(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit(node, target, program, clt_gemm_split, clt_column_sums_cpu);
}

static bool accepts_dot(const clt_node *node, const clt_target *target, char *why)
{
    const clt_gemm gemm = product_of(node);
    return clt_gemm_dot_accepts(&gemm, node, target, why);
}

static void emit_dot(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit(node, target, program, clt_gemm_dot, clt_column_sums_cpu);
}

static void emit_matrix(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit(node, target, program, clt_gemm_matrix, clt_column_sums_gpu);
}

static bool accepts_matrix(const clt_node *node, const clt_target *target, char *why)
{
    const clt_gemm gemm = product_of(node);
    return clt_gemm_matrix_accepts(&gemm, node, target,
                                   clt_matrix_is_asked_for(node, target, emit_matrix), why);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit(node, target, program, clt_gemm_gpu, clt_column_sums_gpu);
}

static void emit_clblast(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit(node, target, program, clt_gemm_clblast, clt_column_sums_gpu);
}

/* A product without a batch dimension exists only in the plain layout. */
static bool accepts_batch_blocked(const clt_node *node, const clt_target *target, char *why)
{
    return node->op == &clt_op_matmul && clt_matmul_batch_blocked(node) == CLT_BATCH_BLOCKED_NO
               ? clt_decline(why, "no matrix of images")
               : clt_accepts_batch_blocked(node, target, why);
}

static void emit_batch_blocked(const clt_node *node, const clt_target *target, clt_program *program)
{
    if (node->op == &clt_op_matmul)
        clt_matmul_emit_batch_blocked(node, target, program);
    else if (is_weight_grad(node))
        clt_linear_weight_grad_emit_batch_blocked(node, target, program);
    else
        clt_linear_emit_batch_blocked(node, target, program);
}

const clt_variant clt_gemm_variants[] = {
    {"batch_blocked", accepts_batch_blocked, emit_batch_blocked, NULL, CLT_BATCH_BLOCKED},
    {"gemm_dot", accepts_dot, emit_dot, clt_gemm_dot_tiles},
    {"gemm_split", accepts_split, emit_split, clt_gemm_split_tiles, CLT_ADDS},
    {"gemm_cpu", clt_gemm_cpu_accepts, emit_cpu, clt_gemm_cpu_choices, CLT_ADDS},
    {"gemm_matrix", accepts_matrix, emit_matrix, clt_matrix_tiles, CLT_NARROWS},
    {"gemm_gpu", clt_gpu_accepts, emit_gpu, clt_gpu_tiles},
    {"clblast", clt_gemm_clblast_accepts, emit_clblast, clt_gemm_clblast_tiles, CLT_CLBLAST},
    {"portable", clt_accepts_plain, emit_portable},
    {0},
};
