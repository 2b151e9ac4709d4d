/* What a choice costs: the schedule with its copies, the bytes alive at each place of the schedule,
 * and the seconds of the copies. */
#include <string.h>

#include "plan/recompute_internal.h"

bool clt_recompute_is_root(const clt_recompute *r, const clt_value *value)
{
    return r->root[value->id] == value->id;
}

bool clt_recompute_is_copied(const clt_recompute *r, const clt_value *value)
{
    const int root = r->root[value->id];
    if (root < 0 || r->lasting[root])
        return false;
    const clt_node *producer = r->plan->graph->values[root]->producer;
    return !producer->backward && r->recomputed[producer->id];
}

/* Adds the copies that the node needs to the schedule, and the copies that these need. The order is
 * that of clt_graph_clean: just before the first node that reads them. Chains may be as long as the
 * graph, so this uses its own stack. */
static void schedule_operands(clt_recompute *r, int node)
{
    int depth = 0;
    r->stack[depth++] = (clt_recompute_visit){node, 0};
    while (depth) {
        clt_recompute_visit *top = &r->stack[depth - 1];
        const clt_node *at = r->plan->nodes[top->node].node;
        if (top->next == at->n_in) {
            if (depth-- > 1)
                r->order[r->n_order++] = (clt_recompute_item){top->node, true};
            continue;
        }
        const clt_value *in = at->in[top->next++];
        const clt_node *from = in ? in->producer : NULL;
        if (!from || from->backward || r->made[from->id] || !clt_recompute_is_copied(r, in))
            continue;
        r->made[from->id] = true;
        r->stack[depth++] = (clt_recompute_visit){from->id, 0};
    }
}

static void schedule(clt_recompute *r)
{
    memset(r->made, 0, (size_t)r->n_nodes * sizeof *r->made);
    r->n_order = 0;
    for (int i = 0; i < r->n_nodes; i++) {
        const clt_node *node = r->plan->nodes[i].node;
        if (node->backward)
            schedule_operands(r, i);
        r->order[r->n_order++] = (clt_recompute_item){i, false};
    }
}

/* Returns the instance of the value that `from` reads or writes; -1 if the value is not in the
 * arena. */
static int instance(const clt_recompute *r, clt_recompute_item from, const clt_value *value)
{
    const int root = r->root[value->id];
    if (root < 0)
        return -1;
    const clt_node *node = r->plan->nodes[from.node].node;
    const bool late = from.copy || node->backward;
    return late && clt_recompute_is_copied(r, value) ? r->n_values + root : root;
}

static void find_last_uses(clt_recompute *r)
{
    for (int k = 0; k < r->n_order; k++) {
        const clt_recompute_item it = r->order[k];
        const clt_node *node = r->plan->nodes[it.node].node;
        for (int j = 0; j < node->n_in + node->n_out; j++) {
            const clt_value *v = j < node->n_in ? node->in[j] : node->out[j - node->n_in];
            const int at = v ? instance(r, it, v) : -1;
            if (at >= 0)
                r->last[at] = k;
            if (at >= 0 && at < r->n_values && r->lasting[at])
                r->last[at] = r->n_order;
            else if (at >= 0 && at < r->n_values && r->fetched[at] && k < r->plan->n_forward)
                r->last[at] = r->plan->n_forward - 1;
        }
    }
}

/* Returns the block that output 0 overwrites, by the rules of plan/memory.c; -1 if there is
 * none. */
static int taken_over(const clt_recompute *r, clt_recompute_item it, int place)
{
    const clt_node *node = r->plan->nodes[it.node].node;
    const clt_value *out = node->out[0];
    for (int i = 0; i < node->n_in && i < 32; i++) {
        const clt_value *in = node->in[i];
        const int at = in && node->op->in_place & 1u << i ? instance(r, it, in) : -1;
        if (at >= 0 && r->died[r->block[at]] == place && in->layout == out->layout &&
            r->bytes[r->root[in->id]] == r->bytes[out->id])
            return r->block[at];
    }
    return -1;
}

static void add_outputs(clt_recompute *r, int place)
{
    const clt_recompute_item it = r->order[place];
    const clt_node *node = r->plan->nodes[it.node].node;
    r->live[place] += r->scratch[it.node];
    r->live[place + 1] -= r->scratch[it.node];
    r->live[place] += it.copy ? 0 : r->left[it.node];
    for (int j = 0; j < node->n_out; j++) {
        if (!clt_recompute_is_root(r, node->out[j]))
            continue;
        const int at = it.copy ? r->n_values + node->out[j]->id : node->out[j]->id;
        const int from = j == 0 ? taken_over(r, it, place) : -1;
        const int64_t bytes = r->bytes[node->out[j]->id];
        const int dies = r->last[at];
        r->block[at] = from >= 0 ? from : at;
        if (from >= 0)
            r->live[r->died[from] + 1] += bytes;
        else
            r->live[place] += bytes;
        r->live[dies + 1] -= bytes;
        r->died[r->block[at]] = dies;
    }
}

clt_recompute_cost clt_recompute_evaluate(clt_recompute *r, double target)
{
    clt_recompute_cost o = {0};
    schedule(r);
    find_last_uses(r);
    memset(r->live, 0, ((size_t)r->n_order + 2) * sizeof *r->live);
    for (int k = 0; k < r->n_order; k++) {
        add_outputs(r, k);
        if (r->order[k].copy)
            o.seconds += r->seconds[r->order[k].node];
    }
    r->work += r->n_order;
    int64_t alive = 0;
    for (int k = 0; k < r->n_order; k++) {
        alive += r->live[k];
        o.peak = alive > o.peak ? alive : o.peak;
        o.excess += (double)alive > target ? (double)alive - target : 0;
    }
    return o;
}
