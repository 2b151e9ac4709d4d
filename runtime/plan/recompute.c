#include "base/alloc.h"
#include "base/error.h"
#include "plan/recompute_internal.h"

/* What arithmetic and memory take, for comparing nodes: a processor's orders of magnitude. */
static const double FLOPS_A_SECOND = 4e11, BYTES_A_SECOND = 2e10;

/* Whether the node is the first to write a gradient's place for further micro-batches. */
static bool begins_further(const clt_plan *plan, const clt_node *node, const clt_value *out)
{
    const clt_place *place = plan->further ? &plan->further[out->id] : NULL;
    if (!place || place->kind == CLT_PLACE_NONE || node->op->view)
        return false;
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i] && clt_place_equal(&plan->further[node->in[i]->id], place))
            return false;
    }
    return true;
}

static void read_values(clt_recompute *r, const clt_target *target)
{
    const clt_plan *plan = r->plan;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        for (int j = 0; j < node->n_out; j++) {
            const clt_value *v = node->out[j];
            const int64_t bytes = clt_value_stored(v, plan->options.max_batch, target->lanes) *
                                  clt_dtype_size(v->type.dtype);
            const int64_t padded =
                (bytes + CLT_TENSOR_ALIGN - 1) / CLT_TENSOR_ALIGN * CLT_TENSOR_ALIGN;
            if (begins_further(plan, node, v))
                r->left[i] += padded;
            if (plan->places[v->id].kind != CLT_PLACE_ARENA)
                continue;
            r->root[v->id] = node->op->view ? r->root[node->in[0]->id] : v->id;
            r->bytes[v->id] = padded;
            if (v->output && r->root[v->id] >= 0)
                *(plan->options.early_outputs && !node->backward ? &r->fetched[r->root[v->id]]
                                                                 : &r->lasting[r->root[v->id]]) =
                    true;
        }
    }
    for (int i = 0; i < plan->graph->n_assigns; i++) {
        const int root = r->root[plan->graph->assigns[i].value->id];
        if (root >= 0)
            r->lasting[root] = true;
    }
}

static double node_seconds(const clt_recompute *r, const clt_plan_node *pn,
                           const clt_target *target)
{
    const clt_node *node = pn->node;
    const int64_t n = r->plan->options.max_batch;
    double bytes = 0, flops = (double)clt_type_elements(&node->out[0]->type, n);
    if (node->op->view)
        return 0;
    if (node->op->flops)
        flops = node->op->flops(node, n);
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const clt_value *v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        if (v)
            bytes += (double)clt_value_stored(v, n, target->lanes) *
                     (double)clt_dtype_size(v->type.dtype);
    }
    return flops / FLOPS_A_SECOND + bytes / BYTES_A_SECOND + CLT_LAUNCH_SECONDS;
}

static void read_nodes(clt_recompute *r, const clt_target *target)
{
    const clt_plan *plan = r->plan;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        const clt_node *node = pn->node;
        bool any = false;
        for (int j = 0; j < pn->program.n_scratch; j++)
            r->scratch[i] += clt_extent_at(pn->program.scratch[j], plan->options.max_batch);
        for (int j = 0; j < node->n_out; j++)
            any = any || r->root[node->out[j]->id] >= 0;
        /* No kernel of this device makes collectives. Results lie outside the arena. */
        r->fixed[i] = node->op->collective || !any;
        r->seconds[i] = node_seconds(r, pn, target);
        for (int j = 0; node->backward && j < node->n_in; j++) {
            const int root = node->in[j] ? r->root[node->in[j]->id] : -1;
            const clt_node *from = root < 0 ? NULL : plan->graph->values[root]->producer;
            if (from && !from->backward && !r->fixed[from->id] && !r->lasting[root])
                r->candidate[from->id] = true;
        }
    }
}

/* Allocates the arrays of zeros, or frees them all. */
static clt_status set_arrays(clt_recompute *r, bool make)
{
    const size_t values = (size_t)r->n_values + 1, nodes = (size_t)r->n_nodes + 1;
    const struct {
        void **array;
        size_t count, size;
    } rows[] = {
#define ROW(field, count) {(void **)&r->field, count, sizeof *r->field}
        ROW(root, values),
        ROW(bytes, values),
        ROW(lasting, values),
        ROW(fetched, values),
        ROW(scratch, nodes),
        ROW(left, nodes),
        ROW(seconds, nodes),
        ROW(fixed, nodes),
        ROW(recomputed_values, values),
        ROW(candidate, nodes),
        ROW(recomputed, nodes),
        ROW(gains, nodes),
        ROW(looked, nodes),
        ROW(best, nodes),
        ROW(order, 2 * nodes),
        ROW(stack, nodes),
        ROW(made, nodes),
        ROW(last, 2 * values),
        ROW(block, 2 * values),
        ROW(died, 2 * values),
        ROW(live, 2 * nodes + 2)
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!make)
            clt_free(*rows[i].array);
        else if (!(*rows[i].array = clt_calloc(rows[i].count, rows[i].size)))
            return CLT_OUT_OF_MEMORY;
    }
    return CLT_OK;
}

clt_status clt_recompute_create(const clt_plan *plan, const clt_target *target, clt_recompute **out)
{
    clt_recompute *r = CLT_NEW(clt_recompute);
    CLT_TRY_MEMORY(r);
    r->plan = plan;
    r->n_values = plan->graph->n_values;
    r->n_nodes = plan->n_nodes;
    if (set_arrays(r, true) != CLT_OK) {
        clt_recompute_destroy(r);
        return CLT_OUT_OF_MEMORY;
    }
    for (int i = 0; i < r->n_values; i++)
        r->root[i] = -1;
    read_values(r, target);
    read_nodes(r, target);
    *out = r;
    return CLT_OK;
}

void clt_recompute_destroy(clt_recompute *r)
{
    if (!r)
        return;
    set_arrays(r, false);
    clt_free(r);
}

static void write_values(clt_recompute *r)
{
    for (int i = 0; i < r->n_values; i++) {
        const clt_value *v = r->plan->graph->values[i];
        r->recomputed_values[i] =
            v->producer && !v->producer->backward && clt_recompute_is_copied(r, v);
    }
}

const bool *clt_recompute_least(clt_recompute *r)
{
    r->work = 0;
    if (!clt_recompute_is_large(r))
        clt_recompute_search_least(r);
    if (clt_recompute_is_large(r) || clt_recompute_search_is_long(r))
        clt_recompute_segments(r, 0);
    write_values(r);
    return r->recomputed_values;
}

const bool *clt_recompute_within(clt_recompute *r, int64_t bytes)
{
    r->work = 0;
    bool found = !clt_recompute_is_large(r) && clt_recompute_search_within(r, (double)bytes);
    if (!found && (clt_recompute_is_large(r) || clt_recompute_search_is_long(r)))
        found = clt_recompute_segments(r, bytes);
    if (!found)
        return NULL;
    write_values(r);
    return r->recomputed_values;
}
