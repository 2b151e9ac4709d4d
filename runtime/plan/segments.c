#include "base/alloc.h"
#include "base/error.h"
#include "plan/plan.h"

/* The last node that writes into this bucket of gradients or one before it; -1 if none does.
 * Buckets are reduced in their own order on every device, also where another kind of device has its
 * nodes in another: parameters lie in the order in which backward comes to them. */
static int last_writer(const clt_plan *plan, int bucket)
{
    int last = -1;
    for (int s = 0; s < plan->buckets.buckets[bucket].end; s++) {
        if (plan->buckets.slots[s].state)
            continue;
        const clt_value *gradient = plan->gradients[s];
        if (gradient && gradient->producer->id > last)
            last = gradient->producer->id;
    }
    return last;
}

/* Node ids are positions in plan->nodes. Buckets without a writer count as ready at the start of
 * backward: their gradient is zero on every device, yet all take part. */
clt_status clt_plan_segments(clt_plan *plan)
{
    const int n_buckets = plan->buckets.n_buckets;
    plan->segments = clt_calloc((size_t)n_buckets + 2, sizeof *plan->segments);
    plan->ready = clt_calloc((size_t)n_buckets + 1, sizeof *plan->ready);
    if (!plan->segments || !plan->ready)
        return CLT_OUT_OF_MEMORY;
    clt_segment segment = {0};
    for (int i = 0; i < plan->n_nodes; i++) {
        for (int b = 0; b < n_buckets; b++) {
            if (plan->options.mode != CLT_PLAN_TRAIN || plan->buckets.buckets[b].state)
                continue;
            const int last = last_writer(plan, b);
            if (last == i || (last < 0 && i + 1 == plan->n_forward))
                plan->ready[plan->n_ready++] = b;
        }
        segment.end_ready = plan->n_ready;
        segment.end = i + 1;
        /* Forward is a segment of its own, so that it can run by itself. */
        if (segment.end_ready > segment.first_ready || i + 1 == plan->n_forward ||
            i + 1 == plan->n_nodes) {
            plan->segments[plan->n_segments++] = segment;
            segment = (clt_segment){i + 1, i + 1, plan->n_ready, plan->n_ready};
        }
    }
    return CLT_OK;
}
