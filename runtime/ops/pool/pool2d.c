#include "ops/pool/pool2d.h"

#include <limits.h>
#include <math.h>

#include "base/error.h"
#include "ops/core/ops.h"

int64_t clt_pool2d_size(const clt_pool2d_attr *attr, int axis, int64_t size)
{
    const int64_t stride = attr->stride[axis], padding = attr->padding[axis];
    const int64_t span = (int64_t)attr->dilation[axis] * (attr->kernel[axis] - 1) + 1;
    const int64_t room = size + 2 * padding - span;
    if (room < 0 && !(attr->ceil_mode && room + stride - 1 >= 0))
        return 0;
    int64_t out = (room + (attr->ceil_mode ? stride - 1 : 0)) / stride + 1;
    /* A window may extend beyond the right edge, but it must start inside the input or its left
     * padding. */
    if (attr->ceil_mode && (out - 1) * stride >= size + padding)
        out--;
    return out;
}

void clt_pool2d_options_init(clt_pool2d_options *options)
{
    clt_pool2d_attr attr;
    clt_attributes_init(&clt_op_max_pool2d, &attr);
    *options = clt_pool2d_options_of(&attr);
}

/* Fails if the elements of a window or positions in the padded image do not fit the kernels' int. A
 * window may extend beyond the padded image by less than a stride. */
static clt_status check_counts(const char *op, const clt_value *x, const clt_pool2d_attr *attr)
{
    char text[CLT_TYPE_TEXT];
    for (int i = 0; i < 2; i++) {
        const int64_t padded = x->type.dims[2 + i] + 2 * (int64_t)attr->padding[i];
        if (padded > INT_MAX || (attr->ceil_mode && padded + attr->stride[i] > INT_MAX))
            return clt_fail(CLT_UNSUPPORTED,
                            "%s: %s with padding %dx%d and stride %dx%d is larger than %d in a "
                            "dimension",
                            op, clt_type_text(&x->type, text), attr->padding[0], attr->padding[1],
                            attr->stride[0], attr->stride[1], INT_MAX);
    }
    if ((int64_t)attr->kernel[0] * attr->kernel[1] > INT_MAX)
        return clt_fail(CLT_UNSUPPORTED, "%s: the window %dx%d has more than %d elements", op,
                        attr->kernel[0], attr->kernel[1], INT_MAX);
    return CLT_OK;
}

static clt_status check(const char *op, const clt_value *x, const clt_pool2d_attr *attr)
{
    char text[CLT_TYPE_TEXT];
    if (x->type.rank != 4 || x->type.dims[2] < 0 || x->type.dims[3] < 0)
        return clt_fail(CLT_SHAPE, "%s: the operand %s must be [B, C, H, W] with constant H and W",
                        op, clt_type_text(&x->type, text));
    for (int i = 0; i < 2; i++) {
        if (attr->kernel[i] < 1 || attr->stride[i] < 1 || attr->dilation[i] < 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "%s: kernel %dx%d, stride %dx%d and dilation %dx%d must be at least 1",
                            op, attr->kernel[0], attr->kernel[1], attr->stride[0], attr->stride[1],
                            attr->dilation[0], attr->dilation[1]);
        if (attr->padding[i] < 0 || attr->padding[i] > attr->kernel[i] / 2)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "%s: padding %dx%d must be between 0 and half of the kernel %dx%d", op,
                            attr->padding[0], attr->padding[1], attr->kernel[0], attr->kernel[1]);
        if (clt_pool2d_size(attr, i, x->type.dims[2 + i]) < 1)
            return clt_fail(CLT_SHAPE,
                            "%s: the window %dx%d (dilation %dx%d) is larger than %s with padding "
                            "%dx%d",
                            op, attr->kernel[0], attr->kernel[1], attr->dilation[0],
                            attr->dilation[1], clt_type_text(&x->type, text), attr->padding[0],
                            attr->padding[1]);
    }
    return check_counts(op, x, attr);
}

