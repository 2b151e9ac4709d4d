/* Launches of clkernels/conv/gpu/depthwise.cl. */
#include "ops/conv/depthwise_gpu.h"

#include <stdio.h>

#include "ops/conv/conv2d_gpu.h"
#include "ops/core/group_gpu.h"
#include "ops/core/nn.h"

enum {
    MOST_EACH = 8,     /* kernels of a channel; with more, a matrix product is used */
    MOST_TAPS = 64,    /* taps of a kernel, because the loops over them are unrolled */
    MOST_RESULTS = 16, /* results of a work-item */
    MOST_SUMMED = 4,   /* elements of dy of a work-item, besides its sums */
    MOST_SUMS = 16,    /* weight gradients that a work-item sums, unless a row has more */
    MOST_SPAN = 64,    /* pixels from the first to the last tap of a row or column */
    MOST_ROWS = 4      /* Y */
};

/* How a kernel divides the work. */
typedef struct blocks {
    int v, rows; /* -DV, -DY */
    int64_t across, down;
} blocks;

static int64_t batch_of(const clt_conv2d_shape *s, const clt_target *target)
{
    const int64_t batch = clt_dim(s->batch, target->max_batch);
    return batch > 0 ? batch : 1;
}

/* Elements of dx for each element of dy. */
static int finer(const clt_node *node, const clt_conv2d_shape *s)
{
    return node->op == &clt_op_conv2d_data_grad ? s->stride[0] * s->stride[1] : 1;
}

bool clt_depthwise_gpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    if (s.groups < 2 || s.groups != s.channels)
        return clt_decline(why, "not depthwise: %d channels in %d groups", s.channels, s.groups);
    if (s.out_channels / s.groups > MOST_EACH)
        return clt_decline(why, "%d kernels a channel", s.out_channels / s.groups);
    if ((int64_t)s.kernel[0] * s.kernel[1] > MOST_TAPS)
        return clt_decline(why, "kernels of %dx%d", s.kernel[0], s.kernel[1]);
    if ((int64_t)(s.kernel[1] - 1) * s.dilation[1] > MOST_SPAN || s.padding[1] > MOST_SPAN ||
        s.stride[1] > MOST_RESULTS || s.stride[0] > MOST_RESULTS ||
        (int64_t)(s.kernel[0] - 1) * s.dilation[0] > MOST_SPAN || s.padding[0] > MOST_SPAN)
        return clt_decline(why, "kernels that span more than %d pixels", MOST_SPAN);
    if (finer(node, &s) > MOST_RESULTS)
        return clt_decline(why, "strides of %dx%d", s.stride[0], s.stride[1]);
    return clt_accepts_f32(node, why) && clt_gpu_group_accepts(node, target, why) &&
           clt_conv2d_gpu_fits(node, target, why);
}

/* Rows of a block. More rows in a block read fewer rows in total, but could leave the device
 * idle. */
static blocks blocks_of(const clt_node *node, const clt_conv2d_shape *s, const clt_target *target)
{
    enum { ITEMS_A_UNIT = 512 };
    const bool data = node->op == &clt_op_conv2d_data_grad;
    const bool weight = node->op == &clt_op_conv2d_weight_grad;
    const int64_t height = data ? clt_ceil_div(s->height, s->stride[0]) : s->out_height;
    const int64_t width = data ? clt_ceil_div(s->width, s->stride[1]) : s->out_width;
    const int64_t planes = batch_of(s, target) * (data ? s->channels : s->out_channels);
    const int wanted = (int)clt_tile_number(target, "Y", 1, MOST_ROWS, 0);
    const int v = s->width % 4 || s->out_width % 4 || 4 * finer(node, s) > MOST_RESULTS ? 1 : 4;
    const int64_t span = (int64_t)(s->kernel[0] - 1) * s->dilation[0];
    blocks best = {.v = v, .rows = 0};
    int64_t least = 0;
    for (int y = 1; y <= MOST_ROWS; y *= 2) {
        const int64_t down = clt_ceil_div(height, y), across = clt_ceil_div(width, v);
        const int64_t read =
            down * (data ? y + span / s->stride[0] : (y - 1) * (int64_t)s->stride[0] + span + 1);
        const bool idle = down * across * planes < ITEMS_A_UNIT * target->caps->compute_units;
        if (y > 1 && (y * v * finer(node, s) > (weight ? MOST_SUMMED : MOST_RESULTS) ||
                      (weight && height % y)))
            continue;
        if (!best.rows || y == wanted || (best.rows != wanted && read < least && !idle)) {
            best = (blocks){v, y, across, down};
            least = read;
        }
    }
    return best;
}

