/* The sets of parameters that CLBlast's kernels run with on a device. */
#ifndef CLT_TUNE_BLAS_H
#define CLT_TUNE_BLAS_H

#include "tune/lab.h"
#include "tune/tune.h"

/*
 * Measures the sets at the products of the graph's plan that take CLBlast, for the kernels whose
 * sets `record` lacks: those over packed operands at the largest product, the direct ones at the
 * largest that is not large. The best become entries of `record`, and counts are added to `report`.
 * Ends at `deadline` (CLOCK_MONOTONIC), to be gone on with by the next run, or where limits->stop
 * says so. A set that CLBlast refuses, or that makes a product wrong, is rejected and logged. The
 * lab's plan is another one afterwards. Errors: those of plans and devices.
 */
clt_status clt_tune_blas(clt_lab *lab, const clt_graph *graph, const clt_plan_options *options,
                         const clt_tune_limits *limits, double deadline, clt_tuning_record *record,
                         clt_tune_report *report);

/* Adds to `to`, which has room, the sets that `record` has. */
void clt_tune_blas_copy(const clt_tuning_record *record, clt_tuning_record *to);

#endif
