/* Kernel launches of matrix products, shared by matmul, linear and their gradients. */
#ifndef CLT_OPS_MATMUL_GEMM_H
#define CLT_OPS_MATMUL_GEMM_H

#include "ops/core/activation.h"
#include "ops/core/launch.h"

/* out[m, n] = activation(op(A)[m, k] op(B)[k, n] + bias[n]), all row-major, for each of `pairs`
 * pairs of matrices that are stored one after the other. A negative size is a multiple of the batch
 * size. */
typedef struct clt_gemm {
    int64_t pairs, m, n, k;
    int64_t lda, ldb;       /* columns of A and B in memory */
    int64_t a_step, b_step; /* elements from one pair to the next */
    bool trans_a, trans_b;
    int a, b; /* indices of the node's operands */
    int bias; /* index of the operand, or -1 */
    int out;  /* index of the node's output */
    clt_epilogue epilogue;
    clt_dtype a_type, b_type, out_type; /* f32, f16 or bf16; set by clt_gemm_typed */
} clt_gemm;

/* The variants of linear, linear_weight_grad and matmul. */
extern const clt_variant clt_gemm_variants[];

/* Return the product that such a node computes. */
clt_gemm clt_linear_gemm(const clt_node *node);
clt_gemm clt_linear_weight_grad_gemm(const clt_node *node);
clt_gemm clt_matmul_gemm(const clt_node *node);

/* Returns the product with the element types of the node's values. */
clt_gemm clt_gemm_typed(const clt_node *node, clt_gemm gemm);

/* Writes the options A_T, B_T and, if `out`, C_T of the product's kernels, for types other than
 * f32. */
enum { CLT_GEMM_OPTIONS = 40 };
const char *clt_gemm_options(const clt_gemm *gemm, bool out, char *text);

/* Adds a launch of one work-item for each element of the result; works on any device. */
void clt_gemm_portable(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* clkernels/matmul/cpu/gemm.cl, for CPUs. */
bool clt_gemm_cpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* For clt_variant.tiles of gemm_cpu and of the variants below. */
bool clt_gemm_cpu_choices(const clt_node *node, const clt_target *target, int index, char *text);
bool clt_gemm_split_tiles(const clt_node *node, const clt_target *target, int index, char *text);
bool clt_gemm_dot_tiles(const clt_node *node, const clt_target *target, int index, char *text);
bool clt_gemm_clblast_tiles(const clt_node *node, const clt_target *target, int index, char *text);

void clt_gemm_cpu(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* The same with K divided into slices, if that keeps more compute units busy. */
bool clt_gemm_split_accepts(const clt_gemm *gemm, const clt_node *node, const clt_target *target,
                            char *why);
void clt_gemm_split(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* clkernels/matmul/cpu/dot.cl, for CPUs: for operands that are both contiguous along K, or for
 * results with few rows. */
bool clt_gemm_dot_accepts(const clt_gemm *gemm, const clt_node *node, const clt_target *target,
                          char *why);
void clt_gemm_dot(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* clkernels/matmul/gpu/gemm.cl, for GPUs. Requires clt_gpu_accepts (ops/matmul/gemm_gpu.h). */
void clt_gemm_gpu(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* clkernels/matmul/gpu/gemm_matrix.cl, for GPUs with matrix units: products of which at least one
 * operand is in 16 bits. The other one is rounded to 16 bits if it is f32. `asked`: also for small
 * products. */
bool clt_gemm_matrix_accepts(const clt_gemm *gemm, const clt_node *node, const clt_target *target,
                             bool asked, char *why);
void clt_gemm_matrix(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* Returns the parameters that were measured for a kernel of CLBlast, or NULL. */
const clt_tuning_entry *clt_gemm_clblast_tuned(const clt_tuning_record *record,
                                               clt_blas_kernel kernel);

bool clt_gemm_clblast_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_gemm_clblast(const clt_gemm *gemm, const clt_target *target, clt_program *program);

/* The same results as clt_column_sums_portable, for GPUs and for CPUs. The latter is in
 * reduce_cpu.c. */
void clt_column_sums_gpu(int operand, clt_dtype type, int out, int64_t rows, int64_t columns,
                         const clt_target *target, clt_program *program);
void clt_column_sums_cpu(int operand, clt_dtype type, int out, int64_t rows, int64_t columns,
                         const clt_target *target, clt_program *program);

/* Sums the rows of an operand [rows, columns] of type `type` into out[columns]; works on any
 * device. */
void clt_column_sums_portable(int operand, clt_dtype type, int out, int64_t rows, int64_t columns,
                              const clt_target *target, clt_program *program);

#endif
