/*
 * Trained parameters, their gradients and the optimizer's tensors as shards of axis dp (ZeRO-3;
 * Rajbhandari et al., SC 2020). In the training graph a parameter becomes the device's shard, a
 * flat list (CLT_FLAT). Three kinds of nodes are added:
 *
 *     all_gather       makes the whole parameter where it is used, in forward and again in backward
 *     reduce_scatter   adds up the whole gradient over the devices, and leaves each its shard
 *     copy             puts that shard where the optimizer reads it
 *
 * The rest follows from passes and plans that exist: the arena drops a whole parameter after its
 * last reader, segments let collectives run beside kernels, and the layout of the store's parts,
 * the update and checkpoints work on shards as on any parts.
 *
 * Each parameter is gathered at most twice. Its readers are divided at the longest gap between
 * them, usually between forward and backward. A tied weight so stays from its last reader in
 * forward to its first in backward. A short gap is not worth a second gather.
 *
 * A gather begins before the readers of the gather before it. The copy of a gradient comes only
 * behind the node that makes the next one. So both kinds of collectives overlap with kernels.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include "graph/sharding.h"
#include "ops/collective/collective.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

/* Between readers that are so many nodes apart the parameter stays. */
enum { NEAR = 4 };

/* An operand that is a split parameter, or a view of it. */
typedef struct reader {
    clt_value *parameter;
    int node, operand;
} reader;

/* Readers that share a gather: readers[from .. end). */
typedef struct gather {
    int from, end;
    int number; /* of this parameter: 0 or 1 */
    int first;  /* node of the first reader */
} gather;

typedef struct gathering {
    clt_graph *graph;
    int places, n_nodes; /* nodes of the graph before */
    reader *readers;
    int n_readers, room_readers;
    gather *gathers;
    int n_gathers, room_gathers;
    int64_t *keys; /* by node id: nodes are sorted by them */
    int room_keys;
    clt_str *report;
} gathering;

/* Where an added node comes, relative to node `at` of the graph before. */
typedef enum spot { BEFORE, ITSELF, BEHIND, AT_LAST } spot;

/* Gives the nodes from `first` on a spot. They belong to the same pass, forward or backward. */
static clt_status place(gathering *g, int first, int at, spot where, bool backward)
{
    for (int i = first; i < g->graph->n_nodes; i++) {
        int n = i;
        g->graph->nodes[i]->backward = backward;
        CLT_TRY(CLT_PUSH(g->keys, n, g->room_keys, (int64_t)4 * at + where));
    }
    return clt_graph_status(g->graph);
}

static bool is_shard(const clt_value *v)
{
    return v->kind == CLT_VALUE_PARAMETER && v->shardings[CLT_AXIS_DATA].blocks;
}

/* --- readers --------------------------------------------------------------------------------- */

static int by_parameter(const void *a, const void *b)
{
    const reader *x = a, *y = b;
    const int p = x->parameter->id, q = y->parameter->id;
    if (p != q)
        return (p > q) - (p < q);
    return x->node != y->node ? (x->node > y->node) - (x->node < y->node)
                              : (x->operand > y->operand) - (x->operand < y->operand);
}

static clt_status find_readers(gathering *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const clt_node *node = g->graph->nodes[i];
        for (int j = 0; j < node->n_in && !node->op->view; j++) {
            clt_value *root = node->in[j] ? (clt_value *)clt_value_root(node->in[j]) : NULL;
            if (root && is_shard(root))
                CLT_TRY(CLT_PUSH(g->readers, g->n_readers, g->room_readers, (reader){root, i, j}));
        }
    }
    if (g->n_readers)
        qsort(g->readers, (size_t)g->n_readers, sizeof *g->readers, by_parameter);
    return CLT_OK;
}

/* Outputs are read after the run, when only shards are there. */
static clt_status refuse_outputs(const clt_graph *graph)
{
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *v = graph->values[i], *root = clt_value_root(v);
        if (v->output && is_shard(root))
            return clt_fail(CLT_UNSUPPORTED,
                            "parameter %s is an output, and zero 3 keeps shards of it: make a copy "
                            "of it the output (clt_copy)",
                            root->name);
    }
    return CLT_OK;
}

static int by_first(const void *a, const void *b)
{
    const gather *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : (x->from > y->from) - (x->from < y->from);
}

static clt_status add_gather(gathering *g, int from, int end, int number)
{
    return CLT_PUSH(g->gathers, g->n_gathers, g->room_gathers,
                    (gather){from, end, number, g->readers[from].node});
}

