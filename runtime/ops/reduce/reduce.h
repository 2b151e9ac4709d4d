/* Attributes and launches that the variants of reductions share. */
#ifndef CLT_OPS_REDUCE_REDUCE_H
#define CLT_OPS_REDUCE_REDUCE_H

#include "ops/core/strided.h"

typedef struct clt_reduce_attr {
    unsigned axes; /* bit k: axis k is reduced */
    int unused;
    clt_type type; /* of the result: the kept axes; others have size 1 or are absent */
} clt_reduce_attr;

typedef struct clt_reduction {
    clt_strided kept, reduced; /* iterations over the operand */
    clt_extent count;          /* number of results */
    clt_extent length;         /* elements of each result */
    int64_t parts;             /* partial results for each result, if there are few results */
} clt_reduction;

clt_reduction clt_reduction_of(const clt_node *node, const clt_target *target);

/* The variant for GPUs, in reduce_gpu.c, for sum, mean, max and max_count. */
bool clt_reduce_gpu_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_reduce_gpu(const clt_node *node, const clt_target *target, clt_program *program);

/* The variants for CPUs, in reduce_cpu.c, for the same operators. For rows, the elements of a
 * result must be contiguous; for columns, neighbouring results. */
bool clt_reduce_cpu_rows_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_reduce_cpu_rows(const clt_node *node, const clt_target *target, clt_program *program);
bool clt_reduce_cpu_columns_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_reduce_cpu_columns(const clt_node *node, const clt_target *target, clt_program *program);

#endif
