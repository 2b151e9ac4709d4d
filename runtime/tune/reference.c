#include "tune/reference.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/conv/conv2d_pool.h"
#include "ops/core/ops.h"
#include "ops/norm/batch_norm.h"
#include "tune/measure_node.h"

/* The batch is halved until a portable kernel needs at most this many floating-point operations. */
static const double ENOUGH = 6e7;

/* A graph of the node without others: its operands are inputs, its outputs are outputs of a
 * plan. */
typedef struct scene {
    clt_graph *graph;
    clt_buckets buckets;
    clt_replica replica;
    clt_arena arena;
    clt_plan *plan;
    clt_exec *exec;
    clt_view inputs[16];
    bool magnitudes; /* operands are replaced by their absolute values */
} scene;

static const clt_variant *last_variant(const clt_op *op)
{
    const clt_variant *v = op->variants;
    while (v && v->name && v[1].name)
        v++;
    return v;
}

/* Whether a pass made the node from a convolution and its pooling. Such nodes exist in
 * batch-blocked layout only. */
static bool is_pooled(const clt_node *node)
{
    return node->op == &clt_op_conv2d_pool || node->op == &clt_op_conv2d_pool_weight_grad ||
           node->op == &clt_op_unpool2d;
}

bool clt_reference_is(const clt_node *node, const clt_variant *variant)
{
    return variant == last_variant(node->op) && !is_pooled(node);
}

/* The portable kernels of convolutions, and their builders, support f32 only. */
static bool in_16_bits(const clt_node *node)
{
    char why[CLT_WHY];
    return !clt_accepts_f32(node, why);
}

bool clt_reference_exists(const clt_node *node, const clt_lab *lab)
{
    const clt_variant *last = last_variant(node->op);
    return last && last->name && !in_16_bits(node) &&
           (is_pooled(node) || !(last->traits & CLT_BATCH_BLOCKED)) &&
           node->n_in <= (int)(sizeof((scene *)0)->inputs / sizeof(clt_view)) && lab->plan;
}

int64_t clt_reference_count(const clt_node *node, const clt_lab *lab)
{
    int64_t count = lab->plan->options.max_batch;
    while (count > lab->plan->options.lanes && clt_node_flops(node, count) > ENOUGH)
        count = (count + 1) / 2;
    return count;
}

/* --- convolutions with pooling ---------------------------------------------------------------- */

/* Reads the value from the lab in row-major order. The caller frees *out, on failure too. */
static clt_status read_plain(clt_lab *lab, const clt_value *value, char **out)
{
    const int bytes = clt_dtype_size(value->type.dtype), lanes = lab->plan->options.lanes;
    const int64_t count = lab->run.count, stored = clt_value_stored(value, count, lanes);
    clt_view view;
    CLT_TRY(clt_exec_locate(lab->exec, &lab->run, value, &view));
    char *lying = clt_alloc((size_t)stored * (size_t)bytes + 16);
    *out = lying;
    CLT_TRY_MEMORY(lying);
    CLT_TRY(clt_replica_read(&lab->replica, view.buffer, view.offset, stored * bytes, lying));
    if (value->layout != CLT_LAYOUT_BATCH_BLOCKED)
        return CLT_OK;
    char *plain = clt_alloc((size_t)stored * (size_t)bytes + 16);
    CLT_TRY_MEMORY(plain);
    clt_batch_blocked_to_plain(lying, count, clt_type_coefficient(&value->type), lanes, bytes,
                               plain);
    *out = plain;
    clt_free(lying);
    return CLT_OK;
}

/* Computes the gradient of [planes][oh][ow] before pooling from the gradient behind it. The
 * gradient is zero where the mask says so, and in a last row or column that the pooling drops. */
static void spread(const clt_conv2d_pool_attr *attr, const float *dy, const unsigned char *mask,
                   int64_t planes, int oh, int ow, float *dz)
{
    const float share = attr->pool == CLT_POOL_AVERAGE ? 0.25f : 1.0f;
    const int ph = oh / 2, pw = ow / 2;
    for (int64_t p = 0; p < planes; p++)
        for (int y = 0; y < oh; y++)
            for (int x = 0; x < ow; x++) {
                const int64_t at = (p * ph + y / 2) * pw + x / 2;
                const bool flows =
                    y / 2 < ph && x / 2 < pw && mask[at] >> (2 * (y % 2) + x % 2) & 1;
                dz[(p * oh + y) * ow + x] = flows ? share * dy[at] : 0;
            }
}

