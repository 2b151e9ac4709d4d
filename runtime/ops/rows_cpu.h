/* What the operators that use clkernels/cpu/rows.cl share. */
#ifndef CLT_OPS_ROWS_CPU_H
#define CLT_OPS_ROWS_CPU_H

#include "ops/launch.h"

/* A CPU, plain values, and an axis of operand 0 that is contiguous and at least a vector long. */
bool clt_rows_cpu_accepts(const clt_node *node, const clt_target *target, int axis, char *why);

void clt_rows_cpu_begin(clt_program *program, const clt_target *target, const char *kernel);

/* The kernel's last argument, rows of a work-item, and its range. */
void clt_rows_cpu_range(clt_program *program, const clt_target *target, clt_extent rows,
                        int64_t columns);

#endif
