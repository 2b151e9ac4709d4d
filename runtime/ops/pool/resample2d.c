#include "ops/pool/resample2d.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "ops/core/dims.h"
#include "ops/core/group_gpu.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include "ops/pool/pool2d.h"

/* --- tables ----------------------------------------------------------------------------------- */

clt_status clt_resample_axis_create(int in, int out, int taps, clt_resample_axis *axis)
{
    *axis = (clt_resample_axis){.in = in, .out = out, .taps = taps};
    axis->begin = clt_calloc((size_t)out, sizeof *axis->begin);
    axis->count = clt_calloc((size_t)out, sizeof *axis->count);
    axis->weight = clt_calloc((size_t)out * (size_t)taps, sizeof *axis->weight);
    if (axis->begin && axis->count && axis->weight)
        return CLT_OK;
    clt_resample_axis_free(axis);
    return clt_fail(CLT_OUT_OF_MEMORY, "resample2d: no memory for a table of %d elements", out);
}

void clt_resample_axis_free(clt_resample_axis *axis)
{
    CLT_FREE(axis->begin, axis->count, axis->weight);
    *axis = (clt_resample_axis){0};
}

/* Axis i of the node, with pointers into the node's constants. */
static clt_resample_axis axis_of(const clt_node *node, int i)
{
    const clt_resample2d_attr *a = node->attr;
    int *ints = node->in[1]->data;
    float *weights = node->in[2]->data;
    const int all = a->out[0] + a->out[1], at = i ? a->out[0] : 0;
    return (clt_resample_axis){.in = a->in[i],
                               .out = a->out[i],
                               .taps = a->taps[i],
                               .begin = ints + at,
                               .count = ints + all + at,
                               .weight = weights + (i ? (int64_t)a->taps[0] * a->out[0] : 0)};
}

/* The axis of the gradient: for each element of the operand, the elements of the result that read
 * it. Begins and ends are non-decreasing, so these elements are neighbours. */
static clt_status transpose(const clt_resample_axis *of, clt_resample_axis *to)
{
    int taps = 1;
    for (int pass = 0, first = 0; pass < 2; pass++, first = 0) {
        if (pass)
            CLT_TRY(clt_resample_axis_create(of->out, of->in, taps, to));
        for (int j = 0; j < of->in; j++) {
            while (first < of->out && of->begin[first] + of->count[first] <= j)
                first++;
            int count = 0;
            for (int i = first; i < of->out && of->begin[i] <= j; i++, count++)
                if (pass && j - of->begin[i] < of->count[i])
                    to->weight[(int64_t)count * to->out + j] =
                        of->weight[(int64_t)(j - of->begin[i]) * of->out + i];
            taps = count > taps ? count : taps;
            if (pass) {
                to->begin[j] = first;
                to->count[j] = count;
            }
        }
    }
    return CLT_OK;
}

/* --- the operator ------------------------------------------------------------------------------
 */

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_resample2d_attr *a = node->attr;
    const clt_type *x = &node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    if (x->rank != 4 || x->dims[2] != a->in[0] || x->dims[3] != a->in[1])
        return clt_fail(CLT_SHAPE, "resample2d: the operand %s must be [B, C, %d, %d]",
                        clt_type_text(x, text), a->in[0], a->in[1]);
    CLT_TRY(clt_check_image(node, 0, 1));
    *out = *x;
    out->dims[2] = a->out[0];
    out->dims[3] = a->out[1];
    if ((double)x->dims[1] * a->out[0] * a->out[1] > INT32_MAX)
        return clt_fail(CLT_UNSUPPORTED,
                        "resample2d: the result %dx%d of %s has more than %d elements an image",
                        a->out[0], a->out[1], clt_type_text(x, text), INT32_MAX);
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const clt_resample2d_attr *a = node->attr;
    clt_resample_axis axes[2] = {{0}, {0}};
    clt_status status = CLT_OK;
    if (!wanted[0])
        return CLT_OK;
    for (int i = 0; i < 2 && status == CLT_OK; i++) {
        const clt_resample_axis own = axis_of(node, i);
        status = transpose(&own, &axes[i]);
    }
    if (status == CLT_OK)
        dx[0] = clt_resample2d(dy[0], a->kind, !a->gradient, axes);
    for (int i = 0; i < 2; i++)
        clt_resample_axis_free(&axes[i]);
    return status == CLT_OK ? clt_graph_status(node->graph) : status;
}