/* Divides the readers of one parameter. */
static clt_status divide(gathering *g, int from, int end)
{
    int cut = end, longest = NEAR;
    for (int i = from + 1; i < end; i++) {
        const int gap = g->readers[i].node - g->readers[i - 1].node;
        if (gap > longest) {
            longest = gap;
            cut = i;
        }
    }
    CLT_TRY(add_gather(g, from, cut, 0));
    return cut < end ? add_gather(g, cut, end, 1) : CLT_OK;
}

static clt_status find_gathers(gathering *g)
{
    for (int from = 0, end; from < g->n_readers; from = end) {
        for (end = from + 1;
             end < g->n_readers && g->readers[end].parameter == g->readers[from].parameter;)
            end++;
        CLT_TRY(divide(g, from, end));
    }
    if (g->n_gathers)
        qsort(g->gathers, (size_t)g->n_gathers, sizeof *g->gathers, by_first);
    return CLT_OK;
}

/* --- parameters ------------------------------------------------------------------------------ */

static clt_value *flat(clt_value *x, int64_t elements)
{
    return clt_reshape(x, 1, &elements);
}

static void describe(gathering *g, const clt_value *collective)
{
    char type[CLT_TYPE_TEXT];
    if (collective)
        clt_str_add(g->report, "dp %s: %s of %s\n", collective->producer->name,
                    collective->producer->op->name,
                    clt_type_text(&collective->producer->in[0]->type, type));
}

static clt_value *label(clt_value *value, const clt_value *parameter, const char *what, int number)
{
    char name[192];
    snprintf(name, sizeof name, "%.150s.%s%s", parameter->name, what, number ? ".again" : "");
    return clt_label(value, name);
}

/* Makes the whole parameter from the shards. Behind the last element they may have zeros. */
static clt_value *gathered(gathering *g, clt_value *parameter, const clt_type *whole, int number)
{
    const int64_t elements = clt_type_elements(whole, 0);
    clt_value *x = label(clt_axis_all_gather(parameter, CLT_AXIS_DATA, g->places), parameter,
                         "gather", number);
    describe(g, x);
    if (x && clt_type_elements(&x->type, 0) != elements) {
        const int64_t start = 0, stop = elements;
        x = clt_slice(flat(x, clt_type_elements(&x->type, 0)), &start, &stop, NULL);
    }
    return clt_reshape(x, whole->rank, whole->dims);
}

/* Returns what a reader of the parameter, or of a view of it, reads in its place. */
static clt_value *stand_in(const gathering *g, clt_value *read, const clt_value *parameter,
                           clt_value *whole)
{
    if (read == parameter || !whole)
        return whole;
    clt_value *of = stand_in(g, read->producer->in[0], parameter, whole);
    clt_node *view = of ? clt_graph_add_twin(g->graph, read->producer, &of) : NULL;
    return view ? view->out[0] : NULL;
}

static clt_status gather_parameter(gathering *g, const gather *one, const clt_type *whole, int at)
{
    const reader *r = g->readers;
    clt_value *parameter = r[one->from].parameter;
    const int first = g->graph->n_nodes;
    clt_value *x = gathered(g, parameter, whole, one->number);
    for (int i = one->from; i < one->end && x; i++) {
        clt_node *node = g->graph->nodes[r[i].node];
        node->in[r[i].operand] = stand_in(g, node->in[r[i].operand], parameter, x);
    }
    return place(g, first, at, BEFORE, g->graph->nodes[one->first]->backward);
}

/* A gather begins before the first reader of the gathers before it, in the same pass. */
static clt_status gather_all(gathering *g, const clt_type *whole)
{
    int previous = -1; /* first reader of the gathers before */
    for (int i = 0; i < g->n_gathers; i++) {
        const gather *one = &g->gathers[i];
        if (i && g->gathers[i - 1].first != one->first)
            previous = g->gathers[i - 1].first;
        const bool same_pass = previous >= 0 && g->graph->nodes[previous]->backward ==
                                                    g->graph->nodes[one->first]->backward;
        CLT_TRY(gather_parameter(g, one, &whole[g->readers[one->from].parameter->id],
                                 same_pass ? previous : one->first));
    }
    return CLT_OK;
}

/* --- gradients ------------------------------------------------------------------------------- */

/* A gradient, and the node that makes it. */
typedef struct made {
    clt_value **gradient;
    const clt_value *parameter;
    int node;
} made;

static int by_node(const void *a, const void *b)
{
    const made *x = a, *y = b;
    return x->node != y->node ? (x->node > y->node) - (x->node < y->node)
                              : (x->gradient > y->gradient) - (x->gradient < y->gradient);
}

