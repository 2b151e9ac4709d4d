/* Tile sizes and launches of clkernels/cpu/conv2d.cl. */
#include "ops/conv2d_cpu.h"

#include <stdio.h>

#include "ops/gemm_cpu.h"

/* Of an estimate in vector multiplications, as those of gemm_cpu.h. */
#define COST_OF_LOAD 0.15   /* operands of a register tile, beside its multiplications */
#define COST_OF_TILE 60.0   /* a tile's loop */
#define COST_OF_ROW 30.0    /* a row of a tile, cut at the ends of lines */
#define COST_OF_COPY 0.2    /* an element that is copied with its neighbours */
#define COST_OF_STRIDED 1.5 /* the same, without */
#define COST_OF_LINE 20.0   /* a line of the copy */
#define COST_OF_SUM 16.0    /* a weight's sum over the lanes, added */

/* TAPS: channels x taps at a time. MOST_FLOATS of a copy stay in a core's cache. */
enum { TAPS = 1024, MOST_FLOATS = 40 * 1024, DOT_COLUMNS_32 = 6, DOT_COLUMNS_16 = 3, DOT_ROWS = 4 };

/* A node as the kernels see it. */
typedef struct conv {
    clt_conv2d_shape s;
    bool data, weight;   /* which gradient */
    int64_t batch, taps; /* at least 1 */
    int64_t sources;     /* channels of a group that are copied */
    int64_t rows;        /* of a group, that the tiles' rows are */
    int64_t kinds;       /* classes of results */
    int64_t parts;       /* of the copy, by remainders */
    int64_t lines, columns, reach[2];
    int64_t room; /* floats of local memory for copies */
    int width;
} conv;

typedef struct division {
    clt_gemm_tile tile;
    int64_t lines, rows, channels; /* of a work-group; channels at a time */
    double cost;                   /* less than 0: nothing fits */
} division;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t results_of(int size, int padding, int stride)
{
    return ((int64_t)size - 1 + padding) / stride - padding / stride + 1;
}

static conv conv_of(const clt_node *node, const clt_target *target)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const int64_t batch = clt_dim(s.batch, target->max_batch), kinds = s.stride[0] * s.stride[1];
    const bool data = node->op == &clt_op_conv2d_data_grad;
    const int64_t in = s.channels / s.groups, out = s.out_channels / s.groups;
    conv c = {.s = s,
              .data = data,
              .weight = node->op == &clt_op_conv2d_weight_grad,
              .batch = batch > 0 ? batch : 1,
              .taps = (int64_t)s.kernel[0] * s.kernel[1],
              .sources = data ? out : in,
              .rows = data ? in : out,
              .kinds = data ? kinds : 1,
              .parts = data ? 1 : kinds,
              .lines = data ? results_of(s.height, s.padding[0], s.stride[0]) : s.out_height,
              .columns = data ? results_of(s.width, s.padding[1], s.stride[1]) : s.out_width,
              .width = target->caps->vector_width};
    for (int i = 0; i < 2; i++)
        c.reach[i] = (int64_t)(s.kernel[i] - 1) * s.dilation[i] / s.stride[i];
    /* The lists of taps take local memory too. */
    const int64_t bytes = target->caps->local_bytes * 3 / 4;
    c.room = least(MOST_FLOATS, bytes / (int64_t)sizeof(float) - 2 * TAPS) / c.width * c.width;
    return c;
}

/* Floats of a channel's copy, in a band of so many lines. */
static int64_t channel_floats(const conv *c, int64_t lines)
{
    return c->parts * (lines + c->reach[0]) * (c->columns + c->reach[1]);
}

static double copy_cost(const conv *c, int64_t lines)
{
    const double each = c->parts > 1 ? COST_OF_STRIDED : COST_OF_COPY;
    return each * (double)channel_floats(c, lines) +
           COST_OF_LINE * (double)(c->parts * (lines + c->reach[0]));
}

/* The most work that a unit has, of `groups` equal work-groups. */
static double makespan(const clt_target *target, int64_t groups, double each)
{
    const int units = target->caps->compute_units > 0 ? target->caps->compute_units : 1;
    return (double)ceil_div(groups, units) * (each + CLT_COST_OF_GROUP);
}

static double cost_of(const conv *c, const clt_target *target, const division *d)
{
    const int64_t positions = d->lines * (c->columns + c->reach[1]) - c->reach[1];
    const int64_t panels = ceil_div(positions, d->tile.vectors * (int64_t)c->width);
    const double cells = d->tile.rows * d->tile.vectors;
    const double k = (double)(c->sources * c->taps) / (double)c->kinds;
    const double passes = (double)ceil_div(c->sources, d->channels);
    const double tiles = (double)(ceil_div(d->rows, d->tile.rows) * panels);
    const double each = tiles * (k * (cells + COST_OF_LOAD * (d->tile.rows + d->tile.vectors)) +
                                 passes * (COST_OF_TILE + COST_OF_ROW * d->tile.rows)) +
                        (double)c->sources * copy_cost(c, d->lines) +
                        CLT_COST_OF_READING * k * (double)d->rows;
    const int64_t groups = c->batch * c->s.groups * c->kinds * ceil_div(c->lines, d->lines) *
                           ceil_div(c->rows, d->rows);
    return makespan(target, groups, each);
}

