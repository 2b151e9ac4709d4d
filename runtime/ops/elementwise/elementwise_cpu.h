/* The variant of element by element operators for CPUs: clkernels/elementwise/cpu/elementwise.cl.
 */
#ifndef CLT_OPS_ELEMENTWISE_ELEMENTWISE_CPU_H
#define CLT_OPS_ELEMENTWISE_ELEMENTWISE_CPU_H

#include "ops/elementwise/elementwise.h"

/* A CPU, and a line of the merged walk's last dimension that is a vector long at least. */
bool clt_elementwise_cpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* As clt_elementwise_emit. */
void clt_elementwise_cpu_emit(const clt_node *node, const clt_target *target, clt_program *program,
                              const char *body);

#endif
