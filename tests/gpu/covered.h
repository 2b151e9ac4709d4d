/*
 * Checks that the plans of launches.c leave out no variant that a GPU may run. A variant must be in
 * a plan for the GPU, or accept a node of the same graphs on a CPU and decline it on the GPU, or
 * need a feature that the vendor's drivers do not report.
 */
#ifndef TESTS_GPU_COVERED_H
#define TESTS_GPU_COVERED_H

#include "plan/plan.h"

/* Says that the plan's nodes and variants are compiled. */
void covered_by(const clt_plan *plan);

/* Finds the first variant of a node of this plan that was in no plan, and that accepts when it is
 * asked for. Writes it as OP=NAME to `asked`. Returns false if there is none. A variant is found
 * only once. */
bool covered_find(const clt_plan *plan, char *asked, size_t room);

/* Asks the nodes of a CPU's plan of the same graph for variants that the GPU's plans do not
 * have. */
void covered_on_cpu(const clt_plan *plan, const clt_caps *gpu);

/* Prints on stderr the variants that are not covered, and those that need a feature that `caps`
 * lacks. Returns the number of variants that are not covered. */
int covered_report(const clt_caps *caps);

#endif
