/* Chooses what backward computes again, from a plan that keeps everything. */
#ifndef CLT_PLAN_RECOMPUTE_H
#define CLT_PLAN_RECOMPUTE_H

#include "plan/plan.h"

typedef struct clt_recompute clt_recompute;

/* `plan` has its nodes, variants and places; it is borrowed, and so must stay until destroyed. */
clt_status clt_recompute_create(const clt_plan *plan, const clt_target *target,
                                clt_recompute **recompute);

/* By value id, for clt_pass_recompute: the least memory that was found. Belongs to `recompute`. */
const bool *clt_recompute_least(clt_recompute *recompute);

/* Likewise: as little as found so that not more than `bytes` are alive at any node; NULL: not
 * found. */
const bool *clt_recompute_within(clt_recompute *recompute, int64_t bytes);

/* Takes NULL. */
void clt_recompute_destroy(clt_recompute *recompute);

#endif
