/* Measures the sets of parameters for CLBlast's kernels on a device. */
#ifndef CLT_TUNE_BLAS_H
#define CLT_TUNE_BLAS_H

#include "tune/lab.h"
#include "tune/tune.h"

/*
 * Measures sets of CLBlast's parameters at products of the graph's plan that may use CLBlast, for
 * the kernels whose sets `record` lacks. Kernels over packed operands are measured at the largest
 * product, direct kernels at the largest product that is not large. The best sets become entries of
 * `record`, and counts are added to `report`. Ends at `deadline` (CLOCK_MONOTONIC) or when
 * limits->stop says so; the next run continues. A set that CLBlast refuses, or that gives a wrong
 * product, is rejected and logged. Replaces the lab's plan. Errors: those of plans and devices.
 */
clt_status clt_tune_blas(clt_lab *lab, const clt_graph *graph, const clt_plan_options *options,
                         const clt_tune_limits *limits, double deadline, clt_tuning_record *record,
                         clt_tune_report *report);

/* Adds the sets in `record` to `to`, which must have room for them. */
void clt_tune_blas_copy(const clt_tuning_record *record, clt_tuning_record *to);

#endif
