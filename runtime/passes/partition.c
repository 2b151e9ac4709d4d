#include "passes/partition.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include "passes/space.h"
#include "passes/time.h"
#include <cltrain/ops.h>

/* --- values that no node makes --------------------------------------------------------------- */

/* Puts a parameter's part in the parameter's place. The old value keeps its id, by which nodes find
 * the part. No local node uses the old value, so clt_graph_clean drops it. */
static clt_status split_parameter(clt_partitioning *p, int id)
{
    clt_graph *graph = p->graph;
    clt_value *old = graph->values[id], *part = CLT_NEW(clt_value);
    char whole[CLT_TYPE_TEXT], own[CLT_TYPE_TEXT];
    CLT_TRY_MEMORY(part);
    *part = *old;
    old->name = NULL;
    old->kind = CLT_VALUE_INTERMEDIATE;
    graph->values[id] = part;
    clt_status status = CLT_PUSH(graph->values, graph->n_values, graph->room_values, old);
    if (status != CLT_OK) {
        clt_free(old);
        return status;
    }
    const clt_sharding sharding = part->shardings[p->axis];
    CLT_TRY(clt_sharding_type(part->name, &old->type, sharding, p->at, &part->type));
    p->local[id] = part;
    p->placed[id].sharding = sharding;
    clt_str_add(&p->report->text, "%s %s: dimension %d of %s, part %s\n", clt_axis_name(p->axis),
                part->name, sharding.dim, clt_type_text(&old->type, whole),
                clt_type_text(&part->type, own));
    return CLT_OK;
}

static clt_status place_leaves(clt_partitioning *p)
{
    for (int i = 0; i < p->n_values; i++) {
        const clt_value *v = p->graph->values[i];
        if (v->kind == CLT_VALUE_PARAMETER && v->shardings[p->axis].blocks)
            CLT_TRY(split_parameter(p, i));
        else if (v->kind != CLT_VALUE_INTERMEDIATE)
            p->local[i] = p->graph->values[i];
        if (p->rules && p->local[i])
            CLT_TRY(clt_space_cut(p, v));
    }
    return CLT_OK;
}

/* --- nodes ----------------------------------------------------------------------------------- */

static clt_status collect_operands(clt_partitioning *p, const clt_node *node,
                                   const clt_node_dims *dims, const clt_node_choice *choice,
                                   clt_value **in)
{
    const bool summed = choice->label >= 0 && dims->behaviour[choice->label] == CLT_DIM_SUMMED;
    for (int i = 0; i < node->n_in; i++) {
        const clt_value *v = node->in[i];
        if (!v || choice->partial) {
            in[i] = v ? p->local[v->id] : NULL;
        } else if (summed && clt_partition_is_once(node, i)) {
            in[i] = clt_partition_addend(p, v);
        } else {
            const clt_sharding wanted =
                i < CLT_MAX_OPERANDS
                    ? clt_partition_sharding(&v->type, dims->in[i], dims->in_blocks[i], choice)
                    : (clt_sharding){0, 0};
            in[i] = clt_partition_convert(p, v, wanted);
        }
        CLT_TRY(clt_graph_status(p->graph));
    }
    return CLT_OK;
}

static void place_results(clt_partitioning *p, const clt_node *node, const clt_node_dims *dims,
                          const clt_node_choice *choice)
{
    const bool summed = choice->label >= 0 && dims->behaviour[choice->label] == CLT_DIM_SUMMED;
    for (int o = 0; o < node->n_out; o++) {
        clt_placement *to = &p->placed[node->out[o]->id];
        to->partial = choice->partial || summed;
        if (to->partial || choice->label < 0)
            continue;
        to->sharding =
            clt_partition_sharding(&node->out[o]->type, dims->out[o], dims->out_blocks[o], choice);
        to->partial = dims->adds[o] && !to->sharding.blocks;
    }
}

/* Fails unless the results have the types of the parts that their placements say. */
static clt_status check_results(const clt_partitioning *p, const clt_node *node)
{
    char is[CLT_TYPE_TEXT], must[CLT_TYPE_TEXT];
    for (int o = 0; o < node->n_out; o++) {
        const clt_value *old = node->out[o], *own = p->local[old->id];
        clt_type part;
        CLT_TRY(
            clt_sharding_type(node->name, &old->type, p->placed[old->id].sharding, p->at, &part));
        if (!clt_type_equal(&own->type, &part))
            return clt_fail(CLT_INTERNAL, "node %s (%s), divided over %s, gives %s instead of %s",
                            node->name, node->op->name, clt_axis_name(p->axis),
                            clt_type_text(&own->type, is), clt_type_text(&part, must));
    }
    return CLT_OK;
}

