/*
 * Stores values in 16 bits. Operators, fusions and layouts were chosen before; this pass only
 * changes types of values. A layer's values for its images and their gradients are rounded once, by
 * the node that makes them, and all readers see the rounded value. Kernels compute in f32.
 *
 * Operators whose kernels cannot read or write 16 bits (clt_op.half) get conversions around them.
 * The f32 side of a conversion is short-lived. Everything else stays f32: parameters and their
 * gradients (but with zero 3 they travel in 16 bits), states, sums over images, statistics, losses,
 * inputs, outputs, and gradients that overwrite outputs. Compare Micikevicius et al., "Mixed
 * precision training", ICLR 2018.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "ops/collective/collective.h"
#include "ops/collective/transfer.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

/* Values with fewer elements an image stay f32, for little is gained: counts, norms and weights of
 * samples. */
enum { LEAST_ELEMENTS = 16 };

/* One conversion serves all readers within this many nodes. */
enum { NEAR = 4 };

typedef struct widened {
    bool half; /* this pass stores the value in 16 bits; false for the caller's own 16-bit values */
    clt_value *value; /* the value converted to f32; NULL: not made yet */
    int position;     /* of the last node that reads the converted value */
} widened;

typedef struct precision_pass {
    clt_graph *graph;
    const clt_target *target;
    clt_dtype precision;
    bool *exact;      /* by id: must stay f32 */
    widened *wide;    /* by id */
    int room_values;  /* entries of `exact` and `wide` */
    int *last_reader; /* by id, for values before the pass: last node that reads it or a view */
    clt_replacements
        replacements;  /* values in f32 to their conversions to 16 bits, which later nodes read */
    clt_node **order;  /* all nodes, with conversions next to the nodes that need them */
    int n_order, room; /* room: entries allocated */
} precision_pass;

static void list_exact(const precision_pass *p)
{
    const clt_graph *g = p->graph;
    for (int i = 0; i < g->n_values; i++)
        p->exact[i] = g->values[i]->output || g->values[i]->kept || g->values[i]->exact;
    for (int i = 0; i < g->n_losses + g->n_metrics; i++) {
        const clt_mean *mean = i < g->n_losses ? &g->losses[i] : &g->metrics[i - g->n_losses];
        p->exact[mean->sum->id] = p->exact[mean->weight->id] = true;
    }
    for (int i = 0; i < g->n_assigns; i++)
        p->exact[g->assigns[i].value->id] = true;
}

/* Finds the last readers of all values. Going backwards, readers of a view are known before those
 * of its operand. Nodes that this pass adds need no entry: conversions only read values that the
 * pass rounds, and replaces_output never asks for those. */
static void find_last_readers(const precision_pass *p)
{
    const clt_graph *g = p->graph;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const clt_node *node = g->nodes[i];
        for (int j = 0; j < node->n_in; j++) {
            int *last = node->in[j] ? &p->last_reader[node->in[j]->id] : NULL;
            const int behind = node->op->view ? p->last_reader[node->out[0]->id] : 0;
            if (last && *last < (behind > i ? behind : i))
                *last = behind > i ? behind : i;
        }
    }
}

/* Whether the gradient may overwrite an output of the graph, as the gradient of the logits does.
 * The output is f32 and not needed later, so an f32 gradient in its place takes no memory. In 16
 * bits the gradient would take half the output's memory on top, which for a text model is the
 * largest value of all. */
static bool replaces_output(const precision_pass *p, const clt_node *node, int index)
{
    for (int i = 0; node->backward && index == 0 && i < node->n_in && i < 32; i++) {
        const clt_value *in = node->in[i];
        if (in && node->op->in_place & 1u << i && clt_value_root(in)->output &&
            clt_value_root(in)->producer && clt_type_equal(&in->type, &node->out[0]->type) &&
            p->last_reader[clt_value_root(in)->id] == node->id)
            return true;
    }
    return false;
}

/* Whether the operator and the type let an output be stored in 16 bits. */
static bool may_round(const clt_value *out)
{
    const clt_type *type = &out->type;
    const clt_rounding rounding = out->producer->op->rounding;
    return type->dtype == CLT_F32 && clt_type_has_batch(type) &&
           clt_type_coefficient(type) >= LEAST_ELEMENTS && type->dims[type->rank - 1] != 1 &&
           (rounding == CLT_ROUNDS_ALL || (rounding == CLT_ROUNDS_FIRST && out->slot == 0));
}

bool clt_precision_rounds(const clt_value *value)
{
    const clt_node *node = value->producer;
    if (!node || value->output || value->kept || value->exact)
        return false;
    if (!node->op->view && node->op->rounding != CLT_ROUNDS_MOVES)
        return may_round(value);
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] && !clt_precision_rounds(node->in[i]))
            return false;
    return true;
}

