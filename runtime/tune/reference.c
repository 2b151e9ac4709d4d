#include "tune/reference.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/ops.h"
#include "tune/measure.h"

/* Floating-point operations that portable kernels are asked for, if less is enough. */
static const double ENOUGH = 2.5e8;

/* The node alone: its operands are inputs, its outputs are a plan's. */
typedef struct scene {
    clt_graph *graph;
    clt_buckets buckets;
    clt_replica replica;
    clt_arena arena;
    clt_plan *plan;
    clt_exec *exec;
    clt_view inputs[16];
    clt_value *out[CLT_MAX_OUTPUTS];
} scene;

static const clt_variant *last_variant(const clt_op *op)
{
    const clt_variant *v = op->variants;
    while (v && v->name && v[1].name)
        v++;
    return v;
}

bool clt_reference_exists(const clt_node *node, const clt_lab *lab)
{
    const clt_variant *last = last_variant(node->op);
    /* By name: a variant in lanes tells only from values that lie in lanes. */
    return last && last->name && strncmp(last->name, "lanes", 5) != 0 &&
           node->n_in <= (int)(sizeof((scene *)0)->inputs / sizeof(clt_view)) && lab->plan;
}

int64_t clt_reference_count(const clt_node *node, const clt_lab *lab)
{
    int64_t count = lab->plan->options.max_batch;
    while (count > lab->plan->options.lanes && clt_node_flops(node, count) > ENOUGH)
        count = (count + 1) / 2;
    return count;
}

static clt_status build(scene *s, const clt_node *node)
{
    clt_value *in[16] = {NULL};
    CLT_TRY(clt_graph_create(&s->graph));
    for (int i = 0; i < node->n_in; i++) {
        char name[32];
        snprintf(name, sizeof name, "operand %d", i);
        if (node->in[i])
            in[i] = clt_graph_value(s->graph, CLT_VALUE_INPUT, &node->in[i]->type, name);
    }
    clt_node *twin = clt_graph_add_twin(s->graph, node, in);
    for (int o = 0; twin && o < twin->n_out; o++) {
        char name[32];
        snprintf(name, sizeof name, "result %d", o);
        s->out[o] = clt_output(twin->out[o], name);
    }
    return clt_graph_status(s->graph);
}

/* Copies an operand as it lies in the lab, row-major. */
static clt_status copy_operand(clt_lab *lab, const clt_value *value, cl_mem to)
{
    const int bytes = clt_dtype_size(value->type.dtype), lanes = lab->plan->options.lanes;
    const int64_t count = lab->run.count, stored = clt_value_stored(value, count, lanes);
    clt_view view;
    CLT_TRY(clt_exec_locate(lab->exec, &lab->run, value, &view));
    char *lying = clt_alloc((size_t)stored * (size_t)bytes * 2 + 16);
    if (!lying)
        return CLT_OUT_OF_MEMORY;
    clt_status status =
        clt_replica_read(&lab->replica, view.buffer, view.offset, stored * bytes, lying);
    char *plain = lying;
    if (value->layout == CLT_LAYOUT_LANES) {
        plain = lying + stored * bytes;
        clt_lanes_to_plain(lying, count, clt_type_coefficient(&value->type), lanes, bytes, plain);
    }
    if (status == CLT_OK)
        status = clt_replica_write(&lab->replica, to, 0,
                                   clt_type_elements(&value->type, count) * bytes, plain);
    clt_free(lying);
    return status;
}

static clt_status run(scene *s, clt_lab *lab, const clt_node *node)
{
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_PREDICT, lab->run.count);
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    options.portable = true;
    options.fuse = false;
    options.lanes = lab->plan->options.lanes;
    CLT_TRY(clt_buckets_create(s->graph, &sizes, &s->buckets));
    CLT_TRY(clt_replica_create(lab->device, &s->buckets, &s->replica));
    clt_arena_init(&s->arena, lab->device);
    CLT_TRY(clt_plan_create(s->graph, &s->buckets, &lab->device->caps, NULL, &options, &s->plan));
    CLT_TRY(clt_exec_create(lab->device, s->plan, &s->replica, &s->arena, &s->exec));
    for (int i = 0; i < s->plan->n_inputs; i++) {
        int number = 0;
        sscanf(s->plan->inputs[i]->name, "operand %d", &number);
        const clt_value *operand = node->in[number];
        const int64_t bytes =
            clt_type_elements(&operand->type, lab->run.count) * clt_dtype_size(operand->type.dtype);
        cl_mem *buffer = &s->inputs[i].buffer;
        CLT_TRY(
            clt_device_buffer_create(lab->device, bytes, CL_MEM_READ_WRITE, "an operand", buffer));
        CLT_TRY(copy_operand(lab, operand, *buffer));
    }
    clt_run once = lab->run;
    once.inputs = s->inputs;
    once.gradients = NULL;
    once.results = (clt_view){0};
    return clt_exec_enqueue(s->exec, &once, 0, s->plan->n_nodes, 0, NULL);
}

/* Those that the lab's plan reads. */
static clt_status read_outputs(scene *s, clt_lab *lab, const clt_node *node, clt_outcome *outcome)
{
    for (int o = 0; o < node->n_out; o++) {
        const clt_type *type = &node->out[o]->type;
        clt_view view;
        if (!clt_outcome_wanted(lab->plan, node->out[o]))
            continue;
        char name[32];
        snprintf(name, sizeof name, "result %d", o);
        const clt_value *out = clt_graph_find(s->plan->graph, name);
        CLT_TRY(clt_exec_locate(s->exec, &(clt_run){.inputs = s->inputs}, out, &view));
        const int64_t count = clt_type_elements(type, lab->run.count);
        outcome->dtype[o] = type->dtype;
        outcome->count[o] = count;
        outcome->values[o] = clt_alloc((size_t)count * (size_t)clt_dtype_size(type->dtype) + 16);
        if (!outcome->values[o])
            return CLT_OUT_OF_MEMORY;
        CLT_TRY(clt_replica_read(&s->replica, view.buffer, view.offset,
                                 count * clt_dtype_size(type->dtype), outcome->values[o]));
    }
    return CLT_OK;
}

clt_status clt_reference_read(clt_lab *lab, int index, clt_outcome *outcome)
{
    const clt_node *node = lab->plan->nodes[index].node;
    scene s = {0};
    *outcome = (clt_outcome){{NULL}, {0}, {0}};
    clt_status status = build(&s, node);
    if (status == CLT_OK)
        status = run(&s, lab, node);
    if (status == CLT_OK)
        status = read_outputs(&s, lab, node, outcome);
    clt_device_finish(lab->device);
    clt_exec_destroy(s.exec);
    clt_plan_destroy(s.plan);
    for (int i = 0; i < (int)(sizeof s.inputs / sizeof *s.inputs); i++)
        clt_release_buffer(s.inputs[i].buffer);
    clt_arena_destroy(&s.arena);
    clt_replica_destroy(&s.replica);
    clt_buckets_free(&s.buckets);
    clt_graph_destroy(s.graph);
    return status == CLT_OK ? CLT_OK : clt_fail_prefix(status, "reference of %s: ", node->name);
}
