/*
 * Chooses which values are batch-blocked. Nodes that gain from the layout (WANT) get their operands
 * converted. Nodes that accept it (FOLLOW) use it if an operand has it. All others get plain
 * operands. Conversions are ordinary nodes, one for each value. If a batch would leave most vector
 * lanes empty, no node gains and all values stay plain. So no network pays for conversions in its
 * middle.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "ops/shape/convert_layout.h"
#include "passes/passes.h"

/* More than one in so many lanes must hold an image. Measured with 16 lanes on steps of LeNet,
 * plain against batch-blocked: 0.45 of the time for one image, 0.66 for two, about the same for
 * four, and 1.4 times for eight. */
enum { LEAST_FILLED = 4 };

typedef struct layout_pass {
    clt_graph *graph;
    const clt_target *target;
    int n_before;      /* number of values before the pass */
    clt_value **other; /* by id: the value in the other layout; NULL: not made yet */
    bool *fixed;       /* by id: must stay plain */
} layout_pass;

static clt_value *converted(layout_pass *p, clt_value *value, clt_layout layout)
{
    if (!value || value->layout == layout)
        return value;
    clt_value **slot = value->id < p->n_before ? &p->other[value->id] : NULL;
    if (slot && *slot)
        return *slot;
    clt_value *twin = clt_layout_convert(value, layout);
    if (twin)
        twin->producer->backward =
            value->producer ? value->producer->backward : value->output_gradient;
    if (slot)
        *slot = twin;
    return twin;
}

static bool may_block_outputs(const layout_pass *p, const clt_node *node)
{
    for (int i = 0; i < node->n_out; i++) {
        const clt_value *out = node->out[i];
        if (clt_value_leads_with_batch(out) && p->fixed[out->id])
            return false;
    }
    return true;
}

/* Whether a block fits: kernels count its elements, those of as many images as there are lanes, in
 * an int. */
static bool fits_blocks(const layout_pass *p, const clt_value *value)
{
    return !value || !clt_value_leads_with_batch(value) ||
           clt_type_elements(&value->type, 1) <= INT32_MAX / p->target->lanes;
}

/* Whether most lanes would be empty. Values would take that much more memory, too. */
static bool leaves_lanes_empty(const clt_target *target)
{
    return !target->batch_blocked_always && LEAST_FILLED * target->max_batch <= target->lanes;
}

static bool wants_batch_blocked(const layout_pass *p, const clt_node *node)
{
    int answer = node->op->batch_blocked ? node->op->batch_blocked(node) : CLT_BATCH_BLOCKED_NO;
    if (answer == CLT_BATCH_BLOCKED_NO || !may_block_outputs(p, node))
        return false;
    for (int i = 0; i < node->n_in; i++)
        if (!fits_blocks(p, node->in[i]))
            return false;
    for (int i = 0; i < node->n_out; i++)
        if (!fits_blocks(p, node->out[i]))
            return false;
    /* A variant that the caller asked for decides whether the node is batch-blocked. */
    const clt_variant *wanted = clt_variant_wanted(node->op, p->target->variants);
    if (wanted && !(wanted->traits & CLT_BATCH_BLOCKED))
        return false;
    if (answer == CLT_BATCH_BLOCKED_WANT && (wanted || !leaves_lanes_empty(p->target)))
        return true;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] && node->in[i]->layout == CLT_LAYOUT_BATCH_BLOCKED)
            return true;
    return false;
}

static clt_status visit(layout_pass *p, clt_node *node)
{
    const bool blocked = wants_batch_blocked(p, node);
    for (int i = 0; i < node->n_in; i++) {
        clt_value *in = node->in[i];
        if (!in)
            continue;
        /* Operands without a batch and integers (labels) are always plain. */
        const bool image = clt_value_leads_with_batch(in) && in->type.dtype == CLT_F32;
        node->in[i] =
            converted(p, in, blocked && image ? CLT_LAYOUT_BATCH_BLOCKED : CLT_LAYOUT_PLAIN);
        if (!node->in[i])
            return clt_graph_status(p->graph);
    }
    for (int i = 0; i < node->n_out; i++)
        if (blocked && clt_value_leads_with_batch(node->out[i]))
            node->out[i]->layout = CLT_LAYOUT_BATCH_BLOCKED;
    return CLT_OK;
}

/* Converts batch-blocked outputs of the graph to plain ones, which take over their names. */
static clt_status plain_outputs(layout_pass *p)
{
    for (int i = 0; i < p->n_before; i++) {
        clt_value *value = p->graph->values[i];
        if (!value->output || value->layout == CLT_LAYOUT_PLAIN)
            continue;
        clt_value *twin = converted(p, value, CLT_LAYOUT_PLAIN);
        if (!twin)
            return clt_graph_status(p->graph);
        clt_graph_move_output(value, twin);
    }
    return CLT_OK;
}

clt_status clt_pass_layout(clt_graph *graph, const clt_target *target, clt_value **fixed,
                           int n_fixed)
{
    if (!clt_caps_is_cpu(target->caps))
        return CLT_OK;
    const int n_nodes = graph->n_nodes;
    layout_pass p = {.graph = graph, .target = target, .n_before = graph->n_values};
    clt_status status = CLT_OUT_OF_MEMORY;
    p.other = clt_calloc((size_t)p.n_before + 1, sizeof *p.other);
    p.fixed = clt_calloc((size_t)p.n_before + 1, sizeof *p.fixed);
    if (!p.other || !p.fixed)
        goto done;
    for (int i = 0; i < n_fixed; i++)
        if (fixed[i])
            p.fixed[fixed[i]->id] = true;
    status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < n_nodes; i++)
        status = visit(&p, graph->nodes[i]);
    CLT_NEXT(status, plain_outputs(&p));
done:
    CLT_FREE(p.other, p.fixed);
    return status;
}
