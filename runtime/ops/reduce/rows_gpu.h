/* Functions shared by the operators that use clkernels/reduce/gpu/rows.clh. */
#ifndef CLT_OPS_REDUCE_ROWS_GPU_H
#define CLT_OPS_REDUCE_ROWS_GPU_H

#include "ops/core/launch.h"

/* Requires a GPU, the plain layout, and not too many vectors along `axis` of operand 0. */
bool clt_rows_gpu_accepts(const clt_node *node, const clt_target *target, int axis, char *why);

/* The same for rows.clh with sub-groups. It also requires that the device has sub-groups and that a
 * work-group has one row. */
bool clt_rows_gpu_subgroups_accepts(const clt_node *node, const clt_target *target, int axis,
                                    char *why);

/* How a kernel divides the vectors along an axis over work-groups. */
typedef struct clt_rows_gpu {
    int v, width, group, keep, inner; /* the build options */
    clt_extent rows, distance; /* number of vectors; distance between the elements of a vector */
    int64_t length;
    bool subgroups; /* the caller may set it; clt_rows_gpu_of sets false */
} clt_rows_gpu;

clt_rows_gpu clt_rows_gpu_of(const clt_node *node, const clt_target *target, int axis);

/* Returns the division for rows of `length` contiguous elements. */
clt_rows_gpu clt_rows_gpu_contiguous(clt_extent rows, int64_t length);

/* Begins a launch with the build options and the additional options `more`. */
void clt_rows_gpu_begin(clt_program *program, const clt_rows_gpu *rows, const char *file,
                        const char *kernel, const char *more);

/* Adds the arguments rows, C and inner. */
void clt_rows_gpu_args(clt_program *program, const clt_rows_gpu *rows);

/* The first sets a range of all rows. The second returns the number of work-groups, if each makes
 * partial results of many rows: as many as keep the device busy. */
void clt_rows_gpu_range(clt_program *program, const clt_rows_gpu *rows);
int64_t clt_rows_gpu_parts(const clt_rows_gpu *rows, const clt_target *target);

#endif