bool clt_pool2d_attr_from(const char *op, const clt_value *x, const clt_pool2d_options *options,
                          clt_pool2d_attr *attr)
{
    clt_pool2d_options own;
    clt_pool2d_options_init(&own);
    clt_status status = clt_options_read(op, &own, sizeof own, options);
    if (status == CLT_OK) {
        *attr = (clt_pool2d_attr){.ceil_mode = own.ceil_mode != 0,
                                  .count_include_pad = own.count_include_pad != 0};
        for (int i = 0; i < 2; i++) {
            attr->kernel[i] = own.kernel[i];
            attr->stride[i] = own.stride[i] ? own.stride[i] : own.kernel[i];
            attr->padding[i] = own.padding[i];
            attr->dilation[i] = own.dilation[i];
        }
        status = check(op, x, attr);
    }
    if (status != CLT_OK) {
        clt_graph_failed(x->graph, status);
        return false;
    }
    attr->in[0] = (int)x->type.dims[2];
    attr->in[1] = (int)x->type.dims[3];
    return true;
}

clt_status clt_pool2d_infer(const clt_node *node, clt_type *out)
{
    const clt_pool2d_attr *attr = node->attr;
    CLT_TRY(clt_check_f32(node, 0));
    CLT_TRY(clt_check_image(node, 0, 1));
    *out = node->in[0]->type;
    for (int i = 0; i < 2; i++)
        out->dims[2 + i] = clt_pool2d_size(attr, i, attr->in[i]);
    return CLT_OK;
}

clt_status clt_pool2d_infer_grad(const clt_node *node, clt_type *out)
{
    const clt_pool2d_attr *attr = node->attr;
    const clt_type *type = &node->in[node->n_in - 1]->type;
    char text[CLT_TYPE_TEXT];
    if (type->rank != 4 || type->dims[2] != clt_pool2d_size(attr, 0, attr->in[0]) ||
        type->dims[3] != clt_pool2d_size(attr, 1, attr->in[1]))
        return clt_fail(CLT_SHAPE, "%s: %s is not the result of an operand of %dx%d",
                        node->op->name, clt_type_text(type, text), attr->in[0], attr->in[1]);
    *out = *type;
    out->dims[2] = attr->in[0];
    out->dims[3] = attr->in[1];
    return CLT_OK;
}

void clt_pool2d_describe(const clt_node *node, clt_str *text)
{
    const clt_pool2d_attr *attr = node->attr;
    clt_str_add(text, "%dx%d, stride %dx%d", attr->kernel[0], attr->kernel[1], attr->stride[0],
                attr->stride[1]);
    if (attr->padding[0] || attr->padding[1])
        clt_str_add(text, ", pad %dx%d", attr->padding[0], attr->padding[1]);
    if (attr->dilation[0] != 1 || attr->dilation[1] != 1)
        clt_str_add(text, ", dilation %dx%d", attr->dilation[0], attr->dilation[1]);
    if (attr->ceil_mode)
        clt_str_add(text, ", ceil");
    if (!attr->count_include_pad)
        clt_str_add(text, ", padding not counted");
}

/* One operation for each element of each window; `pooled` has one element for each window. */
static double flops_of(const clt_node *node, const clt_value *pooled, int64_t n)
{
    const clt_pool2d_attr *attr = node->attr;
    return (double)clt_type_elements(&pooled->type, n) * attr->kernel[0] * attr->kernel[1];
}

double clt_pool2d_flops(const clt_node *node, int64_t n)
{
    return flops_of(node, node->out[0], n);
}

double clt_pool2d_flops_grad(const clt_node *node, int64_t n)
{
    return flops_of(node, node->in[node->n_in - 1], n);
}

/* --- parts of an image ----------------------------------------------------------------------- */

static void reach(const clt_pool2d_attr *attr, double fill, clt_window *w)
{
    const int64_t i = w->dim - 2, stride = attr->stride[i], padding = attr->padding[i];
    w->from = w->begin * stride - padding;
    w->to =
        (w->end - 1) * stride - padding + (int64_t)attr->dilation[i] * (attr->kernel[i] - 1) + 1;
    w->fill = fill;
}

bool clt_max_pool2d_reach(const clt_node *node, clt_window *w)
{
    if (w->dim < 2)
        return false;
    reach(node->attr, -INFINITY, w);
    return true;
}

/* A mean that does not count all elements of its window does so only at the ends of the image. */
bool clt_avg_pool2d_reach(const clt_node *node, clt_window *w)
{
    const clt_pool2d_attr *attr = node->attr;
    if (w->dim < 2)
        return false;
    const int i = w->dim - 2;
    reach(attr, 0, w);
    return !attr->ceil_mode && (attr->count_include_pad || !attr->padding[i]);
}

