/* Operations of passes on a graph: copy it, and drop dead nodes and values. */
#include <string.h>

#include "base/vec.h"
#include "graph/graph.h"

static clt_value *mapped(const clt_graph *copy, const clt_value *value)
{
    return value ? copy->values[value->id] : NULL;
}

static clt_status copy_value(clt_graph *copy, const clt_value *value)
{
    clt_value *twin = CLT_NEW(clt_value);
    CLT_TRY_MEMORY(twin);
    *twin = *value;
    twin->graph = copy;
    twin->name = NULL;
    twin->data = NULL;
    twin->producer = NULL;
    clt_status status = CLT_PUSH(copy->values, copy->n_values, copy->room_values, twin);
    if (status != CLT_OK) {
        clt_free(twin);
        return status;
    }
    if (value->name && !(twin->name = clt_strdup(value->name)))
        return CLT_OUT_OF_MEMORY;
    if (value->data) {
        size_t bytes =
            (size_t)clt_type_elements(&value->type, 0) * (size_t)clt_dtype_size(value->type.dtype);
        CLT_TRY_MEMORY(twin->data = clt_alloc(bytes));
        memcpy(twin->data, value->data, bytes);
    }
    return CLT_OK;
}

static clt_status copy_node(clt_graph *copy, const clt_node *node)
{
    clt_node *twin = CLT_NEW(clt_node);
    CLT_TRY_MEMORY(twin);
    *twin = *node;
    twin->graph = copy;
    twin->in = NULL;
    twin->name = NULL;
    twin->attr = NULL;
    twin->origin = node->origin ? copy->nodes[node->origin->id] : NULL;
    clt_status status = CLT_PUSH(copy->nodes, copy->n_nodes, copy->room_nodes, twin);
    if (status != CLT_OK) {
        clt_free(twin);
        return status;
    }
    twin->in = clt_calloc((size_t)(node->n_in ? node->n_in : 1), sizeof *twin->in);
    twin->name = clt_strdup(node->name);
    CLT_TRY_MEMORY(twin->in && twin->name);
    for (int i = 0; i < node->n_in; i++)
        twin->in[i] = mapped(copy, node->in[i]);
    for (int i = 0; i < node->n_out; i++) {
        twin->out[i] = mapped(copy, node->out[i]);
        twin->out[i]->producer = twin;
    }
    if (node->op->attr_bytes) {
        CLT_TRY_MEMORY(twin->attr = clt_alloc(node->op->attr_bytes));
        memcpy(twin->attr, node->attr, node->op->attr_bytes);
    }
    return CLT_OK;
}

static clt_status copy_means(clt_graph *copy, const clt_mean *means, int count, clt_mean **items,
                             int *n, int *room)
{
    for (int i = 0; i < count; i++) {
        clt_mean mean = {.name = clt_strdup(means[i].name),
                         .sum = mapped(copy, means[i].sum),
                         .weight = mapped(copy, means[i].weight),
                         .coefficient = means[i].coefficient,
                         .each = means[i].each,
                         .upstream = mapped(copy, means[i].upstream)};
        CLT_TRY_MEMORY(mean.name);
        CLT_TRY(CLT_PUSH(*items, *n, *room, mean));
    }
    return CLT_OK;
}

clt_status clt_graph_copy(const clt_graph *graph, clt_graph **out)
{
    CLT_TRY(clt_graph_status(graph));
    clt_graph *copy = NULL;
    clt_status status = clt_graph_create(&copy);
    for (int i = 0; status == CLT_OK && i < graph->n_values; i++)
        status = copy_value(copy, graph->values[i]);
    for (int i = 0; status == CLT_OK && i < graph->n_nodes; i++)
        status = copy_node(copy, graph->nodes[i]);
    for (int i = 0; status == CLT_OK && i < graph->n_assigns; i++)
        status = CLT_PUSH(copy->assigns, copy->n_assigns, copy->room_assigns,
                          (clt_assignment){mapped(copy, graph->assigns[i].state),
                                           mapped(copy, graph->assigns[i].value)});
    CLT_NEXT(status, copy_means(copy, graph->losses, graph->n_losses, &copy->losses,
                                &copy->n_losses, &copy->room_losses));
    CLT_NEXT(status, copy_means(copy, graph->metrics, graph->n_metrics, &copy->metrics,
                                &copy->n_metrics, &copy->room_metrics));
    for (int i = 0; status == CLT_OK && i < graph->n_seeds; i++)
        status = CLT_PUSH(copy->seeds, copy->n_seeds, copy->room_seeds,
                          (clt_seed){mapped(copy, graph->seeds[i].output),
                                     mapped(copy, graph->seeds[i].gradient)});
    CLT_NEXT(status, clt_file_names(copy, graph->file_prefix, graph->file_ignored));
    CLT_NEXT(status, clt_graph_index_names(copy));
    if (status != CLT_OK) {
        clt_graph_destroy(copy);
        return status;
    }
    copy->streams = graph->streams;
    copy->groups = graph->groups;
    copy->cuts = graph->cuts;
    *out = copy;
    return CLT_OK;
}

