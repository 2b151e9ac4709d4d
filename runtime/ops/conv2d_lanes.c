/* conv2d and its gradients in the LANES layout: clkernels/lanes/conv*.cl. */
#include "ops/conv2d_lanes.h"

#include <stdio.h>

#include "ops/nn.h"

/* A register tile: columns x channels. */
typedef struct tile {
    int columns, channels;
} tile;

/* Instructions of a row of `width` columns and `channels` channels in tiles: a multiplication a
 * cell, and half of one a load. Tails have tiles of their own, which load as much for less. */
static double tile_cost(tile t, int width, int channels)
{
    double cost = 0;
    for (int x = 0; x < width; x += t.columns) {
        const int columns = width - x < t.columns ? width - x : t.columns;
        for (int c = 0; c < channels; c += t.channels) {
            const int rows = channels - c < t.channels ? channels - c : t.channels;
            cost += columns * rows + 0.5 * (columns + rows);
        }
    }
    return cost;
}

/* The tile with at most `accumulators` cells that costs least. */
static tile best_tile(int width, int channels, int accumulators)
{
    tile best = {1, 1};
    double best_cost = tile_cost(best, width, channels);
    for (int columns = 1; columns <= 8; columns++)
        for (int rows = 1; rows <= 8 && rows * columns <= accumulators; rows++) {
            const tile t = {columns, rows};
            const double cost = tile_cost(t, width, channels);
            if (cost < best_cost) {
                best = t;
                best_cost = cost;
            }
        }
    return best;
}

static int accumulators(const clt_target *target)
{
    return target->caps->vector_registers >= 32 ? 24 : 12;
}

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

/* Output rows of a work-group: all, unless that leaves compute units without work. */
static int rows_of_group(const clt_target *target, int rows, int64_t groups_a_row_band)
{
    const int64_t blocks = (target->max_batch + target->lanes - 1) / target->lanes;
    const int64_t wanted = 8 * (int64_t)target->caps->compute_units;
    int64_t bands =
        ceil_div((int)(wanted < INT32_MAX ? wanted : INT32_MAX), (int)(groups_a_row_band * blocks));
    bands = bands < 1 ? 1 : bands > rows ? rows : bands;
    return ceil_div(rows, (int)bands);
}

static clt_extent blocks_of(const clt_target *target)
{
    return (clt_extent){1, 1, target->lanes, 0};
}

static bool in_lanes(const clt_node *node, int operands, char *why)
{
    for (int i = 0; i < operands; i++)
        if (node->in[i]->layout != CLT_LAYOUT_LANES)
            return clt_decline(why, "operands lie plain");
    return true;
}

/* Options that all kernels share, before those of the tile. */
static void shape_options(const clt_conv2d_shape *s, int lanes, char *text, size_t room)
{
    snprintf(text, room,
             "-DLANES=%d -DKY=%d -DKX=%d -DSY=%d -DSX=%d -DDY=%d -DDX=%d -DPY=%d -DPX=%d", lanes,
             s->kernel[0], s->kernel[1], s->stride[0], s->stride[1], s->dilation[0], s->dilation[1],
             s->padding[0], s->padding[1]);
}

static void arg_sizes(clt_program *p, const clt_conv2d_shape *s)
{
    const int sizes[] = {s->groups,   s->channels / s->groups,     s->height,
                         s->width,    s->out_channels / s->groups, s->out_height,
                         s->out_width};
    clt_arg_run(p, CLT_RUN_COUNT);
    for (int i = 0; i < 7; i++)
        clt_arg_int(p, clt_fixed(sizes[i]));
}

bool clt_conv2d_lanes_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_conv2d_attr *attr = node->attr;
    (void)target;
    if (attr->epilogue.activation > CLT_ACTIVATION_RELU)
        return clt_decline(why, "its activation is not ReLU");
    return in_lanes(node, node->op == &clt_op_conv2d_weight_grad ? 2 : 1, why);
}

void clt_conv2d_lanes(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const int channels = s.out_channels / s.groups;
    const tile t = best_tile(s.out_width, channels, accumulators(target));
    const bool bias = node->n_in > 2 && node->in[2];
    char shape[256];
    shape_options(&s, target->lanes, shape, sizeof shape);
    clt_launch_begin(p, "lanes/conv.cl", "clt_lanes_conv",
                     "%s -DBIAS=%d -DACT=%d -DTX=%d -DTC=%d -DXTAIL=%d -DCTAIL=%d -DEDGES=%d",
                     shape, bias, (int)attr->epilogue.activation, t.columns, t.channels,
                     s.out_width % t.columns, channels % t.channels,
                     s.padding[1] > 0 && s.out_width <= 3 * t.columns);
    clt_arg_in(p, 0);
    clt_arg_in(p, 1);
    clt_arg_in(p, bias ? 2 : 1);
    clt_arg_out(p, 0);
    clt_arg_out(p, 0); /* the mask of pooling, not used */
    arg_sizes(p, &s);
    const int64_t tiles = (int64_t)s.groups * ceil_div(channels, t.channels);
    const int rows = rows_of_group(target, s.out_height, tiles);
    clt_arg_int(p, clt_fixed(rows));
    clt_range3(p, clt_fixed(tiles), clt_fixed(ceil_div(s.out_height, rows)), blocks_of(target), 1,
               1, 1);
}

