/* Functions shared by the operators that use clkernels/reduce/cpu/rows.cl. */
#ifndef CLT_OPS_REDUCE_ROWS_CPU_H
#define CLT_OPS_REDUCE_ROWS_CPU_H

#include "ops/core/launch.h"

/* Requires a CPU, the plain layout, and an axis of operand 0 that is contiguous. */
bool clt_rows_cpu_accepts(const clt_node *node, const clt_target *target, int axis, char *why);

void clt_rows_cpu_begin(clt_program *program, const clt_target *target, const char *kernel);

/* Returns the rows of a work-item: about 16 Ki elements, or fewer if compute units would otherwise
 * have no work. */
int64_t clt_rows_cpu_share(const clt_target *target, clt_extent rows, int64_t columns);

/* Adds the kernel's last argument, the rows of a work-item, and sets its range. */
void clt_rows_cpu_range(clt_program *program, const clt_target *target, clt_extent rows,
                        int64_t columns);

#endif