/* Tiles for results of few channels, as of depthwise convolutions, behind those of products. */
static const clt_gemm_tile few_rows[] = {{1, 8}, {2, 8}, {4, 4}};
static const clt_gemm_tile few_rows_16[] = {{1, 8}, {2, 4}, {4, 2}};
enum { FEW_ROWS = sizeof few_rows / sizeof *few_rows };

/* Number `index` of the tiles that fit the device's registers; false: there is none. */
static bool tile_of(const clt_caps *caps, int index, clt_gemm_tile *tile)
{
    int count;
    const clt_gemm_tile *tiles = clt_gemm_cpu_tiles(caps, &count);
    if (index < 0 || index >= count + FEW_ROWS)
        return false;
    *tile = index < count                  ? tiles[index]
            : caps->vector_registers >= 32 ? few_rows[index - count]
                                           : few_rows_16[index - count];
    return true;
}

/* The division of a forward convolution or data gradient that keeps the units busy shortest. */
static division divide(const conv *c, const clt_target *target)
{
    enum { MOST_SPLITS = 16 };
    const int asked = (int)clt_tile_number(target, "TILE", 0, INT8_MAX, -1);
    clt_gemm_tile tile;
    division best = {.cost = -1};
    for (int t = asked < 0 ? 0 : asked;
         tile_of(target->caps, t, &tile) && (asked < 0 || t == asked); t++)
        for (int64_t bands = 1; bands <= c->lines; bands += 1 + bands / 4)
            for (int64_t down = 1; down <= MOST_SPLITS; down *= 2) {
                const int64_t bands_of_tile = ceil_div(c->rows, tile.rows);
                division d = {.tile = tile, .lines = ceil_div(c->lines, bands)};
                /* What a panel reads beyond the last channel's copy. */
                const int64_t room = c->room - (tile.vectors + 1) * (int64_t)c->width;
                const int64_t fit = room / channel_floats(c, d.lines);
                d.rows = ceil_div(bands_of_tile, down) * tile.rows;
                d.channels = least(least(fit, TAPS / c->taps), c->sources);
                if (d.channels < 1 || down > bands_of_tile)
                    break;
                /* Even shares. */
                d.channels = ceil_div(c->sources, ceil_div(c->sources, d.channels));
                d.cost = cost_of(c, target, &d);
                if (best.cost < 0 || d.cost < best.cost)
                    best = d;
            }
    return best;
}

static clt_gemm_tile dot_tile(const clt_target *target)
{
    return (clt_gemm_tile){DOT_ROWS,
                           target->caps->vector_registers >= 32 ? DOT_COLUMNS_32 : DOT_COLUMNS_16};
}

/* Of the weight gradient: `channels` of x and `rows` of dy in a work-group. */
static division divide_weights(const conv *c, const clt_target *target)
{
    division best = {.cost = -1};
    const clt_gemm_tile tile = dot_tile(target);
    const int64_t pitch = c->columns + c->reach[1];
    for (int64_t bands = 1; bands <= c->lines; bands += 1 + bands / 4)
        for (int64_t across = 1; across <= c->sources; across += 1 + across / 4)
            for (int64_t down = 1; down <= ceil_div(c->rows, tile.rows); down += 1 + down / 4) {
                division d = {.tile = tile,
                              .lines = ceil_div(c->lines, bands),
                              .channels = ceil_div(c->sources, across)};
                d.rows = least(ceil_div(ceil_div(c->rows, tile.rows), down) * tile.rows, c->rows);
                const int64_t vectors = ceil_div(d.lines * pitch, c->width);
                const int64_t floats = d.rows * vectors * c->width +
                                       d.channels * channel_floats(c, d.lines) + c->reach[1] +
                                       c->width;
                if (floats > c->room)
                    continue;
                const double cells = tile.rows * tile.vectors;
                const double tiles = (double)(ceil_div(d.rows, tile.rows) *
                                              ceil_div(d.channels * c->taps, tile.vectors));
                const double loads = COST_OF_LOAD * (tile.rows + 2 * tile.vectors);
                const double each =
                    (double)(c->batch * ceil_div(c->lines, d.lines)) *
                    (tiles * ((double)vectors * (cells + loads) + cells * COST_OF_SUM) +
                     (double)d.channels * copy_cost(c, d.lines) +
                     (double)d.rows * (COST_OF_COPY * (double)(d.lines * pitch) +
                                       COST_OF_LINE * (double)d.lines));
                d.cost = makespan(target,
                                  c->s.groups * ceil_div(c->sources, d.channels) *
                                      ceil_div(c->rows, d.rows),
                                  each);
                if (best.cost < 0 || d.cost < best.cost)
                    best = d;
            }
    return best;
}