/* --- parts of an image -------------------------------------------------------------------------
 */

static bool reach(const clt_node *node, clt_window *w)
{
    if (w->dim < 2)
        return false;
    const clt_resample_axis axis = axis_of(node, w->dim - 2);
    w->from = axis.in;
    w->to = 0;
    for (int64_t i = w->begin; i < w->end; i++) {
        const int64_t end = axis.begin[i] + axis.count[i];
        w->from = axis.begin[i] < w->from ? axis.begin[i] : w->from;
        w->to = end > w->to ? end : w->to;
    }
    return w->from < w->to;
}

/* Copies the window's part of an axis. */
static clt_status cut_axis(const clt_resample_axis *of, const clt_window *w, clt_resample_axis *to)
{
    const int out = (int)(w->end - w->begin);
    CLT_TRY(clt_resample_axis_create((int)(w->to - w->from), out, of->taps, to));
    for (int i = 0; i < out; i++) {
        to->begin[i] = of->begin[w->begin + i] - (int)w->from;
        to->count[i] = of->count[w->begin + i];
        for (int64_t t = 0; t < of->taps; t++)
            to->weight[t * out + i] = of->weight[t * of->out + w->begin + i];
    }
    return CLT_OK;
}

static clt_value *within(const clt_node *node, const clt_window *w, clt_value *const *in)
{
    const clt_resample2d_attr *a = node->attr;
    const int own = w->dim - 2;
    clt_resample_axis axes[2] = {axis_of(node, 0), axis_of(node, 1)}, part;
    const clt_status status = cut_axis(&axes[own], w, &part);
    if (status != CLT_OK)
        return clt_graph_failed(node->graph, status);
    axes[own] = part;
    clt_value *y = clt_resample2d(in[0], a->kind, a->gradient, axes);
    clt_resample_axis_free(&part);
    return y;
}

static void describe(const clt_node *node, clt_str *text)
{
    static const char *const kinds[] = {"adaptive_avg", "nearest", "bilinear"};
    const clt_resample2d_attr *a = node->attr;
    clt_str_add(text, "%s%s, %dx%d to %dx%d", kinds[a->kind], a->gradient ? " gradient" : "",
                a->in[0], a->in[1], a->out[0], a->out[1]);
}

/* The rows are resampled first, then the columns. */
static double flops(const clt_node *node, int64_t n)
{
    const clt_resample2d_attr *a = node->attr;
    const double images = (double)clt_type_elements(&node->out[0]->type, n) / a->out[1];
    return 2 * images * ((double)a->taps[0] * a->in[1] + (double)a->taps[1] * a->out[1]);
}

/* --- launches ----------------------------------------------------------------------------------
 */

static void arg_common(const clt_node *node, clt_program *p)
{
    const clt_resample2d_attr *a = node->attr;
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_IN(2), CLT_OUT(0));
    const int numbers[] = {a->in[0], a->in[1], a->out[0], a->out[1], a->taps[0]};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        CLT_ARGS(p, CLT_FIXED(numbers[i]));
}

static clt_extent planes_of(const clt_node *node)
{
    return clt_extent_dim(clt_dims_product(&node->out[0]->type, 0, 2));
}

/* Rows of a plane for each work-item. A plane is divided if `planes` alone would leave compute
 * units idle. */
