#include "tune/lab.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "ops/loss/loss.h"
#include "ops/core/ops.h"

/* Fills with numbers uniform in [-1, 1), so that products keep their size and nothing is zero or
 * denormal. */
static void random_floats(float *values, int64_t count, uint32_t stream)
{
    for (int64_t i = 0; i < count; i += 4) {
        uint32_t bits[4];
        clt_random4(1, CLT_STREAM_INIT, stream, 0, (uint64_t)i / 4, bits);
        for (int j = 0; j < 4 && i + j < count; j++)
            values[i + j] = 2 * clt_philox_unit(bits[j]) - 1;
    }
}

/* Scales parameters so that a layer's outputs have about the size of its inputs. With large logits
 * the gradient of a right label is denormal, and so are all gradients computed from it: LeNet's
 * data gradient then took thirteen times as long. */
static void scale_parameters(const clt_buckets *layout, int bucket, float *values)
{
    for (int i = layout->buckets[bucket].first; i < layout->buckets[bucket].end; i++) {
        const clt_slot *slot = &layout->slots[i];
        const int64_t count = slot->bytes / (int64_t)sizeof(float);
        const int64_t fan_in = slot->type.rank > 1 ? count / slot->type.dims[0] : 256;
        const float scale = sqrtf(3.0f / (float)(fan_in > 3 ? fan_in : 3));
        for (int64_t k = 0; k < count && slot->type.dtype == CLT_F32; k++)
            values[slot->offset / (int64_t)sizeof(float) + k] *= scale;
    }
}

static clt_status fill_bucket(clt_device *device, cl_mem buffer, const clt_buckets *layout,
                              int bucket)
{
    const int64_t bytes = layout->buckets[bucket].bytes;
    const int64_t count = bytes / (int64_t)sizeof(float);
    float *values = clt_alloc((size_t)bytes + 16);
    CLT_TRY_MEMORY(values);
    random_floats(values, count, (uint32_t)bucket);
    scale_parameters(layout, bucket, values);
    const cl_int code = clEnqueueWriteBuffer(device->queue, buffer, CL_TRUE, 0,
                                             (size_t)count * sizeof(float), values, 0, NULL, NULL);
    clt_free(values);
    return code == CL_SUCCESS ? CLT_OK : clt_cl_fail(code, "clEnqueueWriteBuffer", device);
}

/* --- inputs ---------------------------------------------------------------------------------- */

/* Values of an integer input: [0, classes), and also `ignored` if has_ignored. */
typedef struct range {
    int classes, ignored;
    bool has_ignored;
} range;

/* Returns the range that all operators accept that use the input as labels. Integers that are only
 * moved may have any value. */
static range range_of(const clt_plan *plan, const clt_value *input)
{
    enum { ANY = 8 };
    range r = {ANY, 0, false};
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        const bool correct = node->op == &clt_op_correct;
        if ((!correct && node->op != &clt_op_cross_entropy &&
             node->op != &clt_op_cross_entropy_grad) ||
            clt_value_root(node->in[1]) != input)
            continue;
        const int ignored = correct ? ((const clt_correct_attr *)node->attr)->ignore_index
                                    : ((const clt_cross_entropy_attr *)node->attr)->ignore_index;
        const int classes = clt_loss_classes(node);
        r.classes = classes < r.classes ? classes : r.classes;
        r.has_ignored = !r.has_ignored || r.ignored == ignored;
        r.ignored = ignored;
    }
    return r;
}

/* One label in thirteen is the ignored one. */
static void make_integers(const clt_plan *plan, const clt_value *input, int64_t count, char *to)
{
    const range r = range_of(plan, input);
    for (int64_t i = 0; i < count; i++) {
        const int32_t value =
            r.has_ignored && i % 13 == 7 ? r.ignored : (int32_t)(i * 5 % r.classes);
        if (input->type.dtype == CLT_I32)
            memcpy(to + 4 * i, &value, sizeof value);
        else
            to[i] = (char)value;
    }
}

