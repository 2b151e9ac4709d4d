#include <stdio.h>

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

/* The first node that reads the value, or takes a view of it. Forward also runs by itself, so that
 * what begins in it ends in it. */
static int first_user(const clt_plan *plan, int node)
{
    const clt_value *value = plan->nodes[node].node->out[0];
    const int end = node < plan->n_forward ? plan->n_forward : plan->n_nodes;
    for (int i = node + 1; i < end; i++)
        for (int j = 0; j < plan->nodes[i].node->n_in; j++)
            if (plan->nodes[i].node->in[j] == value)
                return i;
    return end;
}

clt_status clt_plan_collectives(clt_plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        n += plan->nodes[i].node->op->collective;
    plan->collectives = clt_calloc((size_t)n + 1, sizeof *plan->collectives);
    if (!plan->collectives)
        return CLT_OUT_OF_MEMORY;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        char type[CLT_TYPE_TEXT];
        if (!node->op->collective)
            continue;
        clt_plan_collective *c = &plan->collectives[plan->n_collectives++];
        *c = (clt_plan_collective){.node = i, .needed = first_user(plan, i)};
        snprintf(c->label, sizeof c->label, "node %.80s (%s of %.50s)", node->name, node->op->name,
                 clt_type_text(&node->out[0]->type, type));
    }
    for (int k = plan->n_collectives - 2; k >= 0; k--)
        if (plan->collectives[k].needed > plan->collectives[k + 1].needed)
            plan->collectives[k].needed = plan->collectives[k + 1].needed;
    return CLT_OK;
}

/* Buckets without a writer count as ready at the start of backward: their gradient is zero on every
 * device, yet all take part. */
static void add_ready(clt_plan *plan, int node)
{
    for (int b = 0; b < plan->buckets.n_buckets; b++) {
        if (plan->options.mode != CLT_PLAN_TRAIN || plan->buckets.buckets[b].state)
            continue;
        const int last = last_writer(plan, b);
        if (last == node || (last < 0 && node + 1 == plan->n_forward))
            plan->ready[plan->n_ready++] = b;
    }
}

/* Whether a collective begins or ends behind the node; which begins. */
static bool meets(const clt_plan *plan, int node, int *begins)
{
    bool any = false;
    *begins = -1;
    for (int k = 0; k < plan->n_collectives; k++) {
        if (plan->collectives[k].node == node)
            *begins = k;
        any = any || plan->collectives[k].node == node || plan->collectives[k].needed == node + 1;
    }
    return any;
}

/* Node ids are positions in plan->nodes. */
clt_status clt_plan_segments(clt_plan *plan)
{
    const size_t room = (size_t)plan->buckets.n_buckets + 2 * (size_t)plan->n_collectives + 2;
    plan->segments = clt_calloc(room, sizeof *plan->segments);
    plan->ready = clt_calloc((size_t)plan->buckets.n_buckets + 1, sizeof *plan->ready);
    if (!plan->segments || !plan->ready)
        return CLT_OUT_OF_MEMORY;
    clt_segment segment = {0};
    for (int i = 0; i < plan->n_nodes; i++) {
        add_ready(plan, i);
        segment.end_ready = plan->n_ready;
        segment.end = i + 1;
        /* Forward is a segment of its own, so that it can run by itself. */
        if (meets(plan, i, &segment.begins) || segment.end_ready > segment.first_ready ||
            i + 1 == plan->n_forward || i + 1 == plan->n_nodes) {
            plan->segments[plan->n_segments++] = segment;
            segment = (clt_segment){i + 1, i + 1, -1, plan->n_ready, plan->n_ready};
        }
    }
    return CLT_OK;
}