/* Whether output `index` of the node is stored in 16 bits. */
static bool rounds(const precision_pass *p, const clt_node *node, int index)
{
    const clt_value *out = node->out[index];
    return !p->exact[out->id] && may_round(out) && !replaces_output(p, node, index);
}

static bool is_half(const precision_pass *p, const clt_value *value)
{
    return value && p->wide[value->id].half;
}

static void make_half(precision_pass *p, clt_value *value)
{
    value->type.dtype = p->precision;
    p->wide[value->id].half = true;
}

/* Makes a conversion of `value` for `node`. */
static clt_value *convert(precision_pass *p, const clt_node *node, clt_value *value, clt_dtype to)
{
    clt_graph_set_origin(p->graph, node->origin);
    clt_value *twin = clt_cast(value, to);
    clt_graph_set_origin(p->graph, NULL);
    if (!twin)
        return NULL;
    twin->layout = value->layout;
    twin->producer->backward = node->backward;
    return twin;
}

/* Makes room in `order` for the node and a conversion of each operand and output. */
static clt_status make_room(precision_pass *p, const clt_node *node)
{
    const int needed = p->n_order + 1 + node->n_in + node->n_out;
    if (needed <= p->room)
        return CLT_OK;
    const int room = 2 * needed;
    clt_node **order = clt_realloc(p->order, (size_t)room * sizeof *order);
    CLT_TRY_MEMORY(order);
    p->order = order;
    p->room = room;
    return CLT_OK;
}

static clt_status widen(precision_pass *p, clt_node *node, int operand)
{
    clt_value *in = node->in[operand];
    widened *wide = &p->wide[in->id];
    const bool there = wide->value && p->n_order - wide->position <= NEAR &&
                       wide->value->producer->backward == node->backward;
    if (!there) {
        wide->value = convert(p, node, in, CLT_F32);
        if (!wide->value)
            return clt_graph_status(p->graph);
        p->order[p->n_order++] = wide->value->producer;
    }
    wide->position = p->n_order;
    node->in[operand] = wide->value;
    return CLT_OK;
}

/* Converts an output to 16 bits. Later nodes read the converted value. */
static clt_status narrow(precision_pass *p, clt_node *node, int index)
{
    clt_value *out = node->out[index];
    clt_value *half = convert(p, node, out, p->precision);
    if (!half)
        return clt_graph_status(p->graph);
    p->order[p->n_order++] = half->producer;
    return clt_replacements_add(&p->replacements, out, half);
}

static bool reads(const precision_pass *p, const clt_node *node, int index, bool output)
{
    return node->op->half && node->op->half(node, p->target, index, output);
}

/* A view has its operand's bytes, so both have the same type. */
static clt_status visit_view(precision_pass *p, clt_node *node)
{
    clt_value *out = node->out[0];
    if (is_half(p, node->in[0]) && p->exact[out->id])
        CLT_TRY(widen(p, node, 0));
    else if (is_half(p, node->in[0]))
        make_half(p, out);
    p->order[p->n_order++] = node;
    return CLT_OK;
}

/* Operators that only move elements keep their bits, so all operands and outputs have the same
 * type. */
static clt_status visit_move(precision_pass *p, clt_node *node)
{
    bool all = !node->op->half || node->op->half(node, p->target, 0, false);
    for (int i = 0; i < node->n_in; i++)
        all = all && (!node->in[i] || is_half(p, node->in[i]));
    for (int i = 0; i < node->n_out; i++)
        all = all && !p->exact[node->out[i]->id];
    for (int i = 0; !all && i < node->n_in; i++)
        if (is_half(p, node->in[i]))
            CLT_TRY(widen(p, node, i));
    for (int i = 0; all && i < node->n_out; i++)
        make_half(p, node->out[i]);
    p->order[p->n_order++] = node;
    return CLT_OK;
}

/* Whether the node gathers a shard of a parameter, or scatters its gradient (gather_shards.c). */
static bool exchanges_shards(const clt_node *node)
{
    const clt_op_collective kind = node->op->collective;
    const clt_value *in = node->in[0];
    return (kind == CLT_OP_ALL_GATHER && in->kind == CLT_VALUE_PARAMETER &&
            in->shardings[CLT_AXIS_DATA].blocks) ||
           (kind == CLT_OP_REDUCE_SCATTER && node->backward &&
            ((const clt_axis_attr *)node->attr)->axis == CLT_AXIS_DATA);
}

/* Parameters and their gradients travel in 16 bits. The shard that is updated stays f32. */
static clt_status visit_shards(precision_pass *p, clt_node *node)
{
    if (!is_half(p, node->in[0])) {
        node->in[0] = convert(p, node, node->in[0], p->precision);
        CLT_TRY(clt_graph_status(p->graph));
        p->order[p->n_order++] = node->in[0]->producer;
    }
    make_half(p, node->out[0]);
    p->order[p->n_order++] = node;
    return CLT_OK;
}