/* Does this for operand `first`, the gradient, and the next operand, the mask. */
static clt_status unpool(clt_lab *lab, const clt_node *node, int first, int oh, int ow, char **dz,
                         int64_t *count)
{
    char *dy = NULL, *mask = NULL;
    const int64_t planes = lab->run.count * node->in[first]->type.dims[1];
    *count = planes * oh * ow;
    *dz = clt_alloc((size_t)*count * sizeof(float) + 16);
    clt_status status = *dz ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, read_plain(lab, node->in[first], &dy));
    CLT_NEXT(status, read_plain(lab, node->in[first + 1], &mask));
    if (status == CLT_OK)
        spread(node->attr, (const float *)dy, (const unsigned char *)mask, planes, oh, ow,
               (float *)*dz);
    CLT_FREE(dy, mask);
    return status;
}

/* Marks the elements of each window through which the gradient flows. z holds the values after the
 * activation. */
static void make_mask(const clt_conv2d_pool_attr *attr, const float *z, int64_t planes,
                      unsigned char *mask)
{
    const int oh = attr->out[0], ow = attr->out[1], pw = ow / 2;
    const bool relu = attr->conv.epilogue.activation == CLT_ACTIVATION_RELU;
    for (int64_t p = 0; p < planes; p++)
        for (int i = 0; i < oh / 2 * pw; i++) {
            const float *window = z + (p * oh + i / pw * 2) * ow + i % pw * 2;
            int best = 0, flows = 0;
            for (int k = 0; k < 4; k++) {
                const float v = window[k / 2 * ow + k % 2];
                if (v > window[best / 2 * ow + best % 2] || isnan(v))
                    best = k;
                flows |= (!relu || !(v <= 0)) << k;
            }
            *mask++ = (unsigned char)(attr->pool == CLT_POOL_MAXIMUM ? flows & 1 << best : flows);
        }
}

/* Builds the reference of a pooled node. For conv2d_pool the second result is the values before
 * pooling, from which the mask is made. */
static clt_status build_pooled(scene *s, const clt_node *node, clt_value *const *in)
{
    const clt_conv2d_pool_attr *attr = node->attr;
    if (node->op == &clt_op_conv2d_pool) {
        clt_pool2d_attr pool;
        memset(&pool, 0, sizeof pool);
        for (int i = 0; i < 2; i++) {
            pool.kernel[i] = pool.stride[i] = 2;
            pool.dilation[i] = 1;
            pool.in[i] = attr->out[i];
        }
        const clt_op *op = attr->pool == CLT_POOL_AVERAGE ? &clt_op_avg_pool2d : &clt_op_max_pool2d;
        clt_value *z = clt_emit1(&clt_op_conv2d, &attr->conv, 3, in[0], in[1], in[2]);
        clt_output(clt_emit1(op, &pool, 1, z), "result 0");
        clt_output(z, "result 1");
    } else {
        clt_node *grad = clt_graph_add(s->graph, &clt_op_conv2d_weight_grad, in, 2, &attr->conv);
        for (int o = 0; grad && o < 2; o++)
            clt_output(grad->out[o], o ? "result 1" : "result 0");
    }
    return clt_graph_status(s->graph);
}

/* --- the graph of the node -------------------------------------------------------------------- */

/* For conv2d_pool_weight_grad, operand 1 becomes the gradient before pooling, and there is no
 * mask. */
static clt_type operand_type(const clt_node *node, int operand)
{
    clt_type type = node->in[operand]->type;
    const clt_conv2d_pool_attr *attr = node->attr;
    if (node->op == &clt_op_conv2d_pool_weight_grad && operand == 1) {
        type.dims[2] = attr->out[0];
        type.dims[3] = attr->out[1];
    }
    return type;
}