clt_value *clt_pool2d_within(const clt_node *node, const clt_window *w, clt_value *const *in)
{
    clt_pool2d_attr attr = *(const clt_pool2d_attr *)node->attr;
    attr.padding[w->dim - 2] = 0;
    attr.in[w->dim - 2] = (int)(w->to - w->from);
    return clt_emit1(node->op, &attr, 1, in[0]);
}

/* --- kernels -------------------------------------------------------------------------------- */

typedef struct kernel_names {
    const clt_op *op;
    const char *batch_blocked, *plain; /* name in pool/batch_blocked/pool.cl; name in
                                  pool/cpu/windows.cl and pool/portable/pool2d.cl */
} kernel_names;

/* The kernel names of avg_pool2d, max_pool2d or one of their gradients. */
static const kernel_names *names_of(const clt_op *op)
{
    static const kernel_names table[] = {
        {&clt_op_avg_pool2d, "clt_batch_blocked_avg_pool", "avg_pool2d"},
        {&clt_op_avg_pool2d_grad, "clt_batch_blocked_avg_pool_grad", "avg_pool2d_grad"},
        {&clt_op_max_pool2d, "clt_batch_blocked_max_pool", "max_pool2d"},
        {&clt_op_max_pool2d_grad, "clt_batch_blocked_max_pool_grad", "max_pool2d_grad"},
    };
    const kernel_names *names = table;
    while (names->op != op)
        names++;
    return names;
}

/* Adds the node's operands, then its result. */
static void arg_buffers(const clt_node *node, clt_program *program)
{
    clt_args_in(program, node->n_in);
    CLT_ARGS(program, CLT_OUT(0));
}

/* Adds the arguments from the operand's sizes on. */
static void arg_numbers(const clt_pool2d_attr *attr, clt_program *program)
{
    CLT_ARGS(program, CLT_FIXED(attr->in[0]), CLT_FIXED(attr->in[1]),
             CLT_FIXED(clt_pool2d_size(attr, 0, attr->in[0])),
             CLT_FIXED(clt_pool2d_size(attr, 1, attr->in[1])), CLT_FIXED(attr->kernel[0]),
             CLT_FIXED(attr->kernel[1]), CLT_FIXED(attr->stride[0]), CLT_FIXED(attr->stride[1]),
             CLT_FIXED(attr->padding[0]), CLT_FIXED(attr->padding[1]), CLT_FIXED(attr->dilation[0]),
             CLT_FIXED(attr->dilation[1]), CLT_FIXED(attr->count_include_pad));
}

static void emit_batch_blocked(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_launch_begin(program, "pool/batch_blocked/pool.cl", names_of(node->op)->batch_blocked,
                     "-DLANES=%d", target->lanes);
    arg_buffers(node, program);
    arg_numbers(node->attr, program);
    clt_range1(program, (clt_extent){node->out[0]->type.dims[1], 1, target->lanes, 0}, 1);
}

static bool accepts_windows(const clt_node *node, const clt_target *target, char *why)
{
    if (!clt_all_plain(node))
        return clt_decline(why, "values are batch-blocked");
    return clt_caps_is_cpu(target->caps) || clt_decline(why, "made for CPUs");
}

/* One work-item computes several whole planes. There are four times as many work-items as compute
 * units if there are enough planes. */
static void emit_windows(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_extent planes = clt_extent_dim(clt_dims_product(&node->out[0]->type, 0, 2));
    const int64_t most = clt_extent_at(planes, target->max_batch);
    const int64_t groups = 4 * (int64_t)(target->caps->compute_units);
    const int64_t share = most / groups > 1 ? most / groups : 1;
    clt_launch_begin(program, "pool/cpu/windows.cl", names_of(node->op)->plain, "");
    arg_buffers(node, program);
    CLT_ARGS(program, CLT_INT(planes));
    arg_numbers(node->attr, program);
    CLT_ARGS(program, CLT_FIXED(share));
    clt_range1(program, clt_extent_ceil(planes, share, 1), 1);
}