/* Both ends of a message between devices have the type that its attributes say. */
static clt_status visit_message(precision_pass *p, clt_node *node)
{
    const bool half = ((const clt_transfer_attr *)node->attr)->half != 0;
    if (node->n_in && is_half(p, node->in[0]) && !half)
        CLT_TRY(widen(p, node, 0));
    if (node->n_in && !is_half(p, node->in[0]) && half) {
        node->in[0] = convert(p, node, node->in[0], p->precision);
        CLT_TRY(clt_graph_status(p->graph));
        p->order[p->n_order++] = node->in[0]->producer;
    }
    if (half)
        make_half(p, node->out[0]);
    p->order[p->n_order++] = node;
    return CLT_OK;
}

static clt_status visit(precision_pass *p, clt_node *node)
{
    CLT_TRY(make_room(p, node));
    clt_replacements_settle_node(&p->replacements, node);
    if (node->op->effect)
        return visit_message(p, node);
    if (node->op->view)
        return visit_view(p, node);
    if (node->op->collective && exchanges_shards(node))
        return visit_shards(p, node);
    /* The operand and the result of a collective have one type. The host adds up in f32. Shifts
     * stay in f32, because their ends are filled with f32. */
    if (node->op->rounding == CLT_ROUNDS_MOVES ||
        (node->op->collective && node->op->collective != CLT_OP_SHIFT))
        return visit_move(p, node);
    for (int i = 0; i < node->n_in; i++)
        if (is_half(p, node->in[i]) && !reads(p, node, i, false))
            CLT_TRY(widen(p, node, i));
    bool rounded[CLT_MAX_OUTPUTS], written[CLT_MAX_OUTPUTS];
    for (int i = 0; i < node->n_out; i++) {
        rounded[i] = rounds(p, node, i);
        written[i] = rounded[i] && reads(p, node, i, true);
    }
    for (int i = 0; i < node->n_out; i++)
        if (written[i])
            make_half(p, node->out[i]);
    p->order[p->n_order++] = node;
    for (int i = 0; i < node->n_out; i++)
        if (rounded[i] && !written[i])
            CLT_TRY(narrow(p, node, i));
    return CLT_OK;
}

/* Extends the arrays by id for the values of added conversions. */
static clt_status add_values(precision_pass *p, int before)
{
    const int n = p->graph->n_values;
    if (n > p->room_values) {
        const size_t room = 2 * (size_t)n;
        bool *exact = clt_realloc(p->exact, room * sizeof *exact);
        if (exact)
            p->exact = exact;
        widened *wide = exact ? clt_realloc(p->wide, room * sizeof *wide) : NULL;
        CLT_TRY_MEMORY(wide);
        p->wide = wide;
        p->room_values = 2 * n;
    }
    for (int v = before; v < n; v++) {
        p->exact[v] = false;
        p->wide[v] = (widened){.half = p->graph->values[v]->type.dtype == p->precision};
    }
    return CLT_OK;
}

static clt_status run(precision_pass *p)
{
    clt_graph *g = p->graph;
    const int n_nodes = g->n_nodes;
    list_exact(p);
    find_last_readers(p);
    for (int i = 0; i < n_nodes; i++) {
        const int before = g->n_values;
        CLT_TRY(visit(p, g->nodes[i]));
        CLT_TRY(add_values(p, before));
    }
    for (int i = 0; i < p->n_order; i++) {
        g->nodes[i] = p->order[i];
        g->nodes[i]->id = i;
    }
    return CLT_OK;
}

clt_status clt_pass_precision(clt_graph *graph, const clt_target *target, clt_dtype precision)
{
    if (precision != CLT_F16 && precision != CLT_BF16)
        return clt_fail(CLT_INVALID_ARGUMENT, "precision %s: values are kept in f32, f16 or bf16",
                        clt_dtype_name(precision));
    precision_pass p = {.graph = graph,
                        .target = target,
                        .precision = precision,
                        .room_values = graph->n_values + 1};
    CLT_TRY(clt_replacements_begin(graph, &p.replacements));
    p.exact = clt_calloc((size_t)p.room_values, sizeof *p.exact);
    p.wide = clt_calloc((size_t)p.room_values, sizeof *p.wide);
    p.last_reader = clt_calloc((size_t)p.room_values, sizeof *p.last_reader);
    clt_status status = p.exact && p.wide && p.last_reader ? run(&p) : CLT_OUT_OF_MEMORY;
    clt_replacements_free(&p.replacements);
    CLT_FREE(p.exact, p.wide, p.last_reader, p.order);
    return status;
}
