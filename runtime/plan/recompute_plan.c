/* Makes a plan in which the backward pass recomputes values, from a plan that keeps them. The new
 * plan is judged by its real memory layout. */
#include "base/alloc.h"
#include "base/error.h"
#include "passes/passes.h"
#include "plan/recompute.h"

/* Makes a plan from the plain plan's graph with copies. */
static clt_status make(const clt_plan *plain, const clt_target *target, const bool *recomputed,
                       clt_plan **out)
{
    const int n_slots = plain->buckets.n_slots;
    clt_plan *plan = CLT_NEW(clt_plan);
    CLT_TRY_MEMORY(plan);
    plan->options = plain->options;
    plan->caps = plain->caps;
    plan->gradients = clt_calloc((size_t)n_slots + 1, sizeof *plan->gradients);
    clt_status status = plan->gradients ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, clt_graph_copy(plain->graph, &plan->graph));
    CLT_NEXT(status, clt_buckets_copy(&plain->buckets, &plan->buckets));
    for (int s = 0; status == CLT_OK && s < n_slots; s++)
        if (plain->gradients[s])
            plan->gradients[s] = plan->graph->values[plain->gradients[s]->id];
    CLT_NEXT(status, clt_pass_recompute(plan->graph, recomputed));
    CLT_NEXT(status, clt_graph_clean(plan->graph, plan->gradients, n_slots));
    CLT_NEXT(status, clt_plan_lay_out(plan, target));
    if (status != CLT_OK) {
        clt_plan_destroy(plan);
        return status;
    }
    plan->plain_bytes = clt_plan_arena_bytes(plain);
    *out = plan;
    return CLT_OK;
}

/* Makes a plan within the limit. The bytes alive at one node may not fit in an arena of the same
 * size, so the target is lowered if the plan is too large. *out NULL: not found. */
static clt_status make_within(const clt_plan *plain, const clt_target *target, clt_recompute *r,
                              clt_plan **out)
{
    enum { TRIES = 4 };
    const int64_t limit = plain->options.arena_limit;
    int64_t aim = limit;
    for (int i = 0; i < TRIES && aim > 0; i++) {
        clt_plan *plan;
        const bool *recomputed = clt_recompute_within(r, aim);
        if (!recomputed)
            return CLT_OK;
        CLT_TRY(make(plain, target, recomputed, &plan));
        const int64_t beyond = clt_plan_arena_bytes(plan) - limit;
        if (beyond <= 0) {
            *out = plan;
            return CLT_OK;
        }
        clt_plan_destroy(plan);
        aim -= beyond > limit / 256 ? beyond : limit / 256;
    }
    return CLT_OK;
}

static clt_status choose(const clt_plan *plain, const clt_target *target, clt_recompute *r,
                         clt_plan **out)
{
    const int64_t limit = plain->options.arena_limit, plain_bytes = clt_plan_arena_bytes(plain);
    clt_plan *plan = NULL;
    if (limit)
        CLT_TRY(make_within(plain, target, r, &plan));
    if (!plan)
        CLT_TRY(make(plain, target, clt_recompute_least(r), &plan));
    const int64_t bytes = clt_plan_arena_bytes(plan);
    if (limit && bytes > limit) {
        clt_plan_destroy(plan);
        return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                        "the intermediates of a batch of %lld need at least %.1f MiB, also where "
                        "backward recomputes them; there are %.1f MiB for them",
                        (long long)plain->options.max_batch,
                        (double)(bytes < plain_bytes ? bytes : plain_bytes) / 1048576,
                        (double)limit / 1048576);
    }
    /* `separate` is for checking kernels: there, use the copies even if memory grows. */
    if (bytes < plain_bytes || plain->options.separate)
        *out = plan;
    else
        clt_plan_destroy(plan);
    return CLT_OK;
}

clt_status clt_plan_recompute(clt_plan **plan, const clt_target *target)
{
    const clt_plan *plain = *plan;
    const int64_t limit = plain->options.arena_limit;
    clt_plan *better = NULL;
    clt_recompute *r;
    if (!limit && !plain->options.recompute)
        return CLT_OK;
    if (limit && clt_plan_arena_bytes(plain) <= limit)
        return CLT_OK;
    CLT_TRY(clt_recompute_create(plain, target, &r));
    const clt_status status = choose(plain, target, r, &better);
    clt_recompute_destroy(r);
    if (better) {
        better->partition = (*plan)->partition;
        (*plan)->partition = (clt_partition_report){0};
        clt_plan_destroy(*plan);
        *plan = better;
    }
    return status;
}
