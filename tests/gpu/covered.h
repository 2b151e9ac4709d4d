/*
 * Which variants of which operators the plans of launches.c have, so that none that a GPU may run
 * is left out: a variant must be in a plan for the GPU, or accept a node of the same graphs on a
 * CPU and be declined on the GPU, or need what the vendor's drivers do not report.
 */
#ifndef TESTS_GPU_COVERED_H
#define TESTS_GPU_COVERED_H

#include "plan/plan.h"

/* The plan's nodes and variants are compiled. */
void covered_by(const clt_plan *plan);

/* The first variant of a node of this plan that was in no plan, and accepts when it is asked for,
 * as OP=NAME in `asked`; false: there is none. A variant that was found once is not found again. */
bool covered_find(const clt_plan *plan, char *asked, size_t room);

/* What the nodes of a CPU's plan of the same graph say of the variants that the GPU's do not have.
 */
void covered_on_cpu(const clt_plan *plan, const clt_caps *gpu);

/* Says on stderr what is not covered, and what needs something that `caps` lacks; how many are
 * not covered. */
int covered_report(const clt_caps *caps);

#endif