/* Makes numbers between a quarter and one, of either sign, in 16 bits. */
static void make_halves(clt_dtype dtype, const float *from, int64_t count, char *to)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        const uint16_t half =
            dtype == CLT_BF16 ? (uint16_t)(bits >> 16)
                              : (uint16_t)((bits >> 16 & 0x8000) | 0x3400 | (bits >> 8 & 0x7ff));
        memcpy(to + 2 * i, &half, sizeof half);
    }
}

static clt_status make_input(clt_lab *lab, int index)
{
    const clt_value *input = lab->plan->inputs[index];
    const clt_dtype dtype = input->type.dtype;
    const int64_t count = clt_type_elements(&input->type, lab->plan->options.max_batch);
    const int64_t bytes = count * clt_dtype_size(dtype);
    float *values = clt_alloc((size_t)count * sizeof(float) + 16);
    char *typed = clt_alloc((size_t)bytes + 16);
    if (values && typed) {
        random_floats(values, count, 100 + (uint32_t)index);
        switch (dtype) {
        case CLT_F32:
            memcpy(typed, values, (size_t)bytes);
            break;
        case CLT_F64:
            for (int64_t i = 0; i < count; i++)
                ((double *)typed)[i] = (double)values[i];
            break;
        case CLT_F16:
        case CLT_BF16:
            make_halves(dtype, values, count, typed);
            break;
        case CLT_I32:
        case CLT_U8:
            make_integers(lab->plan, input, count, typed);
            break;
        case CLT_I64: /* no input has it */
            break;
        }
    }
    const clt_status status =
        values && typed
            ? clt_replica_write(&lab->replica, lab->inputs[index].buffer, 0, bytes, typed)
            : CLT_OUT_OF_MEMORY;
    CLT_FREE(values, typed);
    return status;
}

static clt_status make_inputs(clt_lab *lab)
{
    const clt_plan *plan = lab->plan;
    lab->inputs = clt_calloc((size_t)plan->n_inputs + 1, sizeof *lab->inputs);
    CLT_TRY_MEMORY(lab->inputs);
    lab->n_inputs = plan->n_inputs;
    for (int i = 0; i < plan->n_inputs; i++) {
        const clt_type *type = &plan->inputs[i]->type;
        const int64_t bytes =
            clt_type_elements(type, plan->options.max_batch) * clt_dtype_size(type->dtype);
        CLT_TRY(clt_device_buffer_create(lab->device, bytes, CL_MEM_READ_WRITE, "an input",
                                         &lab->inputs[i].buffer));
        CLT_TRY(make_input(lab, i));
    }
    return CLT_OK;
}

/* In a pipeline the lab has the tensors of one stage only. */
static clt_status lay_out(clt_lab *lab, const clt_graph *graph, const clt_plan_options *options)
{
    const clt_mesh *mesh = options->mesh;
    clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_buckets all;
    sizes.max_bytes = lab->device->caps.max_alloc_bytes;
    if (!mesh || mesh->size[CLT_AXIS_PIPELINE] == 1)
        return clt_buckets_create_parts(graph, &sizes, mesh, &lab->buckets);
    CLT_TRY(clt_buckets_create_parts(graph, &sizes, mesh, &all));
    const clt_status status = clt_buckets_stage(
        &all, clt_mesh_coordinate(mesh, CLT_AXIS_PIPELINE, options->participant), &lab->buckets);
    clt_buckets_free(&all);
    return status;
}

clt_status clt_lab_open(clt_lab *lab, clt_device *device, const clt_graph *graph,
                        const clt_plan_options *options)
{
    *lab = (clt_lab){.device = device};
    CLT_TRY(clt_graph_status(graph));
    CLT_TRY(lay_out(lab, graph, options));
    CLT_TRY(clt_replica_create(device, &lab->buckets, &lab->replica));
    if (options->mode == CLT_PLAN_TRAIN)
        CLT_TRY(clt_replica_for_training(&lab->replica, CLT_F32, 0, 0, 1));
    for (int i = 0; i < lab->buckets.n_buckets; i++)
        CLT_TRY(fill_bucket(device, lab->replica.values[i], &lab->buckets, i));
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
    return CLT_OK;
}

clt_status clt_lab_run(clt_lab *lab, int first, int end)
{
    return clt_exec_enqueue(lab->exec, &lab->run, first, end, 0, NULL);
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