void clt_partition_exchange_names(clt_node *old, clt_node *node)
{
    char *kept = old->name;
    old->name = node->name;
    node->name = kept;
}

clt_status clt_partition_place(clt_partitioning *p, clt_node *node, clt_value *out,
                               clt_sharding sharding)
{
    clt_type part;
    CLT_TRY(clt_graph_status(p->graph));
    CLT_TRY(clt_sharding_type(node->name, &node->out[0]->type, sharding, p->at, &part));
    if (!clt_type_equal(&out->type, &part))
        return clt_fail(CLT_INTERNAL, "node %s (%s) gives a wrong part of its result", node->name,
                        node->op->name);
    clt_partition_exchange_names(node, out->producer);
    p->nodes[node->id] = out->producer;
    p->local[node->out[0]->id] = out;
    p->placed[node->out[0]->id].sharding = sharding;
    return CLT_OK;
}

static clt_status add_local(clt_partitioning *p, clt_node *node, const clt_node_part *part,
                            clt_value *const *in)
{
    const clt_op *op = node->op;
    void *attr = clt_alloc(op->attr_bytes + 1);
    CLT_TRY_MEMORY(attr);
    if (op->attr_bytes)
        memcpy(attr, node->attr, op->attr_bytes);
    clt_status status = part->label >= 0 && op->localise ? op->localise(node, part, attr) : CLT_OK;
    clt_node *local = status == CLT_OK ? clt_graph_add(p->graph, op, in, node->n_in, attr) : NULL;
    clt_free(attr);
    CLT_TRY(status);
    if (!local)
        return clt_fail_prefix(clt_graph_status(p->graph), "node %s, divided over %s: ", node->name,
                               clt_axis_name(p->axis));
    clt_partition_exchange_names(node, local);
    p->nodes[node->id] = local;
    for (int o = 0; o < node->n_out; o++)
        p->local[node->out[o]->id] = local->out[o];
    return CLT_OK;
}

/* The operator itself emits nodes with collectives. */
static clt_status add_divided(clt_partitioning *p, const clt_node *node, const clt_node_part *part,
                              clt_value *const *in)
{
    clt_value *out[CLT_MAX_OUTPUTS] = {NULL};
    const int stash = node->origin ? node->origin->id : node->id;
    CLT_TRY(node->op->divide(node, part, in, p->stash[stash], out));
    CLT_TRY(clt_graph_status(p->graph));
    for (int o = 0; o < node->n_out; o++)
        p->local[node->out[o]->id] = out[o];
    return CLT_OK;
}

static void report_node(clt_partitioning *p, const clt_node *node, const clt_node_choice *choice)
{
    if (!choice->gathers)
        return;
    if (!p->report->gathers++)
        snprintf(p->report->gathered, sizeof p->report->gathered, "%.100s (%s, axis %s)",
                 node->name, node->op->name, clt_axis_name(p->axis));
    clt_str_add(&p->report->text, "%s %s: %s cannot be divided, so its operands are gathered\n",
                clt_axis_name(p->axis), node->name, node->op->name);
}

/* Divides the node along a dimension of an operand that is split. */
static clt_status divide_node(clt_partitioning *p, clt_node *node, const clt_node_dims *dims)
{
    const clt_node_choice choice = clt_partition_choose(p, node, dims);
    const clt_node_part part = {p->axis, choice.label, choice.blocks, p->at};
    const bool divides = choice.label >= 0 && dims->behaviour[choice.label] == CLT_DIM_WHOLE;
    clt_value **in = clt_calloc((size_t)node->n_in + 1, sizeof *in);
    CLT_TRY_MEMORY(in);
    report_node(p, node, &choice);
    clt_status status = collect_operands(p, node, dims, &choice, in);
    CLT_NEXT(status, divides ? add_divided(p, node, &part, in) : add_local(p, node, &part, in));
    clt_free(in);
    CLT_TRY(status);
    place_results(p, node, dims, &choice);
    return check_results(p, node);
}

