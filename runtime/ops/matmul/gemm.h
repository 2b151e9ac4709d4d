/* Matrix products as launches: what matmul, linear and their gradients share. */
#ifndef CLT_OPS_MATMUL_GEMM_H
#define CLT_OPS_MATMUL_GEMM_H

#include "ops/core/activation.h"
#include "ops/core/launch.h"

/* out[m, n] = activation(op(A)[m, k] op(B)[k, n] + bias[n]), all row-major, for each of `pairs`
 * pairs of matrices that lie one after the other. Sizes may be negative (times the batch). */
typedef struct clt_gemm {
    int64_t pairs, m, n, k;
    int64_t lda, ldb;       /* columns of A and B as they lie in memory */
    int64_t a_step, b_step; /* elements from one pair to the next */
    bool trans_a, trans_b;
    int a, b; /* the node's operands */
    int bias; /* operand, or -1 */
    int out;  /* output */
    clt_epilogue epilogue;
    clt_dtype a_type, b_type, out_type; /* f32, f16 or bf16; see clt_gemm_typed */
} clt_gemm;

/* The product with the types of the node's values. */
clt_gemm clt_gemm_typed(const clt_node *node, clt_gemm gemm);

/* Options A_T, B_T and C_T (with `out`) of the product's kernels: those that are not f32. */
enum { CLT_GEMM_OPTIONS = 40 };
const char *clt_gemm_options(const clt_gemm *gemm, bool out, char *text);

/* One work-item an element; any device. */
void clt_gemm_portable(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* clkernels/matmul/cpu/gemm.cl, for CPUs. */
bool clt_gemm_cpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* clt_variant.tiles of the variants below, and of this one. */
bool clt_gemm_cpu_choices(const clt_node *node, const clt_target *target, int index, char *text);
bool clt_gemm_split_tiles(const clt_node *node, const clt_target *target, int index, char *text);
bool clt_gemm_dot_tiles(const clt_node *node, const clt_target *target, int index, char *text);
bool clt_gemm_clblast_tiles(const clt_node *node, const clt_target *target, int index, char *text);

void clt_gemm_cpu(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* The same with K in slices, where that keeps more units busy. */
bool clt_gemm_split_accepts(const clt_gemm *gemm, const clt_node *node, const clt_target *target,
                            char *why);
void clt_gemm_split(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* clkernels/matmul/cpu/dot.cl, for CPUs: where both operands lie along K, or the result has few
 * rows. */
bool clt_gemm_dot_accepts(const clt_gemm *gemm, const clt_node *node, const clt_target *target,
                          char *why);
void clt_gemm_dot(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* clkernels/matmul/gpu/gemm.cl, for GPUs: where clt_gpu_accepts (ops/matmul/gemm_gpu.h). */
void clt_gemm_gpu(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* CLBlast's product, for GPUs. */
/* The parameters that were measured; NULL: none. */
const clt_tuning_entry *clt_gemm_clblast_tuned(const clt_tuning_record *record,
                                               clt_blas_kernel kernel);

/* What the record has for the device, or what is for where nothing was measured; false: no set of
 * parameters fits the device. */
bool clt_gemm_clblast_sets(const clt_target *target, clt_blas_set sets[CLT_BLAS_KERNELS]);

bool clt_gemm_clblast_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_gemm_clblast(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* As clt_column_sums_portable, for GPUs; for CPUs, in reduce_cpu.c. */
void clt_column_sums_gpu(int operand, clt_dtype type, int out, int64_t rows, int64_t columns,
                         const clt_target *target, clt_program *program);
void clt_column_sums_cpu(int operand, clt_dtype type, int out, int64_t rows, int64_t columns,
                         const clt_target *target, clt_program *program);

/* out[columns] = sums over the rows of operand [rows, columns] of that type; any device. */
void clt_column_sums_portable(int operand, clt_dtype type, int out, int64_t rows, int64_t columns,
                              const clt_target *target, clt_program *program);

#endif
