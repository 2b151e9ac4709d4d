#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "plan/plan.h"

/* For each bucket the last node that writes or reads a gradient of it or of one before it; -1 if
 * none does. Buckets are reduced in their own order on every device, also where another kind of
 * device has its nodes in another: parameters lie in the order in which backward comes to them. A
 * reduction overwrites the device's own gradients, which other nodes may still read: the gradient
 * of batch norm reads those of its weight and bias. */
static void find_last_users(const clt_plan *plan, int *last)
{
    const int n = plan->buckets.n_buckets;
    for (int b = 0; b < n; b++)
        last[b] = -1;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        for (int j = 0; j < node->n_in + node->n_out; j++) {
            const clt_value *v = j < node->n_in ? node->in[j] : node->out[j - node->n_in];
            if (v && plan->places[v->id].kind == CLT_PLACE_GRADIENT)
                last[plan->places[v->id].index] = i;
        }
    }
    for (int b = 1; b < n; b++)
        if (last[b] < last[b - 1])
            last[b] = last[b - 1];
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

/* Buckets that no node writes count as ready at the start of backward: their gradient is zero on
 * every device, yet all take part. */
static void add_ready(clt_plan *plan, const int *last, int node)
{
    for (int b = 0; b < plan->buckets.n_buckets; b++) {
        if (plan->options.mode != CLT_PLAN_TRAIN || plan->buckets.buckets[b].state)
            continue;
        if (last[b] == node || (last[b] < 0 && node + 1 == plan->n_forward))
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
    int *last = clt_calloc((size_t)plan->buckets.n_buckets + 1, sizeof *last);
    if (!plan->segments || !plan->ready || !last) {
        clt_free(last);
        return CLT_OUT_OF_MEMORY;
    }
    find_last_users(plan, last);
    clt_segment segment = {0};
    for (int i = 0; i < plan->n_nodes; i++) {
        add_ready(plan, last, i);
        segment.end_ready = plan->n_ready;
        segment.end = i + 1;
        /* Forward is a segment of its own, so that it can run by itself. */
        if (meets(plan, i, &segment.begins) || segment.end_ready > segment.first_ready ||
            i + 1 == plan->n_forward || i + 1 == plan->n_nodes) {
            plan->segments[plan->n_segments++] = segment;
            segment = (clt_segment){i + 1, i + 1, -1, plan->n_ready, plan->n_ready};
        }
    }
    clt_free(last);
    return CLT_OK;
}