static clt_status visit(clt_partitioning *p, clt_node *node, clt_node_dims *dims)
{
    clt_graph *graph = p->graph;
    const int first = graph->n_nodes;
    bool done = false;
    p->backward = node->backward;
    clt_node_dims_of(node, dims);
    clt_graph_set_origin(graph, node->origin ? p->nodes[node->origin->id] : NULL);
    clt_status status = CLT_OK;
    if (p->rules)
        status = p->rules->visit(p, node, dims, &done);
    if (status == CLT_OK && !done)
        status = divide_node(p, node, dims);
    for (int o = 0; status == CLT_OK && p->rules && o < node->n_out; o++)
        status = clt_space_cut(p, node->out[o]);
    if (p->rules && p->rules->settle)
        p->rules->settle(p, node, first);
    clt_graph_set_origin(graph, NULL);
    for (int i = first; i < graph->n_nodes; i++) {
        graph->nodes[i]->backward = node->backward;
        if (graph->nodes[i]->stage < 0)
            graph->nodes[i]->stage = node->stage;
        if (graph->nodes[i]->piece < 0)
            graph->nodes[i]->piece = node->piece;
    }
    return status;
}

/* --- ends ------------------------------------------------------------------------------------ */

/* A value that must be computed by a node of its own: neither a view nor a collective may write
 * into the memory of results and gradients, nor may an input stand for it. */
static clt_value *own(clt_value *value, bool backward)
{
    if (!value || (value->producer && !value->producer->op->view &&
                   !value->producer->op->collective && !value->output && !value->kept))
        return value;
    clt_value *copy = clt_copy(value);
    if (copy)
        copy->producer->backward = backward;
    return copy;
}

/* Returns the whole value for an end of the graph. If a conversion is needed, it belongs to the
 * same pass, forward or backward, as the value. */
clt_value *clt_partition_end(clt_partitioning *p, const clt_value *old, clt_sharding wanted)
{
    const int first = p->graph->n_nodes;
    const bool backward = old->producer && old->producer->backward;
    clt_value *value = clt_partition_convert(p, old, wanted);
    if (old->producer)
        value = own(value, backward);
    for (int i = first; i < p->graph->n_nodes; i++) {
        p->graph->nodes[i]->backward = backward;
        p->graph->nodes[i]->stage = old->producer ? old->producer->stage : 0;
    }
    return value;
}

static void end_means(clt_partitioning *p, clt_mean *means, int count)
{
    const clt_sharding none = {0, 0};
    for (int i = 0; i < count; i++) {
        means[i].sum = clt_partition_end(p, means[i].sum, none);
        means[i].weight = clt_partition_end(p, means[i].weight, none);
    }
}

static clt_status end_gradients(clt_partitioning *p, clt_value **gradients)
{
    for (int i = 0, next = 0; i < p->n_values; i++) {
        const clt_value *v = p->graph->values[i];
        if (!clt_value_trained(v))
            continue;
        clt_value **gradient = &gradients[next++];
        if (!*gradient)
            continue;
        *gradient = clt_partition_end(p, *gradient, v->shardings[p->axis]);
        CLT_TRY(clt_graph_status(p->graph));
        (*gradient)->kept = true;
    }
    return CLT_OK;
}

/* Outputs are whole. Spare ones that are divided are no outputs any more. Other names move too,
 * because readers look for them. */
static clt_status end_outputs(clt_partitioning *p)
{
    for (int i = 0; i < p->n_values; i++) {
        clt_value *old = p->graph->values[i];
        if (old->kind != CLT_VALUE_INTERMEDIATE || (!old->output && !old->name))
            continue;
        const bool output = old->output && !(old->spare && p->placed[i].sharding.blocks);
        clt_value *value = output ? clt_partition_end(p, old, (clt_sharding){0, 0}) : p->local[i];
        CLT_TRY(clt_graph_status(p->graph));
        for (int k = 0; k < p->graph->n_seeds; k++)
            if (p->graph->seeds[k].output == old)
                p->graph->seeds[k].output = value;
        clt_graph_move_output(old, value);
        value->output = output;
    }
    return CLT_OK;
}

static clt_status end_graph(clt_partitioning *p, clt_value **gradients)
{
    clt_graph *graph = p->graph;
    if (p->rules) {
        CLT_TRY(p->rules->end(p));
    } else {
        end_means(p, graph->losses, graph->n_losses);
        end_means(p, graph->metrics, graph->n_metrics);
    }
    for (int i = 0; i < graph->n_assigns; i++)
        graph->assigns[i].value =
            clt_partition_end(p, graph->assigns[i].value, (clt_sharding){0, 0});
    CLT_TRY(clt_graph_status(graph));
    if (gradients)
        CLT_TRY(end_gradients(p, gradients));
    return end_outputs(p);
}

/* --- the pass -------------------------------------------------------------------------------- */