static clt_status build(scene *s, const clt_node *node)
{
    clt_value *in[16] = {NULL};
    const bool no_mask = node->op == &clt_op_conv2d_pool_weight_grad;
    CLT_TRY(clt_graph_create(&s->graph));
    for (int i = 0; i < node->n_in - no_mask; i++) {
        char name[32];
        snprintf(name, sizeof name, "operand %d", i);
        if (!node->in[i])
            continue;
        const clt_type type = operand_type(node, i);
        in[i] = clt_graph_value(s->graph, CLT_VALUE_INPUT, &type, name);
    }
    if (is_pooled(node))
        return build_pooled(s, node, in);
    clt_node *twin = clt_graph_add_twin(s->graph, node, in);
    for (int o = 0; twin && o < twin->n_out; o++) {
        char name[32];
        snprintf(name, sizeof name, "result %d", o);
        clt_output(twin->out[o], name);
    }
    return clt_graph_status(s->graph);
}

/* Subtracts each channel's mean from x, operand 0 of batch_norm_grad_sums. */
static clt_status subtract_means(clt_lab *lab, const clt_node *node, float *x)
{
    char *moments = NULL;
    const clt_type *type = &node->in[CLT_BNG_X]->type;
    const int64_t channels = type->dims[1], planes = lab->run.count * channels;
    const int64_t pixels = clt_type_elements(type, lab->run.count) / (planes ? planes : 1);
    const clt_status status = read_plain(lab, node->in[CLT_BNG_MOMENTS], &moments);
    for (int64_t i = 0; status == CLT_OK && i < planes * pixels; i++)
        x[i] -= ((const float *)moments)[i / pixels % channels];
    clt_free(moments);
    return status;
}

/* Replaces an operand so that the node adds up the magnitudes of its terms. The terms of
 * batch_norm_grad_sums are dy * (x - mean): it gets |x - mean| for x, and 0 for the mean. */
static clt_status take_magnitudes(clt_lab *lab, const clt_node *node, int operand, float *plain,
                                  int64_t count)
{
    const bool sums = node->op == &clt_op_batch_norm_grad_sums;
    if (sums && operand == CLT_BNG_X)
        CLT_TRY(subtract_means(lab, node, plain));
    if (sums && operand == CLT_BNG_MOMENTS)
        memset(plain, 0, (size_t)(count / 3) * sizeof *plain);
    for (int64_t i = 0; i < count; i++)
        plain[i] = fabsf(plain[i]);
    return CLT_OK;
}

/* Copies an operand from the lab, in row-major order. */
static clt_status copy_operand(const scene *s, clt_lab *lab, const clt_node *node, int operand,
                               int64_t bytes, cl_mem to)
{
    const clt_conv2d_pool_attr *attr = node->attr;
    char *plain = NULL;
    int64_t count;
    clt_status status = node->op == &clt_op_conv2d_pool_weight_grad && operand == 1
                            ? unpool(lab, node, 1, attr->out[0], attr->out[1], &plain, &count)
                            : read_plain(lab, node->in[operand], &plain);
    if (status == CLT_OK && s->magnitudes && node->in[operand]->type.dtype == CLT_F32)
        status =
            take_magnitudes(lab, node, operand, (float *)plain, bytes / (int64_t)sizeof(float));
    CLT_NEXT(status, clt_replica_write(&lab->replica, to, 0, bytes, plain));
    clt_free(plain);
    return status;
}

static clt_status run(scene *s, clt_lab *lab, const clt_node *node)
{
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_PREDICT, lab->run.count);
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    options.portable = true;
    options.fuse = false;
    /* The node belongs to training, so batch norm uses the given moments, not the running ones. */
    options.as_in_training = true;
    options.lanes = lab->plan->options.lanes;
    CLT_TRY(clt_buckets_create(s->graph, &sizes, &s->buckets));
    CLT_TRY(clt_replica_create(lab->device, &s->buckets, &s->replica));
    clt_arena_init(&s->arena, lab->device);
    CLT_TRY(clt_plan_create(s->graph, &s->buckets, &lab->device->caps, NULL, &options, &s->plan));
    CLT_TRY(clt_exec_create(lab->device, s->plan, &s->replica, &s->arena, &s->exec));
    for (int i = 0; i < s->plan->n_inputs; i++) {
        int number = 0;
        sscanf(s->plan->inputs[i]->name, "operand %d", &number);
        const clt_type *type = &s->plan->inputs[i]->type;
        const int64_t bytes = clt_type_elements(type, lab->run.count) * clt_dtype_size(type->dtype);
        cl_mem *buffer = &s->inputs[i].buffer;
        CLT_TRY(
            clt_device_buffer_create(lab->device, bytes, CL_MEM_READ_WRITE, "an operand", buffer));
        CLT_TRY(copy_operand(s, lab, node, number, bytes, *buffer));
    }
    clt_run once = lab->run;
    once.inputs = s->inputs;
    once.gradients = NULL;
    once.results = (clt_view){0};
    return clt_exec_enqueue(s->exec, &once, 0, s->plan->n_nodes, 0, NULL);
}