bool clt_conv2d_cpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_caps *caps = target->caps;
    if (!clt_all_plain(node))
        return clt_decline(why, "values lie in lanes");
    if (!clt_caps_is_cpu(caps))
        return clt_decline(why, "made for CPUs");
    if (caps->vector_width != 4 && caps->vector_width != 8 && caps->vector_width != 16)
        return clt_decline(why, "vectors of %d floats", caps->vector_width);
    const conv c = conv_of(node, target);
    if (c.taps > TAPS)
        return clt_decline(why, "a kernel of more than %d elements", TAPS);
    const int64_t pitch = c.columns + c.reach[1];
    if (c.room < 0 || pitch > c.room || c.reach[0] >= c.room || c.parts > c.room ||
        channel_floats(&c, 1) > c.room)
        return clt_decline(why, "lines of %lld elements, too long for %lld bytes of local memory",
                           (long long)pitch, (long long)caps->local_bytes);
    if ((c.weight ? divide_weights(&c, target) : divide(&c, target)).cost < 0)
        return clt_decline(why, "a copy of %lld lines is too large for %lld bytes of local memory",
                           (long long)(c.reach[0] + 1), (long long)caps->local_bytes);
    return true;
}

bool clt_conv2d_cpu_tiles(const clt_node *node, const clt_target *target, int index, char *text)
{
    clt_gemm_tile tile;
    if (node->op == &clt_op_conv2d_weight_grad || !tile_of(target->caps, index, &tile))
        return false;
    snprintf(text, CLT_TILE_TEXT, "TILE=%d", index);
    return true;
}

/* The arguments NUMBERS. */
static void arg_numbers(clt_program *program, const conv *c, const division *d)
{
    const clt_conv2d_shape *s = &c->s;
    const int64_t values[] = {
        s->channels,    s->height,      s->width,     s->out_channels, s->out_height, s->out_width,
        s->kernel[0],   s->kernel[1],   s->stride[0], s->stride[1],    s->padding[0], s->padding[1],
        s->dilation[0], s->dilation[1], s->groups,    c->reach[0],     c->reach[1],   d->lines};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        clt_arg_int(program, clt_fixed(values[i]));
}

static void convolve(const clt_node *node, const clt_target *target, const clt_epilogue *epilogue,
                     clt_program *program)
{
    const conv c = conv_of(node, target);
    const division d = divide(&c, target);
    const bool bias = !c.data && node->n_in > 2 && node->in[2];
    clt_launch_begin(program, "cpu/conv2d.cl", "convolve",
                     "-DPASS=%d -DVW=%d -DMR=%d -DNV=%d -DROOM=%d -DTAPS=%d", c.data, c.width,
                     d.tile.rows, d.tile.vectors, (int)c.room, TAPS);
    clt_arg_in(program, 0);
    clt_arg_in(program, 1);
    clt_arg_in(program, bias ? 2 : 1);
    clt_arg_out(program, 0);
    arg_numbers(program, &c, &d);
    clt_arg_int(program, clt_fixed(d.rows));
    clt_arg_int(program, clt_fixed(d.channels));
    clt_arg_int(program, clt_fixed(bias));
    clt_arg_epilogue(program, epilogue);
    clt_extent layers = clt_extent_dim(c.s.batch);
    layers.mul *= c.s.groups;
    clt_range3(program, clt_fixed(ceil_div(c.lines, d.lines) * c.kinds),
               clt_fixed(ceil_div(c.rows, d.rows)), layers, 1, 1, 1);
}

void clt_conv2d_cpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    convolve(node, target, &((const clt_conv2d_attr *)node->attr)->epilogue, program);
}

void clt_conv2d_data_grad_cpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_epilogue none = {CLT_ACTIVATION_NONE, 0};
    convolve(node, target, &none, program);
}

void clt_conv2d_weight_grad_cpu(const clt_node *node, const clt_target *target,
                                clt_program *program)
{
    const clt_conv2d_attr *attr = node->attr;
    const conv c = conv_of(node, target);
    const division d = divide_weights(&c, target);
    clt_launch_begin(program, "cpu/conv2d.cl", "weight_grad", "-DVW=%d -DMR=%d -DNR=%d -DROOM=%d",
                     c.width, d.tile.rows, d.tile.vectors, (int)c.room);
    clt_arg_in(program, 0);
    clt_arg_in(program, 1);
    clt_arg_out(program, 0);
    clt_arg_out(program, 1);
    arg_numbers(program, &c, &d);
    clt_arg_int(program, clt_fixed(d.rows));
    clt_arg_int(program, clt_fixed(d.channels));
    clt_arg_int(program, clt_extent_dim(c.s.batch));
    clt_arg_int(program, clt_fixed(attr->bias));
    clt_range3(program, clt_fixed(ceil_div(c.sources, d.channels)),
               clt_fixed(ceil_div(c.rows, d.rows)), clt_fixed(c.s.groups), 1, 1, 1);
}
