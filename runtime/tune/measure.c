/* Measures the nodes of a graph's plan, one by one, where they lie in it. */
#include "tune/measure.h"

#include <stdio.h>
#include <string.h>

#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "exec/exec.h"

void clt_measure_options_init(clt_measure_options *options)
{
    *options = (clt_measure_options){
        .struct_size = sizeof *options, .batch = 1, .blocks = 9, .seconds = 0.1};
}

/* A graph's plan on one device, with what a run needs. */
typedef struct bench {
    clt_device *device;
    clt_buckets buckets;
    clt_replica replica;
    clt_arena arena;
    clt_plan *plan;
    clt_exec *exec;
    clt_view *inputs;
    cl_mem results;
    clt_run run;
    int node; /* being measured */
} bench;

/* Uniform in [-1, 1): products keep their size, and nothing is zero or denormal. */
static clt_status fill_random(clt_device *device, cl_mem buffer, int64_t bytes, uint32_t stream)
{
    const int64_t count = bytes / (int64_t)sizeof(float);
    float *values = clt_alloc((size_t)bytes + 16);
    if (!values)
        return CLT_OUT_OF_MEMORY;
    for (int64_t i = 0; i < count; i += 4) {
        uint32_t bits[4];
        clt_random4(1, CLT_STREAM_INIT, stream, 0, (uint64_t)i / 4, bits);
        for (int j = 0; j < 4 && i + j < count; j++)
            values[i + j] = 2 * clt_philox_unit(bits[j]) - 1;
    }
    const cl_int code = clEnqueueWriteBuffer(device->queue, buffer, CL_TRUE, 0,
                                             (size_t)count * sizeof(float), values, 0, NULL, NULL);
    clt_free(values);
    return code == CL_SUCCESS ? CLT_OK : clt_cl_fail(code, "clEnqueueWriteBuffer", device);
}

/* Integer inputs are zeros: labels and indices that are valid anywhere. */
static clt_status make_inputs(bench *b)
{
    const clt_plan *plan = b->plan;
    b->inputs = clt_calloc((size_t)plan->n_inputs + 1, sizeof *b->inputs);
    if (!b->inputs)
        return CLT_OUT_OF_MEMORY;
    for (int i = 0; i < plan->n_inputs; i++) {
        const clt_type *type = &plan->inputs[i]->type;
        const int64_t bytes =
            clt_type_elements(type, plan->options.max_batch) * clt_dtype_size(type->dtype);
        CLT_TRY(clt_device_buffer_create(b->device, bytes, CL_MEM_READ_WRITE, "an input",
                                         &b->inputs[i].buffer));
        if (type->dtype == CLT_F32)
            CLT_TRY(fill_random(b->device, b->inputs[i].buffer, bytes, 100 + (uint32_t)i));
    }
    return CLT_OK;
}

static clt_status open_bench(bench *b, const clt_graph *graph, const clt_measure_options *o)
{
    clt_bucket_sizes sizes = clt_bucket_sizes_default();
    sizes.max_bytes = b->device->caps.max_alloc_bytes;
    CLT_TRY(clt_graph_status(graph));
    CLT_TRY(clt_buckets_create(graph, &sizes, &b->buckets));
    CLT_TRY(clt_replica_create(b->device, &b->buckets, &b->replica));
    if (o->training)
        CLT_TRY(clt_replica_for_training(&b->replica, 0));
    for (int i = 0; i < b->buckets.n_buckets; i++)
        CLT_TRY(
            fill_random(b->device, b->replica.values[i], b->buckets.buckets[i].bytes, (uint32_t)i));
    clt_arena_init(&b->arena, b->device);
    clt_plan_options options =
        clt_plan_options_default(o->training ? CLT_PLAN_TRAIN : CLT_PLAN_PREDICT, o->batch);
    options.variants = o->variants;
    CLT_TRY(clt_plan_create(graph, &b->buckets, &b->device->caps, NULL, &options, &b->plan));
    CLT_TRY(clt_exec_create(b->device, b->plan, &b->replica, &b->arena, &b->exec));
    CLT_TRY(make_inputs(b));
    CLT_TRY(clt_device_buffer_create(b->device, b->plan->results_bytes + 16, CL_MEM_READ_WRITE,
                                     "results", &b->results));
    b->run = (clt_run){.count = o->batch,
                       .inputs = b->inputs,
                       .gradients = b->replica.gradients,
                       .results = {b->results, 0}};
    return clt_exec_enqueue(b->exec, &b->run, 0, b->plan->n_nodes, 0, NULL);
}

static void close_bench(bench *b)
{
    clt_device_finish(b->device);
    clt_exec_destroy(b->exec);
    for (int i = 0; b->inputs && i < b->plan->n_inputs; i++)
        clt_release_buffer(b->inputs[i].buffer);
    clt_free(b->inputs);
    clt_release_buffer(b->results);
    clt_plan_destroy(b->plan);
    clt_arena_destroy(&b->arena);
    clt_replica_destroy(&b->replica);
    clt_buckets_free(&b->buckets);
}

static clt_status enqueue_node(void *user)
{
    bench *b = user;
    return clt_exec_enqueue(b->exec, &b->run, b->node, b->node + 1, 0, NULL);
}

static clt_status measure_node(bench *b, const clt_measure_options *o, clt_node_time *out)
{
    const clt_plan_node *pn = &b->plan->nodes[b->node];
    clt_timing timing;
    char type[CLT_TYPE_TEXT];
    CLT_TRY(clt_time_calls(b->device, enqueue_node, b, o->blocks, o->seconds, &timing));
    *out = (clt_node_time){.backward = pn->node->backward,
                           .flops = clt_node_flops(pn->node, o->batch),
                           .bytes = clt_node_bytes(pn->node, o->batch),
                           .median = timing.median,
                           .least = timing.least,
                           .most = timing.most};
    snprintf(out->node, sizeof out->node, "%s", pn->node->name);
    snprintf(out->op, sizeof out->op, "%s", pn->node->op->name);
    snprintf(out->variant, sizeof out->variant, "%s", pn->variant->name);
    snprintf(out->result, sizeof out->result, "%.63s",
             clt_type_text(&pn->node->out[0]->type, type));
    return CLT_OK;
}

clt_status clt_measure_graph(const clt_graph *graph, clt_device *device,
                             const clt_measure_options *options, clt_node_time **times, int *count)
{
    if (options->struct_size != sizeof *options)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "measure options were not set up by clt_measure_options_init");
    bench b = {.device = device};
    int n = 0;
    clt_node_time *all = NULL;
    clt_status status = open_bench(&b, graph, options);
    if (status == CLT_OK) {
        all =
            clt_calloc((size_t)b.plan->n_nodes + 1, sizeof *all); /* malloc's, as the header says */
        status = all ? CLT_OK : CLT_OUT_OF_MEMORY;
    }
    for (b.node = 0; status == CLT_OK && b.node < b.plan->n_nodes; b.node++)
        if (!b.plan->nodes[b.node].node->op->view)
            status = measure_node(&b, options, &all[n++]);
    close_bench(&b);
    if (status != CLT_OK) {
        clt_free(all);
        return status;
    }
    *times = all;
    *count = n;
    return CLT_OK;
}
