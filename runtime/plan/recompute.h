/* Chooses the values that the backward pass recomputes, based on a plan that keeps everything. */
#ifndef CLT_PLAN_RECOMPUTE_H
#define CLT_PLAN_RECOMPUTE_H

#include "plan/plan.h"

typedef struct clt_recompute clt_recompute;

/* Prepares a choice. `plan` must have its nodes, variants and places. It is borrowed and must live
 * until clt_recompute_destroy. */
clt_status clt_recompute_create(const clt_plan *plan, const clt_target *target,
                                clt_recompute **recompute);

/* Chooses for the least memory that is found. The result is by value id, for clt_pass_recompute,
 * and belongs to `recompute`. */
const bool *clt_recompute_least(clt_recompute *recompute);

/* Chooses as little recomputation as found so that at most `bytes` are alive at any node. NULL: not
 * found. */
const bool *clt_recompute_within(clt_recompute *recompute, int64_t bytes);

/* Frees the choice. NULL is allowed. */
void clt_recompute_destroy(clt_recompute *recompute);

#endif
