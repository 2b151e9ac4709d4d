/* The variant of elementwise operators for CPUs: clkernels/elementwise/cpu/elementwise.cl. */
#ifndef CLT_OPS_ELEMENTWISE_ELEMENTWISE_CPU_H
#define CLT_OPS_ELEMENTWISE_ELEMENTWISE_CPU_H

#include "ops/elementwise/elementwise.h"

/* Requires a CPU and a last dimension of the merged iteration that is at least a vector long. */
bool clt_elementwise_cpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* Like clt_elementwise_emit. */
void clt_elementwise_cpu_emit(const clt_node *node, const clt_target *target, clt_program *program,
                              const char *body);

#endif
