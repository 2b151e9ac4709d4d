/* What the operators that use clkernels/reduce/cpu/rows.cl share. */
#ifndef CLT_OPS_REDUCE_ROWS_CPU_H
#define CLT_OPS_REDUCE_ROWS_CPU_H

#include "ops/core/launch.h"

/* A CPU, plain values, and an axis of operand 0 that is contiguous. */
bool clt_rows_cpu_accepts(const clt_node *node, const clt_target *target, int axis, char *why);

void clt_rows_cpu_begin(clt_program *program, const clt_target *target, const char *kernel);

/* Rows of a work-item: about 16 Ki elements, but fewer where that leaves compute units without
 * work. */
int64_t clt_rows_cpu_share(const clt_target *target, clt_extent rows, int64_t columns);

/* The kernel's last argument, rows of a work-item, and its range. */
void clt_rows_cpu_range(clt_program *program, const clt_target *target, clt_extent rows,
                        int64_t columns);

#endif
