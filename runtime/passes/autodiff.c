#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include "graph/mesh.h"
#include "ops/collective/collective.h"
#include "ops/core/ops.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

/* A node that other places wait for, forward and backward. Then it does not matter what this place
 * does with its result. */
static bool is_awaited(const clt_node *node)
{
    return node->op->effect && node->op->gradient;
}

/* State of one differentiation. Arrays are indexed by the ids of values at its start. */
typedef struct diff {
    clt_graph *graph;
    int n_values;
    bool *wanted;     /* the value depends on a wanted value */
    clt_value **grad; /* gradient summed so far */
} diff;

static void mark_wanted(diff *d, clt_value *const *wanted, int n_wanted)
{
    for (int i = 0; i < n_wanted; i++)
        d->wanted[wanted[i]->id] = true;
    for (int i = 0; i < d->graph->n_nodes; i++) {
        const clt_node *node = d->graph->nodes[i];
        bool any = is_awaited(node);
        for (int j = 0; j < node->n_in; j++)
            any = any || (node->in[j] && d->wanted[node->in[j]->id]);
        for (int j = 0; j < node->n_out; j++)
            d->wanted[node->out[j]->id] = any;
    }
}

static clt_value *sum_of(clt_value *before, clt_value *term);

enum { MOST_OF_SUM = 4 };

/* The node of a sum that can continue from another value, or NULL. */
static const clt_node *continues(const clt_value *sum)
{
    const clt_node *node = sum->producer;
    return node && node->op->base && node->n_in <= MOST_OF_SUM ? node : NULL;
}

/* Adds a copy of the sum's node that also adds `more`, by its base operand. Where the sum
 * continues from others, `more` goes below them and they are copied too. NULL if the operator has
 * no base. */
static clt_value *added_to(clt_value *sum, clt_value *more)
{
    const clt_node **sums = NULL;
    int n_sums = 0, room = 0;
    clt_value *value = sum;
    clt_status status = CLT_OK;
    while (status == CLT_OK && value && continues(value) && !(n_sums && continues(more))) {
        status = CLT_PUSH(sums, n_sums, room, continues(value));
        value = continues(value)->in[continues(value)->op->base];
    }
    if (status == CLT_OK && n_sums)
        value = !value ? more : continues(more) ? sum_of(value, more) : clt_add(value, more);
    else
        value = NULL;
    for (int i = n_sums - 1; i >= 0 && value; i--) {
        clt_value *in[MOST_OF_SUM];
        memcpy(in, sums[i]->in, (size_t)sums[i]->n_in * sizeof *in);
        in[sums[i]->op->base] = value;
        const clt_node *twin =
            clt_graph_add(more->graph, sums[i]->op, in, sums[i]->n_in, sums[i]->attr);
        value = twin ? twin->out[0] : NULL;
    }
    clt_free(sums);
    clt_graph_failed(more->graph, status);
    return value;
}

/* Adds two gradients of a value that several nodes use. If one is a sum over few rows of a large
 * tensor, that sum continues from the other gradient. A separate addition would read and write the
 * whole tensor. */
static clt_value *sum_of(clt_value *before, clt_value *term)
{
    clt_value *sum = added_to(term, before);
    if (!sum)
        sum = added_to(before, term);
    return sum ? sum : clt_add(before, term);
}

static clt_status collect(diff *d, const clt_value *value, clt_value *term)
{
    if (!term)
        return clt_graph_status(d->graph);
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    if (!clt_type_equal(&value->type, &term->type))
        return clt_fail(CLT_INTERNAL, "the gradient of %s has the type %s, not %s",
                        clt_value_called(value), clt_type_text(&term->type, b),
                        clt_type_text(&value->type, a));
    clt_value *before = d->grad[value->id];
    d->grad[value->id] = before ? sum_of(before, term) : term;
    return clt_graph_status(d->graph);
}

static clt_status apply_rule(diff *d, const clt_node *node)
{
    clt_value *dy[CLT_MAX_OUTPUTS] = {NULL};
    bool any = is_awaited(node);
    for (int i = 0; i < node->n_out; i++) {
        dy[i] = d->grad[node->out[i]->id];
        any = any || (dy[i] && d->wanted[node->out[i]->id]);
    }
    if (!any)
        return CLT_OK;
    if (!node->op->gradient)
        return clt_fail(CLT_UNSUPPORTED, "node %s: operator %s has no gradient", node->name,
                        node->op->name);
    enum { MOST = 64 };
    clt_value *dx[MOST] = {NULL};
    bool wanted[MOST] = {false};
    if (node->n_in > MOST)
        return clt_fail(CLT_UNSUPPORTED, "node %s: more than %d operands", node->name, MOST);
    for (int i = 0; i < node->n_in; i++)
        wanted[i] = node->in[i] && d->wanted[node->in[i]->id];
    clt_graph_set_origin(d->graph, node);
    clt_status status = node->op->gradient(node, dy, wanted, dx);
    for (int i = 0; status == CLT_OK && i < node->n_in; i++)
        if (wanted[i])
            status = collect(d, node->in[i], dx[i]);
    clt_graph_set_origin(d->graph, NULL);
    return status == CLT_OK ? clt_graph_status(d->graph)
                            : clt_fail_prefix(status, "gradient of node %s: ", node->name);
}