/* `later`: the node behind which the shard is copied. */
static clt_status scatter(gathering *g, const made *one, int later)
{
    clt_value *x = *one->gradient;
    const int64_t elements = clt_type_elements(&x->type, 0);
    const int64_t before = 0, after = (g->places - elements % g->places) % g->places;
    const int64_t dims[] = {g->places, (elements + after) / g->places};
    int first = g->graph->n_nodes;
    x->kept = false;
    if (after)
        x = clt_pad(flat(x, elements), &before, &after, 0);
    x = label(clt_axis_reduce_scatter(clt_reshape(x, 2, dims), CLT_AXIS_DATA, g->places),
              one->parameter, "scatter", 0);
    describe(g, x);
    CLT_TRY(place(g, first, one->node, AT_LAST, true));
    first = g->graph->n_nodes;
    *one->gradient = x = label(clt_copy(x), one->parameter, "shard", 0);
    CLT_TRY(clt_graph_status(g->graph));
    x->kept = true;
    return place(g, first, later, BEHIND, true);
}

static clt_status scatter_all(gathering *g, clt_value **gradients, int n_gradients)
{
    made *all = clt_calloc((size_t)n_gradients + 1, sizeof *all);
    CLT_TRY_MEMORY(all);
    int n = 0, next = 0;
    for (int i = 0; i < g->graph->n_values && next < n_gradients; i++) {
        const clt_value *v = g->graph->values[i];
        if (!clt_value_trained(v))
            continue;
        clt_value **gradient = &gradients[next++];
        if (*gradient)
            all[n++] = (made){gradient, v, (*gradient)->producer->id};
    }
    qsort(all, (size_t)n, sizeof *all, by_node);
    clt_status status = CLT_OK;
    for (int i = 0, later; i < n && status == CLT_OK; i++) {
        for (later = i + 1; later < n && all[later].node == all[i].node;)
            later++;
        status = scatter(g, &all[i], later < n ? all[later].node : g->n_nodes);
    }
    clt_free(all);
    return status;
}

/* --- the pass -------------------------------------------------------------------------------- */

/* Gives the parameters the type of a shard, and keeps the whole types by value id. */
static clt_status make_shards(gathering *g, clt_type *whole)
{
    for (int i = 0; i < g->graph->n_values; i++) {
        clt_value *v = g->graph->values[i];
        whole[i] = v->type;
        if (is_shard(v))
            CLT_TRY(clt_sharding_type(v->name, &whole[i], v->shardings[CLT_AXIS_DATA],
                                      (clt_coordinate){0, g->places}, &v->type));
    }
    return CLT_OK;
}

typedef struct keyed {
    clt_node *node;
    int64_t key;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->node->id > y->node->id) - (x->node->id < y->node->id);
}

static clt_status sort_nodes(const gathering *g)
{
    clt_graph *graph = g->graph;
    keyed *nodes = clt_calloc((size_t)graph->n_nodes + 1, sizeof *nodes);
    CLT_TRY_MEMORY(nodes);
    for (int i = 0; i < graph->n_nodes; i++)
        nodes[i] = (keyed){graph->nodes[i], g->keys[i]};
    qsort(nodes, (size_t)graph->n_nodes, sizeof *nodes, by_key);
    for (int i = 0; i < graph->n_nodes; i++)
        graph->nodes[i] = nodes[i].node;
    clt_free(nodes);
    return CLT_OK;
}

static clt_status run(gathering *g, clt_value **gradients, int n_gradients)
{
    clt_type *whole = clt_calloc((size_t)g->graph->n_values + 1, sizeof *whole);
    clt_status status = whole ? refuse_outputs(g->graph) : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < g->n_nodes; i++) {
        int n = i;
        status = CLT_PUSH(g->keys, n, g->room_keys, (int64_t)4 * i + ITSELF);
    }
    CLT_NEXT(status, find_readers(g));
    CLT_NEXT(status, find_gathers(g));
    CLT_NEXT(status, make_shards(g, whole));
    CLT_NEXT(status, scatter_all(g, gradients, n_gradients));
    CLT_NEXT(status, gather_all(g, whole));
    clt_free(whole);
    CLT_NEXT(status, sort_nodes(g));
    return status;
}

clt_status clt_pass_gather(clt_graph *graph, int places, clt_value **gradients, int n_gradients,
                           clt_str *report)
{
    CLT_TRY(clt_graph_clean(graph, gradients, n_gradients));
    gathering g = {.graph = graph, .places = places, .n_nodes = graph->n_nodes, .report = report};
    clt_status status = run(&g, gradients, n_gradients);
    CLT_FREE(g.readers, g.gathers, g.keys);
    CLT_TRY(status);
    return report->failed ? CLT_OUT_OF_MEMORY : clt_graph_clean(graph, gradients, n_gradients);
}