static clt_status read_result(scene *s, clt_lab *lab, int output, char **values, int64_t *count)
{
    char name[32];
    clt_view view;
    snprintf(name, sizeof name, "result %d", output);
    const clt_value *out = clt_graph_find(s->plan->graph, name);
    const int bytes = clt_dtype_size(out->type.dtype);
    CLT_TRY(clt_exec_locate(s->exec, &(clt_run){.inputs = s->inputs}, out, &view));
    *count = clt_type_elements(&out->type, lab->run.count);
    *values = clt_alloc((size_t)(*count * bytes) + 16);
    return *values
               ? clt_replica_read(&s->replica, view.buffer, view.offset, *count * bytes, *values)
               : CLT_OUT_OF_MEMORY;
}

/* Reads the outputs that the lab's plan reads. */
static clt_status read_outputs(scene *s, clt_lab *lab, const clt_node *node, clt_outcome *outcome)
{
    for (int o = 0; o < node->n_out; o++) {
        const clt_type *type = &node->out[o]->type;
        if (!clt_outcome_wanted(lab->plan, node->out[o]))
            continue;
        outcome->dtype[o] = type->dtype;
        outcome->rows[o] = clt_outcome_rows(node);
        CLT_TRY(read_result(s, lab, o, &outcome->values[o], &outcome->count[o]));
        if (node->op != &clt_op_conv2d_pool || o == 0)
            continue;
        char *before = outcome->values[o];
        outcome->count[o] = clt_type_elements(type, lab->run.count);
        outcome->values[o] = clt_alloc((size_t)outcome->count[o] + 16);
        if (outcome->values[o])
            make_mask(node->attr, (const float *)before, lab->run.count * type->dims[1],
                      (unsigned char *)outcome->values[o]);
        clt_free(before);
        CLT_TRY_MEMORY(outcome->values[o]);
    }
    return CLT_OK;
}

static clt_status read_scene(clt_lab *lab, int index, bool magnitudes, clt_outcome *outcome)
{
    const clt_node *node = lab->plan->nodes[index].node;
    scene s = {.magnitudes = magnitudes};
    *outcome = (clt_outcome){{NULL}, {0}, {0}, {0}};
    if (node->op == &clt_op_unpool2d) {
        const int64_t *dims = node->out[0]->type.dims;
        outcome->dtype[0] = CLT_F32;
        return unpool(lab, node, 0, (int)dims[2], (int)dims[3], &outcome->values[0],
                      &outcome->count[0]);
    }
    clt_status status = build(&s, node);
    CLT_NEXT(status, run(&s, lab, node));
    CLT_NEXT(status, read_outputs(&s, lab, node, outcome));
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

clt_status clt_reference_read(clt_lab *lab, int index, clt_outcome *outcome)
{
    return read_scene(lab, index, false, outcome);
}

/* Whether the outputs are sums of operand 0, or of values of its size. */
static bool reduces(const clt_node *node)
{
    return node->op == &clt_op_sum || node->op == &clt_op_mean ||
           node->op == &clt_op_batch_norm_moments || node->op == &clt_op_batch_norm_grad_sums;
}

bool clt_reference_sums(const clt_node *node)
{
    return node->op == &clt_op_conv2d_weight_grad || node->op == &clt_op_linear_weight_grad ||
           node->op == &clt_op_conv2d_pool_weight_grad || node->op == &clt_op_conv3d_weight_grad ||
           reduces(node);
}

clt_status clt_reference_magnitudes(clt_lab *lab, int index, clt_outcome *outcome)
{
    return read_scene(lab, index, true, outcome);
}

double clt_reference_share(const clt_node *node, int64_t count)
{
    const double products = reduces(node) ? (double)clt_type_elements(&node->in[0]->type, count)
                                          : clt_node_flops(node, count) / 2;
    const double results = (double)clt_type_elements(&node->out[0]->type, count);
    const double terms = products / results * clt_outcome_rows(node);
    return 2 * 8 * FLT_EPSILON * sqrt(fmax(terms, 1));
}
