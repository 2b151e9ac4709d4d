/* What the reductions' variants share. */
#ifndef CLT_OPS_REDUCE_REDUCE_H
#define CLT_OPS_REDUCE_REDUCE_H

#include "ops/core/strided.h"

typedef struct clt_reduce_attr {
    unsigned axes; /* bit k: axis k is reduced */
    clt_type type; /* of the result: the kept axes, and ones wherever the caller wants them */
} clt_reduce_attr;

typedef struct clt_reduction {
    clt_walk kept, reduced; /* over the operand */
    clt_extent count;       /* results */
    clt_extent length;      /* elements that each is made of */
    int64_t parts;          /* partial results of each, where there are few results */
} clt_reduction;

clt_reduction clt_reduction_of(const clt_node *node, const clt_target *target);

/* The variant for GPUs, in reduce_gpu.c; the node is a sum, mean, max or max_count. */
bool clt_reduce_gpu_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_reduce_gpu(const clt_node *node, const clt_target *target, clt_program *program);

/* The variants for CPUs, in reduce_cpu.c, for the same nodes: a result's elements, or neighbouring
 * results, lie side by side. */
bool clt_reduce_cpu_rows_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_reduce_cpu_rows(const clt_node *node, const clt_target *target, clt_program *program);
bool clt_reduce_cpu_columns_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_reduce_cpu_columns(const clt_node *node, const clt_target *target, clt_program *program);

#endif
