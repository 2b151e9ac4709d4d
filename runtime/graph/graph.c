/* Creates and destroys graphs, values and nodes. */
#include "graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/vec.h"

clt_status clt_graph_create(clt_graph **graph)
{
    clt_graph *g = CLT_NEW(clt_graph);
    CLT_TRY_MEMORY(g);
    *graph = g;
    return CLT_OK;
}

static void value_destroy(clt_value *value)
{
    CLT_FREE(value->name, value->data, value);
}

static void node_destroy(clt_node *node)
{
    CLT_FREE(node->name, node->in, node->attr, node);
}

void clt_graph_destroy(clt_graph *graph)
{
    if (!graph)
        return;
    for (int i = 0; i < graph->n_values; i++)
        value_destroy(graph->values[i]);
    for (int i = 0; i < graph->n_nodes; i++)
        node_destroy(graph->nodes[i]);
    clt_graph_forget_means(graph);
    for (int i = 0; i < graph->n_loras; i++)
        CLT_FREE(graph->loras[i].layer, graph->loras[i].weight);
    CLT_FREE(graph->loras, graph->values, graph->nodes, graph->assigns, graph->losses,
             graph->metrics, graph->seeds, graph->file_prefix, graph->file_ignored);
    clt_table_free(&graph->names);
    CLT_FREE(graph->message, graph);
}

clt_status clt_graph_status(const clt_graph *graph)
{
    if (graph->status != CLT_OK)
        clt_error_restore(graph->message ? graph->message : clt_status_text(graph->status));
    return graph->status;
}

void *clt_graph_failed(clt_graph *graph, clt_status status)
{
    if (graph && graph->status == CLT_OK && status != CLT_OK) {
        graph->status = status;
        graph->message = clt_strdup(clt_error_message());
    }
    return NULL;
}

static clt_status check_type(const clt_type *type, const char *name)
{
    if (type->rank < 0 || type->rank > CLT_MAX_RANK)
        return clt_fail(CLT_SHAPE, "value %s has %d dimensions; at most %d are possible", name,
                        type->rank, CLT_MAX_RANK);
    if (!clt_dtype_of_tensor(type->dtype))
        return clt_fail(CLT_INVALID_ARGUMENT, "value %s has the unknown element type %d", name,
                        (int)type->dtype);
    int64_t elements = 1;
    for (int i = 0; i < type->rank; i++) {
        const int64_t dim = type->dims[i];
        const int64_t size = dim == INT64_MIN ? 0 : dim < 0 ? -dim : dim;
        if (!size || elements > INT64_MAX / 16 / size)
            return clt_fail(CLT_SHAPE, "value %s: dimension %d of size %lld is not possible", name,
                            i, (long long)dim);
        elements *= size;
    }
    return CLT_OK;
}

static clt_value *value_new(clt_graph *graph, clt_value_kind kind, const clt_type *type,
                            const char *name)
{
    clt_status status = check_type(type, name ? name : "of a node");
    if (status != CLT_OK)
        return clt_graph_failed(graph, status);
    clt_value *value = CLT_NEW(clt_value);
    if (!value)
        goto memory;
    value->graph = graph;
    value->kind = kind;
    value->type = *type;
    value->id = graph->n_values;
    if (name && (!(value->name = clt_strdup(name)) || clt_graph_index_name(graph, value) != CLT_OK))
        goto memory;
    if (CLT_PUSH(graph->values, graph->n_values, graph->room_values, value) == CLT_OK)
        return value;
memory:
    if (value)
        value_destroy(value);
    return clt_graph_failed(graph, CLT_OUT_OF_MEMORY);
}

clt_value *clt_graph_value(clt_graph *graph, clt_value_kind kind, const clt_type *type,
                           const char *name)
{
    if (!graph || graph->status != CLT_OK)
        return NULL;
    if (name && clt_graph_find(graph, name))
        return clt_graph_failed(
            graph, clt_fail(CLT_INVALID_ARGUMENT, "the graph has two values of the name %s", name));
    return value_new(graph, kind, type, name);
}

void clt_graph_set_origin(clt_graph *graph, const clt_node *origin)
{
    graph->origin = origin;
}

/* Names a node: forward nodes "relu_3" until they are renamed, backward nodes "relu_3.relu_grad"
 * after their origin. */
static char *node_name(const clt_graph *graph, const clt_op *op)
{
    char text[160];
    if (graph->origin)
        snprintf(text, sizeof text, "%s.%s", graph->origin->name, op->name);
    else
        snprintf(text, sizeof text, "%s_%d", op->name, graph->n_nodes);
    return clt_strdup(text);
}