clt_status clt_autodiff(clt_graph *graph, clt_value *const *outputs, clt_value *const *seeds,
                        int n_outputs, clt_value *const *wanted, int n_wanted,
                        clt_value **gradients)
{
    CLT_TRY(clt_graph_status(graph));
    const int n_nodes = graph->n_nodes;
    diff d = {.graph = graph, .n_values = graph->n_values};
    clt_status status = CLT_OUT_OF_MEMORY;
    d.wanted = clt_calloc((size_t)d.n_values + 1, sizeof *d.wanted);
    d.grad = clt_calloc((size_t)d.n_values + 1, sizeof *d.grad);
    if (!d.wanted || !d.grad)
        goto done;
    mark_wanted(&d, wanted, n_wanted);
    status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < n_outputs; i++)
        status = collect(&d, outputs[i], seeds[i]);
    for (int i = n_nodes - 1; status == CLT_OK && i >= 0; i--)
        status = apply_rule(&d, graph->nodes[i]);
    for (int i = 0; status == CLT_OK && i < n_wanted; i++)
        gradients[i] = d.grad[wanted[i]->id];
done:
    CLT_FREE(d.wanted, d.grad);
    return status;
}

/* Returns a gradient that a bucket can hold: a node's own output that nothing else shares. A
 * gradient that is `kept` already belongs to another parameter, so it is copied. */
static clt_value *own_value(clt_value *gradient)
{
    if (gradient->producer && !gradient->producer->op->view &&
        !gradient->producer->op->collective && !gradient->output && !gradient->kept)
        return gradient;
    clt_value *copy = clt_copy(gradient);
    if (copy)
        copy->producer->backward = true;
    return copy;
}

static clt_status add_upstreams(clt_graph *graph, clt_value **outputs, clt_value **seeds)
{
    for (int i = 0; i < graph->n_losses; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s.upstream", graph->losses[i].name);
        clt_value *upstream =
            clt_graph_value(graph, CLT_VALUE_INPUT, &graph->losses[i].sum->type, name);
        if (!upstream)
            return clt_graph_status(graph);
        graph->losses[i].upstream = upstream;
        outputs[i] = graph->losses[i].sum;
        seeds[i] = upstream;
    }
    return CLT_OK;
}

static bool any_frozen(const clt_graph *graph)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->frozen)
            return true;
    return false;
}

/* Makes the gradient of an input an output, by its name. */
static clt_status output_gradient(clt_graph *graph, const clt_value *input, clt_value *gradient)
{
    char name[256];
    if (!gradient)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "input %s has no gradient: no loss, and no output of clt_output_gradient, "
                        "depends on it",
                        input->name);
    snprintf(name, sizeof name, "%s" CLT_INPUT_GRADIENT, input->name);
    clt_value *own = clt_output(own_value(gradient), name);
    if (!own)
        return clt_graph_status(graph);
    own->input_gradient = true;
    return CLT_OK;
}

clt_status clt_pass_sum_input_gradients(clt_graph *graph, const clt_mesh *mesh)
{
    static const clt_axis axes[] = {CLT_AXIS_SPACE, CLT_AXIS_TIME};
    const int n_values = graph->n_values;
    for (int i = 0; i < n_values; i++) {
        clt_value *v = graph->values[i];
        for (int a = 0; a < 2 && v->input_gradient && v->output; a++) {
            if (mesh->size[axes[a]] == 1)
                continue;
            char label[300];
            snprintf(label, sizeof label, "%s.%s", v->name, clt_axis_name(axes[a]));
            clt_value *sum = clt_label(clt_axis_all_reduce(v, axes[a], CLT_AXIS_SUM), label);
            if (!sum)
                return clt_graph_status(graph);
            sum->producer->backward = true;
            clt_graph_move_output(v, sum);
            v = sum;
        }
    }
    return CLT_OK;
}

clt_status clt_pass_train(clt_graph *graph, clt_value **gradients)
{
    if (!graph->n_losses && !graph->n_seeds && graph->n_nodes)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "the graph has nothing to train: call clt_loss or clt_output_gradient "
                        "before making a plan");
    int n_trained = 0, n_wanted;
    const int n_values = graph->n_values;
    size_t n = (size_t)graph->n_losses + (size_t)graph->n_seeds;
    clt_status status = CLT_OUT_OF_MEMORY;
    clt_value **outputs = clt_calloc(n + 1, sizeof *outputs);
    clt_value **seeds = clt_calloc(n + 1, sizeof *seeds);
    clt_value **wanted = clt_calloc((size_t)n_values + 1, sizeof *wanted);
    clt_value **found = clt_calloc((size_t)n_values + 1, sizeof *found);
    if (!outputs || !seeds || !wanted || !found)
        goto done;
    for (int i = 0; i < n_values; i++)
        if (clt_value_trained(graph->values[i]))
            wanted[n_trained++] = graph->values[i];
    n_wanted = n_trained;
    for (int i = 0; i < n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_INPUT && graph->values[i]->input_gradient)
            wanted[n_wanted++] = graph->values[i];
    if (!n_wanted && any_frozen(graph)) {
        status = clt_fail(CLT_INVALID_ARGUMENT, "all parameters are frozen: nothing to train");
        goto done;
    }
    CLT_TRY_GOTO(status, add_upstreams(graph, outputs, seeds), done);
    for (int i = 0; i < graph->n_seeds; i++) {
        outputs[graph->n_losses + i] = graph->seeds[i].output;
        seeds[graph->n_losses + i] = graph->seeds[i].gradient;
    }
    graph->n_seeds = 0;
    CLT_TRY_GOTO(status, clt_autodiff(graph, outputs, seeds, (int)n, wanted, n_wanted, found),
                 done);
    for (int i = 0; i < n_trained; i++) {
        gradients[i] = found[i] ? own_value(found[i]) : NULL;
        if (gradients[i])
            gradients[i]->kept = true;
        CLT_TRY_GOTO(status, clt_graph_status(graph), done);
    }
    for (int i = n_trained; i < n_wanted; i++)
        CLT_TRY_GOTO(status, output_gradient(graph, wanted[i], found[i]), done);
done:
    CLT_FREE(outputs, seeds, wanted, found);
    return status;
}
