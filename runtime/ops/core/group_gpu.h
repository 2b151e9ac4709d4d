/* Sizes of work-groups on GPUs, for kernels that are limited by memory bandwidth. */
#ifndef CLT_OPS_CORE_GROUP_GPU_H
#define CLT_OPS_CORE_GROUP_GPU_H

#include "ops/core/launch.h"

enum { CLT_GPU_GROUP = 256, CLT_GPU_LEAST_GROUP = 64 };

/* For clt_variant.accepts: requires a device other than a CPU, the plain layout, and work-groups of
 * CLT_GPU_GROUP. */
bool clt_gpu_group_accepts(const clt_node *node, const clt_target *target, char *why);

/* The same, and at most 2^30 elements in each operand and result, because kernels count in int. */
bool clt_gpu_elements_accepts(const clt_node *node, const clt_target *target, char *why);

/* Returns the least power of two that is not below `value`, within [least, most]. Both limits are
 * powers of two. */
int clt_gpu_power(int64_t value, int least, int most);

/* Sets the range of the launch begun last: work-groups of CLT_GPU_GROUP for all items, `each` of
 * them for a work-item. */
void clt_range_gpu(clt_program *p, clt_extent items, int64_t each);

/* Returns how many work-groups keep a device busy. */
int64_t clt_gpu_groups(const clt_target *target);

#endif