/* One work-item for each element of the result. */
static void emit_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_extent planes =
        clt_extent_dim(clt_dims_product(&node->out[0]->type, 0, 2)); /* samples x channels */
    clt_launch_begin(program, "pool/portable/pool2d.cl", names_of(node->op)->plain, "");
    arg_buffers(node, program);
    CLT_ARGS(program, CLT_INT(planes));
    arg_numbers(node->attr, program);
    clt_range_items(program, target, clt_extent_elements(&node->out[0]->type));
}

/* 16 bits are possible in the batch-blocked layout and on GPUs; CPU kernels for the plain layout
 * need f32. In the batch-blocked layout, gradients of overlapping windows are added in place, so
 * they stay f32. */
bool clt_pool2d_half(const clt_node *node, const clt_target *target, int index, bool output)
{
    const clt_pool2d_attr *a = node->attr;
    (void)index;
    if (node->in[0]->layout != CLT_LAYOUT_BATCH_BLOCKED)
        return !clt_caps_is_cpu(target->caps);
    const bool gradient =
        node->op == &clt_op_avg_pool2d_grad || node->op == &clt_op_max_pool2d_grad;
    bool disjoint = true;
    for (int i = 0; i < 2; i++)
        disjoint =
            disjoint && a->stride[i] == a->kernel[i] && !a->padding[i] && a->dilation[i] == 1;
    return !output || !gradient || disjoint;
}

const clt_variant clt_pool2d_variants[] = {
    {"batch_blocked", clt_accepts_batch_blocked, emit_batch_blocked, NULL, CLT_BATCH_BLOCKED},
    {"vectors_gpu", clt_gpu_elements_accepts, clt_pool2d_gpu},
    {"planes_cpu", clt_pool2d_cpu_accepts, clt_pool2d_cpu},
    {"windows_cpu", accepts_windows, emit_windows},
    {"portable", clt_accepts_plain, emit_portable},
    {0},
};

/* Users give a dilation to maxima only, and count_include_pad to means only. */
#define ATTRIBUTES(MAXIMUM)                                                                        \
    {                                                                                              \
        {CLT_ATTRIBUTE(INT, "kernel", clt_pool2d_attr, kernel, "Size of the window."), .count = 2, \
         .least = 1, .most = INT_MAX, .default_value = 2},                                         \
            {CLT_ATTRIBUTE(INT, "stride", clt_pool2d_attr, stride,                                 \
                           "Distance between windows; 0: the size of a window."),                  \
             .count = 2, .most = INT_MAX},                                                         \
            {CLT_ATTRIBUTE(INT, "padding", clt_pool2d_attr, padding,                               \
                           "Padding on each side, at most half of the window."),                   \
             .count = 2, .most = INT_MAX},                                                         \
            {CLT_ATTRIBUTE(INT, "dilation", clt_pool2d_attr, dilation,                             \
                           "Distance between the elements of a window."),                          \
             .count = 2,                                                                           \
             .least = 1,                                                                           \
             .most = (MAXIMUM) ? INT_MAX : 1,                                                      \
             .default_value = 1,                                                                   \
             .internal = !(MAXIMUM)},                                                              \
            {CLT_ATTRIBUTE(FLAG, "ceil_mode", clt_pool2d_attr, ceil_mode,                          \
                           "Windows may extend beyond the right and lower edge.")},                \
            {CLT_ATTRIBUTE(FLAG, "count_include_pad", clt_pool2d_attr, count_include_pad,          \
                           "Means count the padding."),                                            \
             .default_value = 1, .internal = (MAXIMUM)},                                           \
            {CLT_ATTRIBUTE(INT, "in", clt_pool2d_attr, in, "Size of x."), .count = 2,              \
             .internal = 1},                                                                       \
            {0},                                                                                   \
    }

const clt_attribute clt_avg_pool2d_attributes[] = ATTRIBUTES(0);
const clt_attribute clt_max_pool2d_attributes[] = ATTRIBUTES(1);

clt_pool2d_options clt_pool2d_options_of(const clt_pool2d_attr *attr)
{
    clt_pool2d_options options = {.struct_size = sizeof options};
    for (int i = 0; i < 2; i++) {
        options.kernel[i] = attr->kernel[i];
        options.stride[i] = attr->stride[i];
        options.padding[i] = attr->padding[i];
        options.dilation[i] = attr->dilation[i];
    }
    options.ceil_mode = attr->ceil_mode;
    options.count_include_pad = attr->count_include_pad;
    return options;
}
