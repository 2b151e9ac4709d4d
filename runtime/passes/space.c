/*
 * What clt_pass_partition_forward adds to the division of graphs (partition.c): axes whose places
 * share each sample, as places of space share the rows of its images.
 *
 *   - An annotated value (clt_shard_value) is cut. Each place computes its part, and the parts of
 *     the values that depend on it.
 *   - Operators that look at neighbours (clt_op.reach) get the rows of the places above and below.
 *   - Sums over a split dimension are this place's share. The trainer adds up losses and gradients
 *     of parameters over the places, as over devices with different samples. A loss that all places
 *     have whole counts at the first place only.
 *
 * The graph has no gradients yet. Autodiff finds them, because collectives have gradients.
 */
#include "passes/space.h"

#include <stdio.h>

#include "base/error.h"
#include "graph/mesh.h"
#include "ops/collective/collective.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

/* --- annotated values ------------------------------------------------------------------------ */

clt_status clt_space_cut(clt_partitioning *p, const clt_value *old)
{
    const clt_sharding wanted = old->shardings[p->axis];
    clt_placement *is = &p->placed[old->id];
    clt_type part;
    if (!wanted.blocks || (is->sharding.blocks && is->sharding.dim == wanted.dim))
        return CLT_OK;
    const char *name = clt_value_called(old);
    CLT_TRY(clt_sharding_type(name, &old->type, wanted, p->at, &part));
    clt_value *whole = clt_partition_convert(p, old, (clt_sharding){0, 0});
    CLT_TRY(clt_graph_status(p->graph));
    p->local[old->id] = whole;
    *is = (clt_placement){.partial = false};
    clt_value *cut = clt_partition_convert(p, old, wanted);
    CLT_TRY(clt_graph_status(p->graph));
    p->whole[old->id] = whole;
    p->local[old->id] = cut;
    is->sharding = wanted;
    return CLT_OK;
}

/* --- windows --------------------------------------------------------------------------------- */

/* A node's windows at all places, and the rows that cross borders. */
typedef struct halo {
    clt_window own;       /* this place's */
    int64_t above, below; /* rows that each place gets from its neighbours */
} halo;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Finds the windows. False: the operator cannot be divided along the dimension. */
static bool find_halo(const clt_partitioning *p, const clt_node *node, int dim, halo *h)
{
    const int64_t in = node->in[0]->type.dims[dim], out = node->out[0]->type.dims[dim];
    const int places = p->at.places;
    *h = (halo){.above = 0};
    for (int q = 0; q < places; q++) {
        clt_window w = {.dim = dim,
                        .begin = clt_part_begin(out, places, q),
                        .end = clt_part_begin(out, places, q + 1)};
        if (!node->op->reach(node, &w))
            return false;
        if (q > 0)
            h->above = larger(h->above, clt_part_begin(in, places, q) - w.from);
        if (q < places - 1)
            h->below = larger(h->below, w.to - clt_part_begin(in, places, q + 1));
        if (q == p->at.place)
            h->own = w;
    }
    return true;
}

/* Fails if a part has not the rows that its neighbour needs. */
static clt_status check_halo(const clt_partitioning *p, const clt_node *node, const halo *h)
{
    char text[CLT_TYPE_TEXT];
    const int64_t in = node->in[0]->type.dims[h->own.dim];
    for (int q = 0; q < p->at.places; q++) {
        const int64_t has = clt_part_size(in, p->at.places, q);
        const int64_t needed = larger(q < p->at.places - 1 ? h->above : 0, q > 0 ? h->below : 0);
        if (has < needed)
            return clt_fail(CLT_UNSUPPORTED,
                            "node %s (%s) needs %lld rows of its neighbours along %s, but of the "
                            "%lld rows of %s place %d has only %lld: use fewer places",
                            node->name, node->op->name, (long long)needed, clt_axis_name(p->axis),
                            (long long)in, clt_type_text(&node->in[0]->type, text), q,
                            (long long)has);
    }
    return CLT_OK;
}