static void report_collectives(clt_partitioning *p, int first)
{
    char type[CLT_TYPE_TEXT];
    for (int i = first; i < p->graph->n_nodes; i++) {
        const clt_node *node = p->graph->nodes[i];
        if (node->op->collective)
            clt_str_add(&p->report->text, "%s %s: %s of %s\n", clt_axis_name(p->axis), node->name,
                        node->op->name, clt_type_text(&node->in[0]->type, type));
    }
}

static clt_status divide(clt_partitioning *p, clt_value **gradients)
{
    clt_node_dims *dims = CLT_NEW(clt_node_dims);
    clt_status status = dims ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (p->rules && p->rules->begin)
        CLT_NEXT(status, p->rules->begin(p));
    CLT_NEXT(status, clt_partition_demand(p, gradients));
    CLT_NEXT(status, place_leaves(p));
    for (int i = 0; status == CLT_OK && i < p->n_nodes; i++)
        status = visit(p, p->graph->nodes[i], dims);
    clt_free(dims);
    CLT_NEXT(status, end_graph(p, gradients));
    for (int i = 0; status == CLT_OK && i < p->n_nodes; i++)
        p->graph->nodes[i]->replaced = p->nodes[i] && p->nodes[i] != p->graph->nodes[i];
    if (status == CLT_OK)
        report_collectives(p, p->n_nodes);
    return status == CLT_OK && p->report->text.failed ? CLT_OUT_OF_MEMORY : status;
}

/* An axis of a mesh, and what is divided along it. */
typedef struct division {
    clt_axis axis;
    clt_coordinate at;
    int64_t batch;
    const clt_axis_rules *rules; /* NULL: a training graph */
    bool sequence;
} division;

static clt_status partition_axis(clt_graph *graph, const division *by, clt_value **gradients,
                                 int n_gradients, clt_partition_report *report)
{
    const size_t values = (size_t)graph->n_values + 1, nodes = (size_t)graph->n_nodes + 1;
    if (by->at.places == 1)
        return CLT_OK;
    if (by->at.places > CLT_MOST_PLACES)
        return clt_fail(CLT_UNSUPPORTED, "axis %s can have %d places, not %d",
                        clt_axis_name(by->axis), CLT_MOST_PLACES, by->at.places);
    clt_partitioning p = {.graph = graph,
                          .axis = by->axis,
                          .at = by->at,
                          .rules = by->rules,
                          .sequence = by->sequence,
                          .batch = by->batch,
                          .n_values = graph->n_values,
                          .n_nodes = graph->n_nodes,
                          .placed = clt_calloc(values, sizeof *p.placed),
                          .local = clt_calloc(values, sizeof *p.local),
                          .whole = clt_calloc(values, sizeof *p.whole),
                          .demanded = clt_calloc(values, sizeof *p.demanded),
                          .nodes = clt_calloc(nodes, sizeof *p.nodes),
                          .stash = clt_calloc(nodes, sizeof *p.stash),
                          .report = report};
    clt_status status = p.placed && p.local && p.whole && p.demanded && p.nodes && p.stash
                            ? CLT_OK
                            : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, divide(&p, n_gradients ? gradients : NULL));
    CLT_FREE(p.placed, p.local, p.whole, p.demanded, p.nodes, p.stash);
    CLT_NEXT(status, clt_graph_status(graph));
    return status == CLT_OK ? clt_graph_clean(graph, gradients, n_gradients) : status;
}

static division along(const clt_mesh *mesh, clt_axis axis, int participant, int64_t batch)
{
    const clt_coordinate at = {clt_mesh_coordinate(mesh, axis, participant), mesh->size[axis]};
    return (division){.axis = axis, .at = at, .batch = batch};
}

clt_status clt_pass_partition(clt_graph *graph, const clt_mesh *mesh, int participant,
                              int64_t batch, clt_value **gradients, int n_gradients,
                              clt_partition_report *report)
{
    division by = along(mesh, CLT_AXIS_TENSOR, participant, batch);
    by.sequence = mesh->sequence;
    return partition_axis(graph, &by, gradients, n_gradients, report);
}

clt_status clt_pass_partition_forward(clt_graph *graph, const clt_mesh *mesh, int participant,
                                      int64_t batch, clt_partition_report *report)
{
    static const struct {
        clt_axis axis;
        const clt_axis_rules *rules;
    } axes[] = {{CLT_AXIS_SPACE, &clt_space_rules}, {CLT_AXIS_TIME, &clt_time_rules}};
    for (int i = 0; i < 2; i++) {
        division by = along(mesh, axes[i].axis, participant, batch);
        by.rules = axes[i].rules;
        CLT_TRY(partition_axis(graph, &by, NULL, 0, report));
    }
    return CLT_OK;
}