static int64_t band_of(const clt_target *target, int64_t planes, int64_t rows)
{
    enum { ITEMS_A_UNIT = 4 };
    const int64_t wanted = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    int64_t bands = planes > 0 && planes < wanted ? (wanted + planes - 1) / planes : 1;
    bands = bands > rows ? rows : bands;
    return (rows + bands - 1) / bands;
}

static void emit_batch_blocked(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_resample2d_attr *a = node->attr;
    const int64_t channels = node->out[0]->type.dims[1];
    const clt_extent planes = {channels, 1, target->lanes, 0};
    const int64_t band = band_of(target, clt_extent_at(planes, target->max_batch), a->out[0]);
    clt_launch_begin(p, "pool/batch_blocked/resample.cl", "resample2d", "-DLANES=%d -DTX=%d",
                     target->lanes, a->taps[1] > 1 ? 2 : 1);
    arg_common(node, p);
    CLT_ARGS(p, CLT_FIXED(band));
    clt_range3(p, clt_fixed((a->out[0] + band - 1) / band), planes, clt_fixed(1), 1, 1, 1);
}

/* Floats of a row in local memory, including those that vectors read beyond its end. */
enum { MOST_COLUMNS = 8000, MOST_TAPS = 8 };

static bool accepts_cpu(const clt_node *node, const clt_target *target, char *why)
{
    const clt_resample2d_attr *a = node->attr;
    if (!clt_accepts_cpu_vectors(node, target, why))
        return false;
    if (a->in[1] > MOST_COLUMNS)
        return clt_decline(why, "rows of more than %d elements", MOST_COLUMNS);
    return a->taps[1] <= MOST_TAPS ||
           clt_decline(why, "results of more than %d columns", MOST_TAPS);
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_resample2d_attr *a = node->attr;
    const clt_extent planes = planes_of(node);
    const int64_t most = clt_extent_at(planes, target->max_batch);
    const int64_t items = 4 * (int64_t)target->caps->compute_units;
    const int64_t share = most / items > 1 ? most / items : 1;
    const int64_t band = band_of(target, most, a->out[0]);
    int room = 256;
    while (room < a->in[1] + MOST_TAPS)
        room *= 2;
    clt_launch_begin(p, "pool/cpu/resample.cl", "resample2d", "-DVW=%d -DTX=%d -DROOM=%d",
                     target->caps->vector_width, a->taps[1], (a->in[1] + 15) / 16 * 16 + MOST_TAPS);
    arg_common(node, p);
    CLT_ARGS(p, CLT_INT(planes), CLT_FIXED(share), CLT_FIXED(band));
    clt_range3(p, clt_fixed((a->out[0] + band - 1) / band), clt_extent_ceil(planes, share, 1),
               clt_fixed(1), 1, 1, 1);
}

/* A work-item computes V neighbours of a row. */
static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_resample2d_attr *a = node->attr;
    const int v = a->out[1] % 4 ? 1 : 4;
    clt_extent items = planes_of(node);
    items.mul *= (int64_t)a->out[0] * a->out[1] / v;
    (void)target;
    clt_launch_begin(p, "pool/gpu/resample.cl", "resample2d", "-DV=%d -DTABLES", v);
    arg_common(node, p);
    CLT_ARGS(p, CLT_INT(planes_of(node)));
    clt_range_gpu(p, items, 1);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_launch_begin(p, "pool/portable/resample.cl", "resample2d", "%s", "");
    arg_common(node, p);
    CLT_ARGS(p, CLT_INT(planes_of(node)));
    clt_range_items(p, target, clt_extent_elements(&node->out[0]->type));
}

static const char *const kinds[] = {"adaptive_avg", "nearest", "bilinear", NULL};