/* Adds a shift of rows [from, to) of x. All places add it, so all come to the same collectives. */
static clt_value *neighbour(const clt_partitioning *p, const clt_node *node, clt_value *x,
                            const halo *h, int step, int64_t from, int64_t to)
{
    char name[192];
    clt_value *rows = clt_window_cut(x, h->own.dim, from, to);
    snprintf(name, sizeof name, "%.120s.%s.%s", node->name, clt_axis_name(p->axis),
             step > 0 ? "above" : "below");
    return clt_label(clt_axis_shift(rows, p->axis, step, h->own.fill), name);
}

/* Returns elements [from, to) of x, of which some may lie beyond its ends. */
static clt_value *extended(clt_value *x, const clt_window *w, int64_t from, int64_t to)
{
    int64_t before[CLT_MAX_RANK] = {0}, after[CLT_MAX_RANK] = {0};
    if (!x)
        return NULL;
    const int64_t size = x->type.dims[w->dim];
    x = clt_window_cut(x, w->dim, larger(from, 0), to < size ? to : size);
    if (from >= 0 && to <= size)
        return x;
    before[w->dim] = larger(-from, 0);
    after[w->dim] = larger(to - size, 0);
    return clt_pad(x, before, after, w->fill);
}

/* Joins x and the rows of its neighbours, and returns the window. A place at the end of the axis
 * gets rows of `fill`. */
static clt_value *with_halo(const clt_partitioning *p, const clt_node *node, const halo *h)
{
    clt_value *x = p->local[node->in[0]->id], *pieces[3];
    const int dim = h->own.dim;
    const int64_t size = x->type.dims[dim];
    const int64_t first =
        clt_part_begin(node->in[0]->type.dims[dim], p->at.places, p->at.place) - h->above;
    int n = 0;
    if (h->above)
        pieces[n++] = neighbour(p, node, x, h, 1, size - h->above, size);
    pieces[n++] = x;
    if (h->below)
        pieces[n++] = neighbour(p, node, x, h, -1, 0, h->below);
    clt_value *joined = n > 1 ? clt_concat(pieces, n, dim) : x;
    return extended(joined, &h->own, h->own.from - first, h->own.to - first);
}

/* Adds the node's part, computed from a window of operand 0. */
static clt_status visit_window(clt_partitioning *p, clt_node *node, const halo *h)
{
    const clt_sharding split = {h->own.dim, 1};
    clt_value *in[CLT_MAX_OPERANDS] = {NULL};
    clt_type part;
    CLT_TRY(clt_sharding_type(node->name, &node->out[0]->type, split, p->at, &part));
    CLT_TRY(check_halo(p, node, h));
    in[0] = with_halo(p, node, h);
    for (int i = 1; i < node->n_in; i++)
        in[i] = node->in[i] ? clt_partition_convert(p, node->in[i], (clt_sharding){0, 0}) : NULL;
    CLT_TRY(clt_graph_status(p->graph));
    clt_value *out = node->op->within(node, &h->own, in);
    return clt_partition_place(p, node, out, split);
}

/* --- values of a place's own samples --------------------------------------------------------- */

static bool is_own(const clt_partitioning *p, const clt_value *v)
{
    return v && p->placed[v->id].own;
}

/* Whether the node takes moments over a split dimension. */
static bool takes_moments(const clt_partitioning *p, const clt_node *node,
                          const clt_node_dims *dims)
{
    const clt_sharding has = p->placed[node->in[0]->id].sharding;
    return node->op == &clt_op_batch_norm_moments && has.blocks &&
           dims->behaviour[dims->in[0][has.dim]] == CLT_DIM_WHOLE;
}

static clt_status fail_own(const clt_partitioning *p, const char *name)
{
    return clt_fail(CLT_UNSUPPORTED,
                    "batch norm %s would normalise each place's rows by themselves: axis %s "
                    "splits its images, so it needs the option synchronised",
                    name, clt_axis_name(p->axis));
}

/*
 * A node that reads moments of this place's rows, or what was made of them. All synchronised batch
 * norm does with them is arithmetic up to an all-reduce over dp, to which the sum over this axis is
 * added.
 */
