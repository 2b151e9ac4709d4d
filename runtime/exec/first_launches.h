/* The kernels of a plan, compiled in advance by helper processes (device/program/first_launch.h).
 */
#ifndef CLT_EXEC_FIRST_LAUNCHES_H
#define CLT_EXEC_FIRST_LAUNCHES_H

#include "exec/merged.h"

/* Compiles the kernels of the plan, and the merged ones, that no run has compiled so far, if there
 * are such processes and the device needs them. Failures are left for the first launch. */
void clt_exec_compile(clt_device *device, const clt_plan *plan, const clt_merged_list *merged);

/* Halves the work-groups of a launch until the device supports them. Portable kernels have powers
 * of two, and work with any size. Kernels that need a fixed size have it in their source, and their
 * variants decline such devices. */
void clt_exec_fit_group(const clt_device *device, size_t *local, int work_dim);

/* Whether two launches have one compiled kernel. */
bool clt_exec_same_kernel(const clt_launch *a, const clt_launch *b);

#endif
