#include "tune/lab.h"

#include "base/alloc.h"
#include "base/philox.h"

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
static clt_status make_inputs(clt_lab *lab)
{
    const clt_plan *plan = lab->plan;
    lab->inputs = clt_calloc((size_t)plan->n_inputs + 1, sizeof *lab->inputs);
    if (!lab->inputs)
        return CLT_OUT_OF_MEMORY;
    lab->n_inputs = plan->n_inputs;
    for (int i = 0; i < plan->n_inputs; i++) {
        const clt_type *type = &plan->inputs[i]->type;
        const int64_t bytes =
            clt_type_elements(type, plan->options.max_batch) * clt_dtype_size(type->dtype);
        CLT_TRY(clt_device_buffer_create(lab->device, bytes, CL_MEM_READ_WRITE, "an input",
                                         &lab->inputs[i].buffer));
        if (type->dtype == CLT_F32)
            CLT_TRY(fill_random(lab->device, lab->inputs[i].buffer, bytes, 100 + (uint32_t)i));
    }
    return CLT_OK;
}

clt_status clt_lab_open(clt_lab *lab, clt_device *device, const clt_graph *graph, bool training)
{
    *lab = (clt_lab){.device = device};
    clt_bucket_sizes sizes = clt_bucket_sizes_default();
    sizes.max_bytes = device->caps.max_alloc_bytes;
    CLT_TRY(clt_graph_status(graph));
    CLT_TRY(clt_buckets_create(graph, &sizes, &lab->buckets));
    CLT_TRY(clt_replica_create(device, &lab->buckets, &lab->replica));
    if (training)
        CLT_TRY(clt_replica_for_training(&lab->replica, 0));
    for (int i = 0; i < lab->buckets.n_buckets; i++)
        CLT_TRY(fill_random(device, lab->replica.values[i], lab->buckets.buckets[i].bytes,
                            (uint32_t)i));
    clt_arena_init(&lab->arena, device);
    return CLT_OK;
}

static void drop_plan(clt_lab *lab)
{
    clt_device_finish(lab->device);
    clt_exec_destroy(lab->exec);
    clt_plan_destroy(lab->plan);
    lab->exec = NULL;
    lab->plan = NULL;
}

clt_status clt_lab_plan(clt_lab *lab, const clt_graph *graph, const clt_plan_options *options,
                        const clt_tuning_record *tuning)
{
    drop_plan(lab);
    CLT_TRY(clt_plan_create(graph, &lab->buckets, &lab->device->caps, tuning, options, &lab->plan));
    CLT_TRY(clt_exec_create(lab->device, lab->plan, &lab->replica, &lab->arena, &lab->exec));
    if (!lab->inputs)
        CLT_TRY(make_inputs(lab));
    if (!lab->results)
        CLT_TRY(clt_device_buffer_create(lab->device, lab->plan->results_bytes + 16,
                                         CL_MEM_READ_WRITE, "results", &lab->results));
    lab->run = (clt_run){.count = options->max_batch,
                         .inputs = lab->inputs,
                         .gradients = lab->replica.gradients,
                         .results = {lab->results, 0}};
    return clt_exec_enqueue(lab->exec, &lab->run, 0, lab->plan->n_nodes, 0, NULL);
}

void clt_lab_close(clt_lab *lab)
{
    drop_plan(lab);
    for (int i = 0; i < lab->n_inputs; i++)
        clt_release_buffer(lab->inputs[i].buffer);
    clt_free(lab->inputs);
    clt_release_buffer(lab->results);
    clt_arena_destroy(&lab->arena);
    clt_replica_destroy(&lab->replica);
    clt_buckets_free(&lab->buckets);
}
