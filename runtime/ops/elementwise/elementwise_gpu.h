/* The variant of elementwise operators for GPUs: clkernels/elementwise/gpu/elementwise.cl. */
#ifndef CLT_OPS_ELEMENTWISE_ELEMENTWISE_GPU_H
#define CLT_OPS_ELEMENTWISE_ELEMENTWISE_GPU_H

#include "ops/elementwise/elementwise.h"

bool clt_elementwise_gpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* Like clt_elementwise_emit. */
void clt_elementwise_gpu_emit(const clt_node *node, const clt_target *target, clt_program *program,
                              const char *body);

#endif
