#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "ops/collective/transfer.h"
#include "plan/plan.h"

/* Returns the node before which a collective must be complete. `first` is the first node that reads
 * its output or a view of it. Forward also runs alone, so a collective that begins in forward ends
 * in forward. */
static int needed_by(const clt_plan *plan, int node, int first)
{
    const int end = node < plan->n_forward ? plan->n_forward : plan->n_nodes;
    return first < end ? first : end;
}

/* The type of a participant's own part: what it gives, or gets of a sum that is divided. */
static const clt_type *part_of(const clt_node *node)
{
    const bool gives = node->op->collective == CLT_OP_ALL_GATHER;
    return gives ? &node->in[0]->type : &node->out[0]->type;
}

static int peer_of(const clt_node *node)
{
    const bool passes =
        node->op->collective == CLT_OP_SEND || node->op->collective == CLT_OP_RECEIVE;
    return passes ? ((const clt_transfer_attr *)node->attr)->peer : -1;
}

static clt_status list_collectives(clt_plan *plan, const int *first)
{
    int n = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        n += plan->nodes[i].node->op->collective != CLT_OP_KERNELS;
    plan->collectives = clt_calloc((size_t)n + 1, sizeof *plan->collectives);
    CLT_TRY_MEMORY(plan->collectives);
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        char type[CLT_TYPE_TEXT];
        if (!node->op->collective)
            continue;
        clt_plan_collective *c = &plan->collectives[plan->n_collectives++];
        *c = (clt_plan_collective){.kind = node->op->collective,
                                   .axis = (clt_axis) * (const int *)node->attr,
                                   .peer = peer_of(node),
                                   .count = clt_type_coefficient(part_of(node)),
                                   .per_sample = clt_type_has_batch(part_of(node)),
                                   .dtype = node->out[0]->type.dtype,
                                   .node = i,
                                   .needed = node->op->collective == CLT_OP_SEND
                                                 ? plan->n_nodes
                                                 : needed_by(plan, i, first[node->out[0]->id])};
        snprintf(c->label, sizeof c->label, "node %.80s (%s of %.50s)", node->name, node->op->name,
                 clt_type_text(&node->out[0]->type, type));
    }
    for (int k = plan->n_collectives - 1, least = plan->n_nodes; k >= 0; k--) {
        clt_plan_collective *c = &plan->collectives[k];
        if (c->kind == CLT_OP_SEND)
            continue;
        c->needed = c->needed < least ? c->needed : least;
        least = c->needed;
    }
    return CLT_OK;
}

clt_status clt_plan_collectives(clt_plan *plan)
{
    int *first = clt_calloc((size_t)plan->graph->n_values + 1, sizeof *first);
    CLT_TRY_MEMORY(first);
    clt_graph_first_readers(plan->graph, first);
    const clt_status status = list_collectives(plan, first);
    clt_free(first);
    return status;
}

/* Returns the elements of the whole tensor: what all places give or get together. */
static int64_t elements_of(const clt_node *node, int64_t samples)
{
    const int64_t in = node->n_in ? clt_type_elements(&node->in[0]->type, samples) : 0;
    const int64_t out = clt_type_elements(&node->out[0]->type, samples);
    return in > out ? in : out;
}

int64_t clt_plan_payload(const clt_plan *plan, clt_axis axis, int64_t samples, int *count)
{
    int64_t bytes = 0;
    int n = 0;
    for (int k = 0; k < plan->n_collectives; k++) {
        const clt_node *node = plan->nodes[plan->collectives[k].node].node;
        if (plan->collectives[k].axis != axis)
            continue;
        n++;
        bytes += elements_of(node, samples) * clt_dtype_size(node->out[0]->type.dtype);
    }
    if (count)
        *count = n;
    return bytes;
}

/* The host's actions after a node. */
typedef struct stop {
    bool meets; /* a collective begins or ends */
    int begins; /* the collective that begins; -1: none */
    int ready;  /* number of the first ready bucket plus one; 0: none */
} stop;

