/* What the operators that use clkernels/reduce/gpu/rows.clh share. */
#ifndef CLT_OPS_REDUCE_ROWS_GPU_H
#define CLT_OPS_REDUCE_ROWS_GPU_H

#include "ops/core/launch.h"

/* A GPU, plain values, and not too many vectors along `axis` of operand 0. */
bool clt_rows_gpu_accepts(const clt_node *node, const clt_target *target, int axis, char *why);

/* Likewise, for rows.clh with sub-groups: where the device has them, and a group has one row. */
bool clt_rows_gpu_subgroups_accepts(const clt_node *node, const clt_target *target, int axis,
                                    char *why);

/* How a kernel spreads vectors along an axis over work-groups. */
typedef struct clt_rows_gpu {
    int v, width, group, keep, inner; /* the build options */
    clt_extent rows, distance;        /* vectors, and how far their elements lie apart */
    int64_t length;
    bool subgroups; /* clt_rows_gpu_of leaves false */
} clt_rows_gpu;

clt_rows_gpu clt_rows_gpu_of(const clt_node *node, const clt_target *target, int axis);

/* Rows of `length` contiguous elements. */
clt_rows_gpu clt_rows_gpu_contiguous(clt_extent rows, int64_t length);

/* Begins a launch with the build options, and `more`. */
void clt_rows_gpu_begin(clt_program *program, const clt_rows_gpu *rows, const char *file,
                        const char *kernel, const char *more);

/* The arguments rows, C and inner. */
void clt_rows_gpu_args(clt_program *program, const clt_rows_gpu *rows);

/* All rows at once; or groups that each make partial results of many, as many as keep the device
 * busy. */
void clt_rows_gpu_range(clt_program *program, const clt_rows_gpu *rows);
int64_t clt_rows_gpu_parts(const clt_rows_gpu *rows, const clt_target *target);

#endif
