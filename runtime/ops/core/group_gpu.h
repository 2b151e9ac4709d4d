/* Sizes of work-groups on GPUs, for kernels that are bound by memory. */
#ifndef CLT_OPS_CORE_GROUP_GPU_H
#define CLT_OPS_CORE_GROUP_GPU_H

#include "ops/core/launch.h"

enum { CLT_GPU_GROUP = 256, CLT_GPU_LEAST_GROUP = 64 };

/* For clt_variant.accepts: no CPU, plain values, and groups of CLT_GPU_GROUP. */
bool clt_gpu_group_accepts(const clt_node *node, const clt_target *target, char *why);

/* The least power of two that is not below `value`, within [least, most], which are such powers. */
int clt_gpu_power(int64_t value, int least, int most);

/* Work-groups that keep a device busy. */
int64_t clt_gpu_groups(const clt_target *target);

#endif