void clt_graph_forget_means(clt_graph *graph)
{
    for (int i = 0; i < graph->n_losses; i++)
        clt_free(graph->losses[i].name);
    for (int i = 0; i < graph->n_metrics; i++)
        clt_free(graph->metrics[i].name);
    graph->n_losses = graph->n_metrics = 0;
}

typedef struct traversal {
    const clt_graph *graph;
    char *live; /* by value id; 1: needed */
    char *done; /* by node id; 1: on the current path, 2: in `order` */
    clt_node **order;
    int n_order;
} traversal;

/* Visits nodes depth first. Uses an explicit stack, because the depth is that of the graph's
 * longest chain. */
static clt_status visit(traversal *t, clt_node *root)
{
    struct frame {
        clt_node *node;
        int next;
    } *stack = NULL;
    int depth = 0, room = 0;
    clt_status status = CLT_OK;
    if (t->done[root->id])
        return CLT_OK;
    status = CLT_PUSH(stack, depth, room, (struct frame){root, 0});
    while (status == CLT_OK && depth) {
        struct frame *top = &stack[depth - 1];
        t->done[top->node->id] = 1;
        if (top->next == top->node->n_in) {
            t->done[top->node->id] = 2;
            t->order[t->n_order++] = top->node;
            depth--;
            continue;
        }
        clt_value *operand = top->node->in[top->next++];
        if (!operand)
            continue;
        t->live[operand->id] = 1;
        clt_node *producer = operand->producer;
        if (producer && !t->done[producer->id])
            status = CLT_PUSH(stack, depth, room, (struct frame){producer, 0});
        else if (producer && t->done[producer->id] == 1)
            status = clt_fail(CLT_INTERNAL, "node %s depends on itself", producer->name);
    }
    clt_free(stack);
    return status;
}

static clt_status visit_value(traversal *t, clt_value *value)
{
    if (!value)
        return CLT_OK;
    t->live[value->id] = 1;
    return value->producer ? visit(t, value->producer) : CLT_OK;
}

static clt_status visit_roots(traversal *t, clt_value *const *keep, int n_keep)
{
    const clt_graph *g = t->graph;
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i]->output || g->values[i]->kind == CLT_VALUE_INPUT ||
            g->values[i]->kind == CLT_VALUE_PARAMETER || g->values[i]->kind == CLT_VALUE_STATE)
            CLT_TRY(visit_value(t, g->values[i]));
    for (int i = 0; i < g->n_losses; i++) {
        CLT_TRY(visit_value(t, g->losses[i].sum));
        CLT_TRY(visit_value(t, g->losses[i].weight));
    }
    for (int i = 0; i < g->n_metrics; i++) {
        CLT_TRY(visit_value(t, g->metrics[i].sum));
        CLT_TRY(visit_value(t, g->metrics[i].weight));
    }
    for (int i = 0; i < g->n_assigns; i++)
        CLT_TRY(visit_value(t, g->assigns[i].value));
    for (int i = 0; i < n_keep; i++)
        CLT_TRY(visit_value(t, keep[i]));
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->effect && !g->nodes[i]->replaced)
            CLT_TRY(visit(t, g->nodes[i]));
    return CLT_OK;
}

/* Finds the nodes that depend on a node with an effect that is not in the new order yet. `sorted`:
 * all live nodes, each behind those that it reads. */