/* Finds for each bucket the last node that writes or reads a gradient of this bucket or an earlier
 * one; -1 if there is none. All devices reduce buckets in bucket order, even if another kind of
 * device runs its nodes in another order. Parameters are ordered as the backward pass reaches them.
 * A reduction overwrites the device's own gradients, which other nodes may still read: the gradient
 * of batch norm reads the gradients of its weight and bias. */
static void find_last_users(const clt_plan *plan, int *last)
{
    const int n = plan->buckets.n_buckets;
    for (int b = 0; b < n; b++)
        last[b] = -1;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        for (int j = 0; j < node->n_in + node->n_out; j++) {
            const clt_value *v = j < node->n_in ? node->in[j] : node->out[j - node->n_in];
            if (v && clt_plan_in_gradients(plan, v))
                last[plan->places[v->id].index] = i;
        }
    }
    for (int b = 1; b < n; b++)
        if (last[b] < last[b - 1])
            last[b] = last[b - 1];
}

/* Finds the node after which each bucket is ready: its last user. Buckets without a user are ready
 * after the first node of backward. Their gradient is zero on every device, yet all devices take
 * part. `next` gets for each bucket the next bucket that is ready after the same node, plus one. In
 * a graph of parameters alone, buckets are ready in their order. */
static void find_ready(const clt_plan *plan, stop *stops, int *next)
{
    const int none = plan->n_forward < plan->n_nodes ? plan->n_forward : plan->n_nodes - 1;
    find_last_users(plan, next);
    for (int b = plan->buckets.n_buckets - 1; b >= 0; b--) {
        const int node = next[b] < 0 ? none : next[b];
        if (plan->buckets.buckets[b].state || node < 0)
            continue;
        next[b] = stops[node].ready;
        stops[node].ready = b + 1;
    }
}

static void find_stops(const clt_plan *plan, stop *stops, int *next)
{
    for (int i = 0; i < plan->n_nodes; i++)
        stops[i].begins = -1;
    for (int k = 0; k < plan->n_collectives; k++) {
        const clt_plan_collective *c = &plan->collectives[k];
        stops[c->node].meets = true;
        stops[c->needed - 1].meets = stops[c->needed - 1].meets || c->kind != CLT_OP_SEND;
        stops[c->node].begins = k;
    }
    if (plan->options.mode == CLT_PLAN_TRAIN)
        find_ready(plan, stops, next);
}

/* Cuts the schedule into segments. Node ids are positions in plan->nodes. */
static void cut(clt_plan *plan, const stop *stops, const int *next)
{
    clt_segment segment = {0};
    for (int i = 0; i < plan->n_nodes; i++) {
        for (int b = stops[i].ready; b; b = next[b - 1])
            plan->ready[plan->n_ready++] = b - 1;
        segment.end_ready = plan->n_ready;
        segment.end = i + 1;
        segment.begins = stops[i].begins;
        /* Cut after forward, so that it can run alone. */
        if (stops[i].meets || segment.end_ready > segment.first_ready || i + 1 == plan->n_forward ||
            i + 1 == plan->n_nodes) {
            plan->segments[plan->n_segments++] = segment;
            segment = (clt_segment){i + 1, i + 1, -1, plan->n_ready, plan->n_ready};
        }
    }
    for (int b = 0; !plan->n_nodes && b < plan->buckets.n_buckets; b++)
        if (plan->options.mode == CLT_PLAN_TRAIN && !plan->buckets.buckets[b].state)
            plan->ready[plan->n_ready++] = b;
}

clt_status clt_plan_segments(clt_plan *plan)
{
    const size_t n_buckets = (size_t)plan->buckets.n_buckets;
    const size_t room = n_buckets + 2 * (size_t)plan->n_collectives + 2;
    stop *stops = clt_calloc((size_t)plan->n_nodes + 1, sizeof *stops);
    int *next = clt_calloc(n_buckets + 1, sizeof *next);
    plan->segments = clt_calloc(room, sizeof *plan->segments);
    plan->ready = clt_calloc(n_buckets + 1, sizeof *plan->ready);
    const bool memory = stops && next && plan->segments && plan->ready;
    if (memory) {
        find_stops(plan, stops, next);
        cut(plan, stops, next);
    }
    CLT_FREE(stops, next);
    return memory ? CLT_OK : CLT_OUT_OF_MEMORY;
}
