/* The public builders of values without an operator: inputs, constants, parameters, states, losses
 * and metrics. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/vec.h"
#include "graph/graph.h"

static clt_value *named(clt_graph *graph, clt_value_kind kind, const char *name, clt_dtype dtype,
                        int rank, const int64_t *dims, clt_init init)
{
    if (!graph || graph->status != CLT_OK)
        return NULL;
    if ((kind != CLT_VALUE_CONSTANT && (!name || !*name)) || rank < 0 || rank > CLT_MAX_RANK)
        return clt_graph_failed(graph,
                                clt_fail(CLT_INVALID_ARGUMENT,
                                         "an input, parameter or state needs a name and 0 to %d "
                                         "dimensions (%s has %d)",
                                         CLT_MAX_RANK, name ? name : "(no name)", rank));
    clt_type type = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) {
        type.dims[i] = dims[i];
        if (dims[i] < 0 && (i > 0 || kind != CLT_VALUE_INPUT))
            return clt_graph_failed(
                graph, clt_fail(CLT_SHAPE,
                                "%s: dimension %d depends on the batch; only the first dimension "
                                "of an input can",
                                name ? name : "a constant", i));
    }
    clt_value *value = clt_graph_value(graph, kind, &type, name);
    if (value) {
        value->init = init;
        value->rate = 1;
        value->decay = CLT_COMMON_DECAY;
    }
    return value;
}

clt_value *clt_input(clt_graph *graph, const char *name, clt_dtype dtype, int rank,
                     const int64_t *dims)
{
    return named(graph, CLT_VALUE_INPUT, name, dtype, rank, dims, (clt_init){0});
}

clt_value *clt_parameter(clt_graph *graph, const char *name, int rank, const int64_t *dims,
                         clt_init init)
{
    return named(graph, CLT_VALUE_PARAMETER, name, CLT_F32, rank, dims, init);
}

clt_value *clt_state(clt_graph *graph, const char *name, clt_dtype dtype, int rank,
                     const int64_t *dims, clt_init init)
{
    return named(graph, CLT_VALUE_STATE, name, dtype, rank, dims, init);
}

clt_value *clt_carried(clt_graph *graph, const char *name, clt_dtype dtype, int rank,
                       const int64_t *dims)
{
    clt_value *value = clt_state(graph, name, dtype, rank, dims, (clt_init){CLT_INIT_ZERO, 0, 0});
    if (value)
        value->carried = true;
    return value;
}

clt_value *clt_constant(clt_graph *graph, clt_dtype dtype, int rank, const int64_t *dims,
                        const void *data)
{
    clt_value *value = named(graph, CLT_VALUE_CONSTANT, NULL, dtype, rank, dims, (clt_init){0});
    if (!value)
        return NULL;
    if (!data)
        return clt_graph_failed(graph,
                                clt_fail(CLT_INVALID_ARGUMENT, "constant: there are no data"));
    size_t bytes = (size_t)clt_type_elements(&value->type, 0) * (size_t)clt_dtype_size(dtype);
    value->data = clt_alloc(bytes);
    if (!value->data)
        return clt_graph_failed(graph, CLT_OUT_OF_MEMORY);
    memcpy(value->data, data, bytes);
    return value;
}

clt_status clt_assign(clt_graph *graph, clt_value *state, clt_value *value)
{
    if (graph->status != CLT_OK || !state || !value)
        return clt_graph_status(graph);
    clt_status status = CLT_OK;
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    if (state->kind != CLT_VALUE_STATE)
        status = clt_fail(CLT_INVALID_ARGUMENT, "assign: the target is not a state");
    else if (!clt_type_equal(&state->type, &value->type))
        status = clt_fail(CLT_SHAPE, "assign to %s: %s does not take %s", state->name,
                          clt_type_text(&state->type, a), clt_type_text(&value->type, b));
    else if (state->assigned)
        status = clt_fail(CLT_INVALID_ARGUMENT, "state %s is assigned twice", state->name);
    CLT_NEXT(status, CLT_PUSH(graph->assigns, graph->n_assigns, graph->room_assigns,
                              (clt_assignment){state, value}));
    state->assigned = status == CLT_OK || state->assigned;
    clt_graph_failed(graph, status);
    return status;
}

clt_value *clt_name(clt_value *value, const char *name)
{
    if (!value || value->graph->status != CLT_OK)
        return value;
    clt_graph *graph = value->graph;
    const clt_value *other = clt_graph_find(graph, name);
    if (other == value)
        return value;
    if (other || value->kind != CLT_VALUE_INTERMEDIATE)
        return clt_graph_failed(
            graph,
            clt_fail(CLT_INVALID_ARGUMENT, "the name %s is taken, or the value has a name", name));
    char *copy = clt_strdup(name), *node_copy = clt_strdup(name);
    if (!copy || !node_copy) {
        CLT_FREE(copy, node_copy);
        return clt_graph_failed(graph, CLT_OUT_OF_MEMORY);
    }
    clt_free(value->name);
    value->name = copy;
    clt_graph_failed(graph, clt_graph_index_name(graph, value));
    if (value->slot == 0) {
        clt_free(value->producer->name);
        value->producer->name = node_copy;
    } else {
        clt_free(node_copy);
    }
    return graph->status == CLT_OK ? value : NULL;
}

clt_value *clt_label(clt_value *value, const char *label)
{
    if (!value || value->graph->status != CLT_OK || !value->producer)
        return value;
    char *copy = clt_strdup(label);
    if (!copy)
        return clt_graph_failed(value->graph, CLT_OUT_OF_MEMORY);
    clt_free(value->producer->name);
    value->producer->name = copy;
    return value;
}

clt_value *clt_output(clt_value *value, const char *name)
{
    value = clt_name(value, name);
    if (value)
        value->output = true;
    return value;
}

clt_value *clt_output_gradient(clt_value *output, const char *name)
{
    char text[CLT_TYPE_TEXT];
    if (!output || output->graph->status != CLT_OK)
        return NULL;
    clt_graph *graph = output->graph;
    clt_status status = CLT_OK;
    if (!output->output || output->kind != CLT_VALUE_INTERMEDIATE)
        status =
            clt_fail(CLT_INVALID_ARGUMENT,
                     "%s: only a computed value that clt_output has marked takes a gradient", name);
    else if (output->type.dtype != CLT_F32)
        status = clt_fail(CLT_INVALID_ARGUMENT, "%s: %s is %s; only f32 has gradients", name,
                          output->name, clt_type_text(&output->type, text));
    for (int i = 0; status == CLT_OK && i < graph->n_seeds; i++)
        if (graph->seeds[i].output == output)
            status = clt_fail(CLT_INVALID_ARGUMENT,
                              "output %s has a gradient already, %s: only one is possible",
                              output->name, graph->seeds[i].gradient->name);
    clt_graph_failed(graph, status);
    clt_value *gradient = clt_graph_value(graph, CLT_VALUE_INPUT, &output->type, name);
    if (!gradient)
        return NULL;
    gradient->output_gradient = true;
    status =
        CLT_PUSH(graph->seeds, graph->n_seeds, graph->room_seeds, ((clt_seed){output, gradient}));
    clt_graph_failed(graph, status);
    return status == CLT_OK ? gradient : NULL;
}

static const char *nearest_input(const clt_graph *graph, const char *name)
{
    const char **names = clt_calloc((size_t)graph->n_values + 1, sizeof *names);
    int n = 0;
    for (int i = 0; names && i < graph->n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_INPUT)
            names[n++] = graph->values[i]->name;
    const char *near = names ? clt_nearest(name, names, n) : NULL;
    clt_free(names);
    return near;
}

clt_status clt_input_gradient(clt_graph *graph, const char *name)
{
    char text[CLT_TYPE_TEXT];
    CLT_TRY(clt_graph_status(graph));
    clt_value *input = clt_graph_find(graph, name);
    if (!input || input->kind != CLT_VALUE_INPUT) {
        const char *near = nearest_input(graph, name);
        return clt_fail(CLT_NOT_FOUND, "the graph has no input %s%s%s%s", name,
                        near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    if (input->output_gradient)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "input %s is itself the gradient of an output: it has no gradient", name);
    if (input->type.dtype != CLT_F32)
        return clt_fail(CLT_INVALID_ARGUMENT, "input %s is %s; only f32 has gradients", name,
                        clt_type_text(&input->type, text));
    input->input_gradient = true;
    return CLT_OK;
}

static clt_status add_mean(clt_graph *graph, clt_mean **items, int *count, int *room,
                           const char *name, clt_value *sum, clt_value *weight, double coefficient)
{
    if (graph->status != CLT_OK || !sum || !weight)
        return clt_graph_status(graph);
    clt_status status = CLT_OK;
    if (sum->type.dtype != CLT_F32 || clt_type_has_batch(&sum->type) ||
        clt_type_elements(&sum->type, 0) != 1 || weight->type.dtype != CLT_F32 ||
        clt_type_has_batch(&weight->type) || clt_type_elements(&weight->type, 0) != 1) {
        char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
        status = clt_fail(CLT_SHAPE,
                          "%s: a loss or metric needs one f32 element as sum and as weight, not %s "
                          "and %s",
                          name, clt_type_text(&sum->type, a), clt_type_text(&weight->type, b));
    } else if (!isfinite(coefficient)) {
        status = clt_fail(CLT_INVALID_ARGUMENT, "loss %s: the coefficient %g is not finite", name,
                          coefficient);
    }
    clt_mean mean = {.sum = sum, .weight = weight, .coefficient = coefficient};
    if (status == CLT_OK && !(mean.name = clt_strdup(name)))
        status = CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, CLT_PUSH(*items, *count, *room, mean));
    clt_graph_failed(graph, status);
    return status;
}

clt_status clt_loss(clt_graph *graph, const char *name, clt_value *sum, clt_value *weight,
                    double coefficient)
{
    return add_mean(graph, &graph->losses, &graph->n_losses, &graph->room_losses, name, sum, weight,
                    coefficient);
}

clt_status clt_metric(clt_graph *graph, const char *name, clt_value *sum, clt_value *weight)
{
    return add_mean(graph, &graph->metrics, &graph->n_metrics, &graph->room_metrics, name, sum,
                    weight, 1);
}

int clt_graph_loss_count(const clt_graph *graph)
{
    return graph->n_losses;
}

const char *clt_graph_loss_name(const clt_graph *graph, int index)
{
    return index >= 0 && index < graph->n_losses ? graph->losses[index].name : NULL;
}

double clt_graph_loss_coefficient(const clt_graph *graph, int index)
{
    return index >= 0 && index < graph->n_losses ? graph->losses[index].coefficient : 0;
}

int clt_graph_metric_count(const clt_graph *graph)
{
    return graph->n_metrics;
}

const char *clt_graph_metric_name(const clt_graph *graph, int index)
{
    return index >= 0 && index < graph->n_metrics ? graph->metrics[index].name : NULL;
}