static clt_status node_fill(clt_node *node, clt_value *const *in, int n_in, const void *attr)
{
    const clt_op *op = node->op;
    const int least = clt_op_least(op), most = clt_op_most(op);
    if (n_in < least || n_in > most)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s takes %d to %d operands, not %d", op->name, least,
                        most, n_in);
    node->n_in = n_in;
    node->in = clt_calloc((size_t)(n_in ? n_in : 1), sizeof *node->in);
    CLT_TRY_MEMORY(node->in && (node->name = node_name(node->graph, op)));
    for (int i = 0; i < n_in; i++) {
        if (!in[i] && i < least)
            return clt_fail(CLT_INVALID_ARGUMENT, "%s: operand %d is missing", op->name, i);
        if (in[i] && in[i]->graph != node->graph)
            return clt_fail(CLT_INVALID_ARGUMENT, "%s: operand %d is of another graph", op->name,
                            i);
        node->in[i] = in[i];
    }
    if (op->attr_bytes) {
        CLT_TRY_MEMORY(node->attr = clt_alloc(op->attr_bytes));
        memcpy(node->attr, attr, op->attr_bytes);
    }
    return clt_attributes_check(op, attr);
}

/* Adds a node. The outputs have the types of `model`'s outputs; NULL: the operator infers them. */
static clt_node *add_node(clt_graph *graph, const clt_op *op, clt_value *const *in, int n_in,
                          const void *attr, const clt_node *model)
{
    if (!graph || graph->status != CLT_OK)
        return NULL;
    clt_type types[CLT_MAX_OUTPUTS] = {{0}};
    for (int i = 0; model && i < model->n_out; i++)
        types[i] = model->out[i]->type;
    clt_status status = CLT_OUT_OF_MEMORY;
    clt_node *node = CLT_NEW(clt_node);
    if (!node)
        goto fail;
    node->graph = graph;
    node->op = op;
    node->id = graph->n_nodes;
    node->n_out = clt_op_results(op);
    node->origin = graph->origin;
    node->backward = graph->origin != NULL;
    node->stage = graph->origin ? graph->origin->stage : -1;
    node->piece = graph->origin ? graph->origin->piece : -1;
    CLT_TRY_GOTO(status, node_fill(node, in, n_in, attr), fail);
    if (!model)
        CLT_TRY_GOTO(status, op->infer(node, types), fail);
    for (int i = 0; i < node->n_out; i++) {
        node->out[i] = value_new(graph, CLT_VALUE_INTERMEDIATE, &types[i], NULL);
        if (!node->out[i]) {
            status = graph->status;
            goto fail;
        }
        node->out[i]->producer = node;
        node->out[i]->slot = i;
    }
    CLT_TRY_GOTO(status, CLT_PUSH(graph->nodes, graph->n_nodes, graph->room_nodes, node), fail);
    for (int i = 0; i < n_in; i++)
        if (in[i] && !in[i]->first_reader)
            in[i]->first_reader = graph->n_nodes;
    return node;
fail:
    if (node)
        node_destroy(node);
    return clt_graph_failed(graph, status);
}

clt_node *clt_graph_add(clt_graph *graph, const clt_op *op, clt_value *const *in, int n_in,
                        const void *attr)
{
    return add_node(graph, op, in, n_in, attr, NULL);
}

clt_node *clt_graph_add_twin(clt_graph *graph, const clt_node *model, clt_value *const *in)
{
    return add_node(graph, model->op, in, model->n_in, model->attr, model);
}

clt_value *clt_emit1(const clt_op *op, const void *attr, int n_in, ...)
{
    clt_value *in[16];
    clt_graph *graph = NULL;
    va_list args;
    va_start(args, n_in);
    for (int i = 0; i < n_in && i < 16; i++) {
        in[i] = va_arg(args, clt_value *);
        if (in[i] && !graph)
            graph = in[i]->graph;
    }
    va_end(args);
    for (int i = 0; i < n_in && i < clt_op_least(op); i++)
        if (!in[i])
            return NULL;
    clt_node *node = clt_graph_add(graph, op, in, n_in, attr);
    return node ? node->out[0] : NULL;
}

int clt_value_rank(const clt_value *value)
{
    return value->type.rank;
}

int64_t clt_value_dim(const clt_value *value, int axis)
{
    return value->type.dims[axis];
}

clt_dtype clt_value_dtype(const clt_value *value)
{
    return value->type.dtype;
}

const char *clt_value_name(const clt_value *value)
{
    return value->name;
}

void clt_graph_first_readers(const clt_graph *graph, int *first)
{
    for (int i = 0; i < graph->n_values; i++)
        first[i] = graph->n_nodes;
    for (int i = graph->n_nodes - 1; i >= 0; i--)
        for (int j = 0; j < graph->nodes[i]->n_in; j++)
            if (graph->nodes[i]->in[j])
                first[graph->nodes[i]->in[j]->id] = i;
}