/* The largest tile whose scattered row fits the registers: (TX + KX - 1) * TC + TC + 2. */
static tile scatter_tile(const clt_target *target, const clt_conv2d_shape *s, int channels)
{
    const int registers = target->caps->vector_registers >= 32 ? 30 : 16;
    tile best = {1, 1};
    double best_cost = 1e30;
    for (int columns = 1; columns <= 8 && columns + s->kernel[1] - 1 <= 16; columns++)
        for (int rows = 1; rows <= 4; rows++) {
            if ((columns + s->kernel[1] - 1) * rows + rows + 2 > registers && rows * columns > 1)
                continue;
            const tile t = {columns, rows};
            /* A block of columns also reads and adds its row of sums, once in K_BLOCK channels. */
            const double cost =
                tile_cost(t, s->out_width, channels) +
                0.25 * ceil_div(s->out_width, columns) * (s->kernel[1] - 1) * channels;
            if (cost < best_cost) {
                best = t;
                best_cost = cost;
            }
        }
    return best;
}

void clt_conv2d_data_grad_lanes(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const int channels = s.channels / s.groups;
    const bool fast = s.stride[1] == 1 && s.dilation[1] == 1 && s.kernel[1] <= 15;
    const tile t =
        fast ? scatter_tile(target, &s, channels) : (tile){4, channels < 4 ? channels : 4};
    char shape[256];
    shape_options(&s, target->lanes, shape, sizeof shape);
    clt_launch_begin(p, "lanes/conv_data_grad.cl",
                     fast ? "clt_lanes_conv_data_grad" : "clt_lanes_conv_data_grad_any",
                     "%s -DTX=%d -DTC=%d -DXTAIL=%d -DCTAIL=%d", shape, t.columns, t.channels,
                     s.out_width % t.columns, channels % t.channels);
    clt_arg_in(p, 0);
    clt_arg_in(p, 1);
    clt_arg_out(p, 0);
    arg_sizes(p, &s);
    const int64_t tiles = (int64_t)s.groups * ceil_div(channels, t.channels);
    const int rows = rows_of_group(target, s.height, tiles);
    clt_arg_int(p, clt_fixed(rows));
    clt_range3(p, clt_fixed(tiles), clt_fixed(ceil_div(s.height, rows)), blocks_of(target), 1, 1,
               1);
}

/* Adds `chunks` partial sums of `count` elements in scratch block `block` into output `output`. */
static void emit_sum(clt_program *p, const clt_target *target, int block, int output, int64_t count,
                     int64_t chunk)
{
    enum { SPREAD = 1024 };
    clt_launch_begin(p, "lanes/conv_weight_grad.cl", "clt_lanes_sum_chunks",
                     "-DLANES=%d -DKY=1 -DKX=1", target->lanes);
    clt_arg_scratch(p, block);
    clt_arg_out(p, output);
    clt_arg_int(p, clt_fixed(count));
    clt_arg_int(p, clt_fixed(chunk));
    clt_arg_run(p, CLT_RUN_COUNT);
    clt_range1(p, clt_fixed((count + SPREAD - 1) / SPREAD), 1);
}

void clt_conv2d_weight_grad_lanes(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const int ci = s.channels / s.groups, co = s.out_channels / s.groups;
    const bool wide = target->caps->vector_registers >= 32;
    /* 2 x 1 x 5 and 4 x 1 x 3 fill 16 registers; without neighbouring taps, channels do. */
    const int tk = s.kernel[1] > 8 ? 8 : s.kernel[1];
    const int ti = tk == 1 ? (wide ? 4 : 3) : 1;
    int to = tk == 1 ? (wide ? 6 : 4) : (wide ? 24 : 12) / tk;
    to = to < 1 ? 1 : to > 8 ? 8 : to;
    to = to > co ? co : to;
    const int64_t groups = (int64_t)ceil_div(ci, ti) * s.groups * ceil_div(co, to);
    const int64_t blocks = (target->max_batch + target->lanes - 1) / target->lanes;
    int64_t chunks = (8 * (int64_t)target->caps->compute_units + groups - 1) / groups;
    chunks = chunks > blocks ? blocks : chunks;
    const int64_t chunk = (blocks + chunks - 1) / chunks;
    const int64_t weights = clt_type_elements(&node->out[0]->type, 0);
    const int64_t float_bytes = (int64_t)sizeof(float);
    int sums = -1, bias_sums = -1;
    if (chunks > 1) {
        sums = clt_scratch_add(p, clt_fixed(chunks * weights * float_bytes));
        bias_sums = clt_scratch_add(p, clt_fixed(chunks * s.out_channels * float_bytes));
    }
    char shape[256];
    shape_options(&s, target->lanes, shape, sizeof shape);
    clt_launch_begin(p, "lanes/conv_weight_grad.cl", "clt_lanes_conv_weight_grad",
                     "%s -DBIAS=%d -DTO=%d -DTI=%d -DTK=%d", shape, attr->bias, to, ti, tk);
    clt_arg_in(p, 0);
    clt_arg_in(p, 1);
    clt_arg_in(p, 1); /* the mask of pooling, not used */
    if (chunks > 1) {
        clt_arg_scratch(p, sums);
        clt_arg_scratch(p, bias_sums);
    } else {
        clt_arg_out(p, 0);
        clt_arg_out(p, 1);
    }
    arg_sizes(p, &s);
    clt_arg_int(p, clt_fixed(chunk));
    clt_range3(p, clt_fixed(ceil_div(ci, ti)), clt_fixed((int64_t)s.groups * ceil_div(co, to)),
               clt_fixed(chunks), 1, 1, 1);
    if (chunks > 1) {
        emit_sum(p, target, sums, 0, weights, chunk);
        if (attr->bias)
            emit_sum(p, target, bias_sums, 1, s.out_channels, chunk);
    }
}