const clt_op clt_op_resample2d = {
    .name = "resample2d",
    .doc = "Weighted sums of neighbours along each axis, by tables. Adaptive means and upsampling "
           "use this operator, their gradients too.",
    .operands = "x bchw, places n i32, weights m",
    .results = "y bcij",
    .whole = "hwnmij",
    CLT_ATTRIBUTES(
        clt_resample2d_attr,
        {CLT_ATTRIBUTE(INT, "in", clt_resample2d_attr, in, "Size of x."), .count = 2,
         .internal = 1},
        {CLT_ATTRIBUTE(INT, "out", clt_resample2d_attr, out, "Size of the result."), .count = 2,
         .internal = 1},
        {CLT_ATTRIBUTE(INT, "taps", clt_resample2d_attr, taps,
                       "The most elements of a sum, for each axis."),
         .count = 2, .internal = 1},
        {CLT_ATTRIBUTE(CHOICE, "kind", clt_resample2d_attr, kind, "The meaning of the tables."),
         .choices = kinds, .internal = 1},
        {CLT_ATTRIBUTE(FLAG, "gradient", clt_resample2d_attr, gradient,
                       "The tables are those of the gradient."),
         .internal = 1}),
    .infer = infer,
    .gradient = gradient,
    .reach = reach,
    .within = within,
    .describe = describe,
    .flops = flops,
    .batch_blocked = clt_wants_batch_blocked,
    CLT_VARIANTS(
        {"batch_blocked", clt_accepts_batch_blocked, emit_batch_blocked, NULL, CLT_BATCH_BLOCKED},
        {"vectors_gpu", clt_gpu_elements_accepts, emit_gpu}, {"rows_cpu", accepts_cpu, emit_cpu},
        {"portable", clt_accepts_plain, emit_portable}),
};

clt_value *clt_resample2d(clt_value *x, clt_resample_kind kind, bool gradient_of,
                          const clt_resample_axis axes[2])
{
    clt_resample2d_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.kind = kind;
    attr.gradient = gradient_of;
    int64_t ints = 0, weights = 0;
    for (int i = 0; i < 2; i++) {
        attr.in[i] = axes[i].in;
        attr.out[i] = axes[i].out;
        attr.taps[i] = axes[i].taps;
        ints += 2 * (int64_t)axes[i].out;
        weights += (int64_t)axes[i].out * axes[i].taps;
    }
    int *all = clt_calloc((size_t)ints, sizeof *all);
    float *factors = clt_calloc((size_t)weights, sizeof *factors);
    clt_value *y = NULL;
    if (all && factors) {
        for (int i = 0, at = 0; i < 2; at += axes[i++].out) {
            memcpy(all + at, axes[i].begin, (size_t)axes[i].out * sizeof *all);
            memcpy(all + ints / 2 + at, axes[i].count, (size_t)axes[i].out * sizeof *all);
            memcpy(factors + (i ? (size_t)axes[0].out * (size_t)axes[0].taps : 0), axes[i].weight,
                   (size_t)axes[i].out * (size_t)axes[i].taps * sizeof *factors);
        }
        clt_value *table = clt_constant(x->graph, CLT_I32, 1, &ints, all);
        clt_value *factor = clt_constant(x->graph, CLT_F32, 1, &weights, factors);
        y = clt_emit1(&clt_op_resample2d, &attr, 3, x, table, factor);
    } else {
        clt_graph_failed(x->graph,
                         clt_fail(CLT_OUT_OF_MEMORY, "resample2d: no memory for its tables"));
    }
    CLT_FREE(all, factors);
    return y;
}

bool clt_resample_accepts(const char *op, const clt_value *x)
{
    char text[CLT_TYPE_TEXT];
    if (x->type.rank == 4 && x->type.dims[2] > 0 && x->type.dims[3] > 0 &&
        x->type.dims[2] <= CLT_RESAMPLE_MOST && x->type.dims[3] <= CLT_RESAMPLE_MOST)
        return true;
    clt_graph_failed(x->graph, clt_fail(CLT_SHAPE,
                                        "%s: the operand %s must be [B, C, H, W] with constant H "
                                        "and W from 1 to %d",
                                        op, clt_type_text(&x->type, text), CLT_RESAMPLE_MOST));
    return false;
}