static clt_status visit_own(clt_partitioning *p, clt_node *node)
{
    const bool reduces = node->op == &clt_op_all_reduce;
    clt_value *in[CLT_MAX_OPERANDS] = {NULL};
    for (int i = 0; i < node->n_in; i++) {
        const clt_value *v = node->in[i];
        if (!v)
            continue;
        if (!is_own(p, v) && p->placed[v->id].sharding.blocks &&
            node->op != &clt_op_batch_norm_moments)
            return fail_own(p, node->name);
        in[i] = is_own(p, v) || node->op == &clt_op_batch_norm_moments
                    ? p->local[v->id]
                    : clt_partition_convert(p, v, (clt_sharding){0, 0});
    }
    if (reduces) {
        char name[192];
        snprintf(name, sizeof name, "%.120s.%s", node->name, clt_axis_name(p->axis));
        in[0] = clt_label(clt_axis_all_reduce(in[0], p->axis, CLT_AXIS_SUM), name);
    }
    clt_node *local = clt_graph_add(p->graph, node->op, in, node->n_in, node->attr);
    CLT_TRY(clt_graph_status(p->graph));
    clt_partition_exchange_names(node, local);
    p->nodes[node->id] = local;
    for (int o = 0; o < node->n_out; o++) {
        p->local[node->out[o]->id] = local->out[o];
        p->placed[node->out[o]->id].own = !reduces;
    }
    return CLT_OK;
}

/* --- the rules ------------------------------------------------------------------------------- */

static clt_status visit(clt_partitioning *p, clt_node *node, const clt_node_dims *dims, bool *done)
{
    bool own = false;
    halo h;
    *done = true;
    for (int i = 0; i < node->n_in; i++)
        own = own || is_own(p, node->in[i]);
    if (own || (node->n_in && takes_moments(p, node, dims)))
        return visit_own(p, node);
    const clt_sharding has =
        node->n_in && node->in[0] ? p->placed[node->in[0]->id].sharding : (clt_sharding){0, 0};
    if (has.blocks && node->op->reach && find_halo(p, node, has.dim, &h))
        return visit_window(p, node, &h);
    *done = false;
    return CLT_OK;
}

/* The share of a place that has a whole value: all of it at the first place, else 0. */
static clt_value *share_of(const clt_partitioning *p, clt_value *value)
{
    return p->at.place ? clt_scale(value, 0) : value;
}

static clt_status end_means(clt_partitioning *p, clt_mean *means, int count)
{
    for (int i = 0; i < count; i++) {
        clt_value **parts[] = {&means[i].sum, &means[i].weight};
        const clt_node *weight = means[i].weight->producer;
        if (means[i].each == 0 && weight && weight->op->weight)
            means[i].each = weight->op->weight(weight);
        for (int k = 0; k < 2; k++) {
            const clt_value *old = *parts[k];
            if (is_own(p, old))
                return fail_own(p, means[i].name);
            *parts[k] = p->placed[old->id].partial
                            ? p->local[old->id]
                            : share_of(p, clt_partition_end(p, old, (clt_sharding){0, 0}));
            CLT_TRY(clt_graph_status(p->graph));
        }
    }
    return CLT_OK;
}

clt_status clt_space_ends(clt_partitioning *p)
{
    clt_graph *graph = p->graph;
    for (int i = 0; i < graph->n_assigns; i++)
        if (is_own(p, graph->assigns[i].value))
            return fail_own(p, graph->assigns[i].state->name);
    for (int i = 0; i < p->n_values; i++)
        if (graph->values[i]->output && is_own(p, graph->values[i]))
            return fail_own(p, graph->values[i]->name);
    CLT_TRY(end_means(p, graph->losses, graph->n_losses));
    CLT_TRY(end_means(p, graph->metrics, graph->n_metrics));
    /* Outputs are whole at all places, and so are their gradients. */
    for (int i = 0; i < graph->n_seeds; i++)
        graph->seeds[i].gradient = share_of(p, graph->seeds[i].gradient);
    return clt_graph_status(graph);
}

const clt_axis_rules clt_space_rules = {NULL, visit, NULL, clt_space_ends};