static void find_waiting(const traversal *t, clt_node *const *sorted, int count, bool *waits)
{
    for (int i = 0; i < count; i++) {
        const clt_node *node = sorted[i];
        bool any = false;
        for (int k = 0; k < node->n_in; k++) {
            const clt_node *from = node->in[k] ? node->in[k]->producer : NULL;
            any = any || (from && t->done[from->id] != 2 && (from->op->effect || waits[from->id]));
        }
        waits[node->id] = any;
    }
}

/* Adds the live nodes of forward or of backward. */
static clt_status settle_pass(traversal *t, bool backward, clt_node *const *sorted, int count,
                              const bool *live, bool *waits)
{
    const clt_graph *g = t->graph;
    clt_status status = CLT_OK;
    find_waiting(t, sorted, count, waits);
    for (int i = 0; status == CLT_OK && i < 2 * g->n_nodes; i++) {
        clt_node *node = g->nodes[i % g->n_nodes];
        const bool again = i >= g->n_nodes;
        if (!live[node->id] || node->backward != backward || (waits[node->id] && !again))
            continue;
        status = visit(t, node);
        if (node->op->effect && !again)
            find_waiting(t, sorted, count, waits);
    }
    return status;
}

/* Restores the builder's order, except that a producer added by a pass comes just before its first
 * user. So schedules stay close to the model's text, and gradients come in reverse order of the
 * layers. Nodes with effects keep their order: other devices come to the same ones in the same
 * order. */
static clt_status settle_order(traversal *t)
{
    const size_t nodes = (size_t)t->graph->n_nodes + 1;
    const int count = t->n_order;
    bool *live = clt_calloc(nodes, sizeof *live), *waits = clt_calloc(nodes, sizeof *waits);
    clt_node **sorted = clt_calloc(nodes, sizeof *sorted);
    clt_status status = live && waits && sorted ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK) {
        for (int i = 0; i < t->graph->n_nodes; i++)
            live[i] = t->done[i] == 2;
        memcpy(sorted, t->order, (size_t)count * sizeof *sorted);
        memset(t->done, 0, (size_t)t->graph->n_nodes);
        t->n_order = 0;
        /* All forward nodes come first, so that the forward pass can run alone. */
        status = settle_pass(t, false, sorted, count, live, waits);
        CLT_NEXT(status, settle_pass(t, true, sorted, count, live, waits));
    }
    CLT_FREE(live, waits, sorted);
    return status;
}

static void sweep(clt_graph *graph, const traversal *t)
{
    int kept = 0;
    for (int i = 0; i < graph->n_values; i++) {
        clt_value *value = graph->values[i];
        bool stays = t->live[i] || (value->producer && t->done[value->producer->id] == 2);
        if (stays) {
            graph->values[kept++] = value;
        } else {
            CLT_FREE(value->name, value->data, value);
        }
    }
    graph->n_values = kept;
    for (int i = 0; i < graph->n_nodes; i++) {
        clt_node *node = graph->nodes[i];
        if (node->origin && t->done[node->origin->id] != 2)
            node->origin = NULL;
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        clt_node *node = graph->nodes[i];
        if (t->done[node->id] == 2)
            continue;
        CLT_FREE(node->name, node->in, node->attr, node);
    }
    if (t->n_order) /* a graph of parameters alone has no array of nodes */
        memcpy(graph->nodes, t->order, (size_t)t->n_order * sizeof *t->order);
    graph->n_nodes = t->n_order;
    for (int i = 0; i < graph->n_values; i++)
        graph->values[i]->id = i;
    for (int i = 0; i < graph->n_nodes; i++)
        graph->nodes[i]->id = i;
}

clt_status clt_graph_clean(clt_graph *graph, clt_value *const *keep, int n_keep)
{
    traversal t = {.graph = graph};
    clt_status status = CLT_OUT_OF_MEMORY;
    t.live = clt_calloc((size_t)graph->n_values + 1, 1);
    t.done = clt_calloc((size_t)graph->n_nodes + 1, 1);
    t.order = clt_calloc((size_t)graph->n_nodes + 1, sizeof *t.order);
    if (t.live && t.done && t.order)
        status = visit_roots(&t, keep, n_keep);
    CLT_NEXT(status, settle_order(&t));
    if (status == CLT_OK) {
        sweep(graph, &t);
        status = clt_graph_index_names(graph);
    }
    CLT_FREE(t.live, t.done, t.order);
    return status;
}