bool clt_depthwise_gpu_tiles(const clt_node *node, const clt_target *target, int index, char *text)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    for (int y = 1; y <= MOST_ROWS; y *= 2) {
        clt_target asked = *target;
        char tile[CLT_TILE_TEXT];
        snprintf(tile, sizeof tile, "Y=%d", y);
        asked.tile = tile;
        if (blocks_of(node, &s, &asked).rows == y && index-- == 0) {
            snprintf(text, CLT_TILE_TEXT, "%s", tile);
            return true;
        }
    }
    return false;
}

static void begin(clt_program *program, const char *kernel, int pass, const blocks *b,
                  const clt_conv2d_shape *s, const char *more)
{
    clt_launch_begin(program, "conv/gpu/depthwise.cl", kernel,
                     "-DPASS=%d -DV=%d -DY=%d -DKH=%d -DKW=%d -DSY=%d -DSX=%d -DPY=%d -DPX=%d "
                     "-DDY=%d -DDX=%d%s",
                     pass, b->v, b->rows, s->kernel[0], s->kernel[1], s->stride[0], s->stride[1],
                     s->padding[0], s->padding[1], s->dilation[0], s->dilation[1], more);
}

static void arg_shape(clt_program *program, const clt_conv2d_shape *s)
{
    const int values[] = {s->channels,     s->height,     s->width,
                          s->out_channels, s->out_height, s->out_width};
    CLT_ARGS(program, CLT_INT(clt_extent_dim(s->batch)));
    for (int i = 0; i < (int)(sizeof values / sizeof *values); i++)
        CLT_ARGS(program, CLT_FIXED(values[i]));
}

/* Sets the range: blocks of a channel in all samples x channels. */
static void range(clt_program *program, const blocks *b, int channels, const clt_conv2d_shape *s)
{
    enum { GROUP = 128 };
    clt_extent items = clt_extent_dim(s->batch);
    items.mul *= b->across * b->down;
    clt_range3(program, clt_extent_ceil(items, GROUP, GROUP), clt_fixed(channels), clt_fixed(1),
               GROUP, 1, 1);
}

void clt_depthwise_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const blocks b = blocks_of(node, &s, target);
    const bool bias = node->n_in > 2 && node->in[2];
    begin(program, "depthwise", 0, &b, &s, "");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_IN(bias ? 2 : 1), CLT_OUT(0));
    arg_shape(program, &s);
    CLT_ARGS(program, CLT_FIXED(bias), CLT_EPILOGUE(&attr->epilogue));
    range(program, &b, s.out_channels, &s);
}

void clt_depthwise_data_grad_gpu(const clt_node *node, const clt_target *target,
                                 clt_program *program)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const blocks b = blocks_of(node, &s, target);
    begin(program, "depthwise_data_grad", 1, &b, &s, "");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_OUT(0));
    arg_shape(program, &s);
    range(program, &b, s.channels, &s);
}

void clt_depthwise_weight_grad_gpu(const clt_node *node, const clt_target *target,
                                   clt_program *program)
{
    enum { LEAST_BLOCKS = 4, MOST_SLICES = 64 };
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const blocks b = blocks_of(node, &s, target);
    const int64_t all = batch_of(&s, target) * b.across * b.down;
    const int group = clt_gpu_power(all, CLT_GPU_LEAST_GROUP, CLT_GPU_GROUP);
    int rows = MOST_SUMS / s.kernel[1];
    rows = rows < 1 ? 1 : rows < s.kernel[0] ? rows : s.kernel[0];
    const int64_t parts = clt_ceil_div(s.kernel[0], rows);
    int64_t slices = 1;
    while (slices < MOST_SLICES && slices * parts * s.out_channels < clt_gpu_groups(target) &&
           all / slices >= (int64_t)2 * LEAST_BLOCKS * group)
        slices *= 2;
    const clt_conv2d_slices sums = clt_conv2d_slices_begin(node, slices, program);
    char more[48];
    snprintf(more, sizeof more, " -DKR=%d -DGROUP=%d", rows, group);
    begin(program, "depthwise_weight_grad", 2, &b, &s, more);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1));
    clt_conv2d_slices_arg(&sums, program);
    CLT_ARGS(program, CLT_OUT(1));
    arg_shape(program, &s);
    CLT_ARGS(program, CLT_FIXED(attr->bias), CLT_FIXED(sums.part));
    clt_range3(program, clt_fixed(slices * group), clt_fixed(s.out_channels), clt_fixed(parts),
               group, 1, 1);
    clt_conv2d_slices_end(&sums, program);
}
