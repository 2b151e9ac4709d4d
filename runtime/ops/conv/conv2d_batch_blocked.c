/* conv2d and its gradients in the batch-blocked layout: clkernels/conv/batch_blocked/conv*.cl. */
#include "ops/conv/conv2d_batch_blocked.h"

#include <stdio.h>

#include "ops/core/batch_blocked.h"

#include "ops/core/nn.h"

/* A register tile: columns x channels. */
typedef struct tile {
    int columns, channels;
} tile;

/* Estimated instructions for a row of `width` columns and `channels` channels: one for each
 * multiplication and half of one for each load. Tiles at the edges are smaller, but load nearly as
 * much. */
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

/* The cheapest tile that fits `registers`: its cells, a weight for each channel and a pixel. With
 * `even`, only tiles of even columns. One register too many halves the speed. */
static tile best_tile(int width, int channels, int registers, bool even)
{
    const int step = even ? 2 : 1;
    tile best = {step, 1};
    double best_cost = tile_cost(best, width, channels);
    for (int columns = step; columns <= 8; columns += step)
        for (int rows = 1; rows <= 8 && rows * columns + rows + 1 <= registers; rows++) {
            const tile t = {columns, rows};
            const double cost = tile_cost(t, width, channels);
            if (cost < best_cost) {
                best = t;
                best_cost = cost;
            }
        }
    return best;
}

/* The tile that a tuner chose; otherwise `t`. */
static tile tuned_tile(const clt_target *target, tile t, int step)
{
    const int columns = (int)clt_tile_number(target, "TX", 1, 8, t.columns);
    const int channels = (int)clt_tile_number(target, "TC", 1, 8, t.channels);
    return columns % step ? t : (tile){columns, channels};
}

/* Sorts the tiles that fit the registers by cost and returns their number. */
enum { MOST_TILES = 64, TILES_TO_TRY = 6 };

static int list_tiles(int width, int channels, int registers, int step, tile *list)
{
    int count = 0;
    for (int columns = step; columns <= 8; columns += step)
        for (int rows = 1; rows <= 8 && rows <= channels; rows++)
            if (rows * columns + rows + 1 <= registers && rows * columns >= 4)
                list[count++] = (tile){columns, rows};
    for (int i = 1; i < count; i++)
        for (int j = i;
             j > 0 && tile_cost(list[j], width, channels) < tile_cost(list[j - 1], width, channels);
             j--) {
            const tile t = list[j];
            list[j] = list[j - 1];
            list[j - 1] = t;
        }
    return count;
}

bool clt_conv2d_batch_blocked_choices(const clt_conv2d_shape *s, int pool, const clt_target *target,
                                      int index, char *text)
{
    tile list[MOST_TILES];
    const int width = pool ? s->out_width / 2 * 2 : s->out_width;
    const int count = list_tiles(width, s->out_channels / s->groups, target->caps->vector_registers,
                                 1 + !!pool, list);
    if (index >= count || index >= TILES_TO_TRY)
        return false;
    snprintf(text, CLT_TILE_TEXT, "TX=%d,TC=%d", list[index].columns, list[index].channels);
    return true;
}

bool clt_conv2d_batch_blocked_tiles(const clt_node *node, const clt_target *target, int index,
                                    char *text)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    return clt_conv2d_batch_blocked_choices(&s, 0, target, index, text);
}

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

/* Output rows of a work-group. It takes all rows, unless compute units would have no work, or
 * unless the rows' input (`row_bytes` a row) would leave the cache before the next tile of channels
 * reads it. */
static int rows_of_group(const clt_target *target, int rows, int64_t groups_a_row_band,
                         int64_t row_bytes)
{
    enum { LEAST_CACHE = 256 << 10 };
    const int64_t local =
        target->caps->local_bytes / 2; /* PoCL reports the second-level cache's size */
    const int64_t cache = local > LEAST_CACHE ? local : LEAST_CACHE;
    const int64_t blocks = (target->max_batch + target->lanes - 1) / target->lanes;
    const int64_t wanted = 8 * (int64_t)target->caps->compute_units;
    int64_t bands =
        ceil_div((int)(wanted < INT32_MAX ? wanted : INT32_MAX), (int)(groups_a_row_band * blocks));
    bands = bands < 1 ? 1 : bands > rows ? rows : bands;
    if (row_bytes * rows > cache) {
        const int64_t least = row_bytes * rows / cache + 1;
        bands = bands > least ? bands : least < rows / 2 ? least : (rows + 1) / 2;
    }
    const int band = ceil_div(rows, (int)bands);
    return (int)clt_tile_number(target, "ROWS", 1, rows, band);
}

/* Writes the options that all kernels share, except the tile's. */
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
    CLT_ARGS(p, CLT_RUN(CLT_RUN_COUNT));
    for (int i = 0; i < 7; i++)
        CLT_ARGS(p, CLT_FIXED(sizes[i]));
}

void clt_conv2d_emit_batch_blocked(const clt_node *node, const clt_conv2d_shape *s,
                                   const clt_epilogue *epilogue, int pool, const clt_target *target,
                                   clt_program *p)
{
    const int channels = s->out_channels / s->groups;
    const int width = pool ? s->out_width / 2 * 2 : s->out_width;
    const int rows = pool ? s->out_height / 2 : s->out_height;
    const tile t = tuned_tile(
        target, best_tile(width, channels, target->caps->vector_registers, pool != 0), 1 + !!pool);
    const bool bias = node->n_in > 2 && node->in[2];
    char shape[256];
    shape_options(s, target->lanes, shape, sizeof shape);
    clt_launch_begin(
        p, "conv/batch_blocked/conv.cl", "clt_batch_blocked_conv",
        "%s -DBIAS=%d -DACT=%d -DPOOL=%d -DTX=%d -DTC=%d -DXTAIL=%d -DCTAIL=%d -DEDGES=%d", shape,
        bias, (int)epilogue->activation, pool, t.columns, t.channels, width % t.columns,
        channels % t.channels, s->padding[1] > 0 && width <= 3 * t.columns);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_IN(bias ? 2 : 1), CLT_OUT(0),
             CLT_OUT(pool ? 1 : 0)); /* the mask, or any buffer */
    arg_sizes(p, s);
    const int64_t tiles = (int64_t)s->groups * ceil_div(channels, t.channels);
    const int64_t row_bytes = (int64_t)(s->channels / s->groups) * s->width * s->stride[0] *
                              (1 + !!pool) * target->lanes * (int64_t)sizeof(float);
    const int band = rows_of_group(target, rows, tiles, row_bytes);
    CLT_ARGS(p, CLT_FIXED(band));
    clt_range3(p, clt_fixed(tiles), clt_fixed(ceil_div(rows, band)), clt_extent_blocks(target), 1,
               1, 1);
}

void clt_conv2d_batch_blocked(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    clt_conv2d_emit_batch_blocked(node, &s, &attr->epilogue, 0, target, p);
}

/* Taps of a pass over a tile's columns: as many as leave registers for all sums and a column. 0 if
 * not even one does. */
static int taps_of_pass(const clt_target *target, const clt_conv2d_shape *s, tile t)
{
    enum { MOST_TAPS = 4 };
    const int sums = (t.columns + s->kernel[1] - 1) * t.channels;
    const int taps = (target->caps->vector_registers - 1 - sums) / t.channels;
    const int most = s->kernel[1] < MOST_TAPS ? s->kernel[1] : MOST_TAPS;
    return taps < 1 ? 0 : taps < most ? taps : most;
}

/* Cycles of a scattered tile for a channel of g and a row of taps: the largest of the
 * multiplications' time, of that of the sum that waits for the most products, and of the loads'.
 * Once for every K_BLOCK channels, the tile also adds to its row of sums. */
static double scatter_cycles(const clt_conv2d_shape *s, int columns, int channels, int taps)
{
    enum { LATENCY = 4, K_BLOCK = 8, ADDING = 3 };
    const int width = s->kernel[1], chain = columns < width ? columns : width;
    const double products = 0.5 * columns * width * channels;
    const double loads = 0.5 * (ceil_div(width, taps) * columns + width * channels);
    const double most = products > LATENCY * chain ? products : LATENCY * chain;
    return (most > loads ? most : loads) + 1 +
           ADDING * (double)(columns + width - 1) * channels / (K_BLOCK * s->kernel[0]);
}

/* The fastest tile whose sums fit the registers. */
static tile scatter_tile(const clt_target *target, const clt_conv2d_shape *s, int channels)
{
    tile best = {1, 1};
    double best_cost = 1e30;
    for (int columns = 1; columns <= 8 && columns + s->kernel[1] - 1 <= 16; columns++)
        for (int rows = 1; rows <= 4 && rows <= channels; rows++) {
            const tile t = {columns, rows};
            const int taps = taps_of_pass(target, s, t);
            if (!taps)
                continue;
            double cost = 0;
            for (int x = 0; x < s->out_width; x += columns) {
                const int left = s->out_width - x, now = left < columns ? left : columns;
                cost += channels / rows * scatter_cycles(s, now, rows, taps);
                if (channels % rows)
                    cost += scatter_cycles(s, now, channels % rows, taps);
            }
            if (cost < best_cost) {
                best = t;
                best_cost = cost;
            }
        }
    return best;
}

bool clt_conv2d_data_grad_tiles(const clt_node *node, const clt_target *target, int index,
                                char *text)
{
    const clt_conv2d_shape shape = clt_conv2d_shape_of(node), *s = &shape;
    int found = 0;
    const int registers = target->caps->vector_registers;
    if (s->stride[1] != 1 || s->dilation[1] != 1 || s->kernel[1] > 15)
        return false;
    for (int rows = 1; rows <= 4 && rows <= s->channels / s->groups; rows++)
        for (int columns = 2; columns <= 8 && columns + s->kernel[1] - 1 <= 16; columns++)
            if (taps_of_pass(target, s, (tile){columns, rows}) &&
                (columns + s->kernel[1]) * rows + rows + 2 > registers / 2 && found++ == index) {
                snprintf(text, CLT_TILE_TEXT, "TX=%d,TC=%d", columns, rows);
                return true;
            }
    return false;
}

bool clt_conv2d_weight_grad_choices(const clt_conv2d_shape *s, const clt_target *target, int index,
                                    char *text)
{
    static const int choices[][2] = {{8, 1}, {6, 1}, {5, 1}, {4, 1},
                                     {4, 2}, {2, 4}, {3, 2}, {2, 2}};
    enum { CHOICES = sizeof choices / sizeof *choices, MOST_OF_ALL_ROWS = 3 };
    const int registers = target->caps->vector_registers;
    const int taps = s->kernel[1] > 8 ? 8 : s->kernel[1];
    int found = 0;
    for (int i = 0; i < CHOICES + MOST_OF_ALL_ROWS; i++) {
        /* After the other choices come tiles with all rows of taps. */
        const bool all = i >= CHOICES;
        const int to = all ? i - CHOICES + 1 : choices[i][0], ti = all ? 1 : choices[i][1];
        const int tr = all ? s->kernel[0] : 1;
        if (to > s->out_channels / s->groups || ti > s->channels / s->groups || tr > 8 ||
            (all && tr == 1) || to * ti * tr * taps + to >= registers + 2 || found++ < index)
            continue;
        snprintf(text, CLT_TILE_TEXT, all ? "TO=%d,TI=%d,TR=%d" : "TO=%d,TI=%d", to, ti, tr);
        return true;
    }
    return false;
}

bool clt_conv2d_weight_grad_tiles(const clt_node *node, const clt_target *target, int index,
                                  char *text)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    return clt_conv2d_weight_grad_choices(&s, target, index, text);
}

void clt_conv2d_data_grad_batch_blocked(const clt_node *node, const clt_target *target,
                                        clt_program *p)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const int channels = s.channels / s.groups;
    const bool fast = s.stride[1] == 1 && s.dilation[1] == 1 && s.kernel[1] <= 15;
    tile t = fast ? scatter_tile(target, &s, channels) : (tile){4, channels < 4 ? channels : 4};
    if (fast && clt_tile_number(target, "TX", 1, 8, 1) + s.kernel[1] - 1 <= 16)
        t = tuned_tile(target, t, 1);
    const int taps = taps_of_pass(target, &s, t);
    char shape[256];
    shape_options(&s, target->lanes, shape, sizeof shape);
    clt_launch_begin(p, "conv/batch_blocked/conv_data_grad.cl",
                     fast ? "clt_batch_blocked_conv_data_grad"
                          : "clt_batch_blocked_conv_data_grad_any",
                     "%s -DTX=%d -DTC=%d -DTW=%d -DXTAIL=%d -DCTAIL=%d", shape, t.columns,
                     t.channels, taps ? taps : 1, s.out_width % t.columns, channels % t.channels);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_OUT(0));
    arg_sizes(p, &s);
    const int64_t tiles = (int64_t)s.groups * ceil_div(channels, t.channels);
    const int64_t row_bytes = (int64_t)(s.out_channels / s.groups) * s.out_width * target->lanes *
                              (int64_t)sizeof(float) / s.stride[0];
    const int rows = rows_of_group(target, s.height, tiles, row_bytes);
    CLT_ARGS(p, CLT_FIXED(rows));
    clt_range3(p, clt_fixed(tiles), clt_fixed(ceil_div(s.height, rows)), clt_extent_blocks(target),
               1, 1, 1);
}

/* Register tile of the weights' gradient: channels, rows and columns of taps. */
typedef struct weight_tile {
    int to, ti, tr, tk;
} weight_tile;

/* Cycles for each multiplication of a column's step: the largest of the arithmetic's, the loads'
 * and the second-level cache's time, as if each were the only limit. */
static double weight_grad_cost(const clt_conv2d_shape *s, weight_tile t, int pool,
                               const clt_target *target)
{
    enum { FIRST_LEVEL = 32 << 10 };
    const int to = t.to, ti = t.ti;
    const double taps = t.tr * t.tk, cells = to * ti * taps;
    const double a_vector = (double)target->lanes * sizeof(float);
    /* Bytes that a pass over the samples reads again for each tap. Unpooled rows are on the
     * stack. */
    const double g = pool ? 0 : to * (double)s->out_height * s->out_width * a_vector;
    const double x = ti * (double)s->height * s->width * a_vector;
    const double arithmetic = cells / 2, loads = (to + ti * taps) / 2.0;
    const double misses = g + x > FIRST_LEVEL ? (ti + (pool ? 0 : to)) * a_vector / 32 : 0;
    const double most = arithmetic > loads ? arithmetic : loads;
    /* Eight independent sums hide a multiplication's latency. A tile at the edge costs as much as a
     * whole tile. */
    const int ci = s->channels / s->groups, co = s->out_channels / s->groups;
    const int ky = s->kernel[0];
    const double used = (double)co / (ceil_div(co, to) * to) * ci / (ceil_div(ci, ti) * ti) * ky /
                        (ceil_div(ky, t.tr) * t.tr);
    return ((most > misses ? most : misses) + 0.1 * loads + (cells < 8 ? 8 - cells : 0)) / cells /
           used;
}

/* The cheapest tile that fits the registers: TO * TI * TR * TK + TO + 1, and TO more if it also
 * sums the bias. A tile with several rows of taps has one input channel. */
static weight_tile weight_grad_tile(const clt_conv2d_shape *s, int pool, const clt_target *target)
{
    const int ci = s->channels / s->groups, co = s->out_channels / s->groups;
    const int tk = s->kernel[1] > 8 ? 8 : s->kernel[1];
    double best_cost = 1e30;
    weight_tile best = {1, 1, 1, tk};
    for (int o = 1; o <= 8 && o <= co; o++)
        for (int i = 1; i <= 8 && i <= ci; i++)
            for (int r = 1; r <= (i == 1 ? 8 : 1) && r <= s->kernel[0]; r++) {
                const weight_tile t = {o, i, r, tk};
                const int bias = r > 1 && ci == 1 ? o : 0;
                if (o * i * r * tk + o + 1 + bias > target->caps->vector_registers)
                    break;
                const double cost = weight_grad_cost(s, t, pool, target);
                if (cost < best_cost) {
                    best = t;
                    best_cost = cost;
                }
            }
    const int to = (int)clt_tile_number(target, "TO", 1, co < 8 ? co : 8, 0);
    if (!to)
        return best;
    const int rows = s->kernel[0] < 8 ? s->kernel[0] : 8;
    const int tr = (int)clt_tile_number(target, "TR", 1, rows, 1);
    const int ti = (int)clt_tile_number(target, "TI", 1, ci < 8 ? ci : 8, 1);
    return (weight_tile){to, tr > 1 ? 1 : ti, tr, tk};
}

/* Columns of an iteration of the weight gradient's inner loop: at most 48 multiplications and 4
 * columns, and no more columns than a row has without its padding. */
static int columns_unrolled(const clt_conv2d_shape *s, weight_tile t)
{
    enum { MOST = 4, MULTIPLICATIONS = 48 };
    const int inside = s->out_width / 2 * 2 - 2 * s->padding[1];
    int columns = MOST;
    while (columns > 1 &&
           (columns > inside || columns * t.to * t.ti * t.tr * t.tk > MULTIPLICATIONS))
        columns /= 2;
    return columns;
}

/* Blocks of images that a pass takes: a pass begins and ends with moving sums, so it should be
 * long. But the tile's planes stay in the first-level cache for its other taps. */
static int blocks_together(const clt_conv2d_shape *s, weight_tile t, const clt_target *target)
{
    enum { CACHE = 24 << 10, MOST = 8, ENOUGH = 256 };
    const int g = s->out_height * s->out_width, x = s->height * s->width;
    const int64_t bytes = (int64_t)(t.to * g + t.ti * x) * target->lanes * (int64_t)sizeof(float);
    int blocks = 1;
    while (blocks < MOST && blocks * g < ENOUGH && 2 * blocks * bytes <= CACHE)
        blocks *= 2;
    return blocks;
}

void clt_conv2d_emit_weight_grad_batch_blocked(const clt_node *node, const clt_conv2d_shape *shape,
                                               bool bias, int pool, const clt_target *target,
                                               clt_program *p)
{
    const clt_conv2d_shape s = *shape;
    const int ci = s.channels / s.groups, co = s.out_channels / s.groups;
    const weight_tile t = weight_grad_tile(&s, pool, target);
    const int to = t.to, ti = t.ti;
    /* Input channels of a work-group: as many as 8 KiB of sums on the stack allow. */
    const int sum_bytes = to * s.kernel[0] * s.kernel[1] * target->lanes * (int)sizeof(float);
    int ci_block = 8192 / sum_bytes / ti * ti;
    ci_block = ci_block < ti ? ti : ci_block > ci ? ceil_div(ci, ti) * ti : ci_block;
    const int64_t groups = (int64_t)ceil_div(ci, ci_block) * s.groups * ceil_div(co, to);
    const int64_t blocks = (target->max_batch + target->lanes - 1) / target->lanes;
    const int64_t chunk = clt_batch_blocked_chunk(target, groups),
                  chunks = (blocks + chunk - 1) / chunk;
    const int64_t weights = clt_type_elements(&node->out[0]->type, 0);
    const int64_t float_bytes = (int64_t)sizeof(float);
    int sums = -1, bias_sums = -1;
    if (chunks > 1) {
        sums = clt_scratch_add(p, clt_fixed(chunks * weights * float_bytes));
        bias_sums = clt_scratch_add(p, clt_fixed(chunks * s.out_channels * float_bytes));
    }
    char options[320];
    shape_options(&s, target->lanes, options, sizeof options);
    /* Unpooled rows stay on the stack, a few at a time. */
    clt_launch_begin(p, "conv/batch_blocked/conv_weight_grad.cl",
                     "clt_batch_blocked_conv_weight_grad",
                     "%s -DBIAS=%d -DTO=%d -DTI=%d -DTR=%d -DTK=%d -DCI_BLOCK=%d -DUNPOOL=%d "
                     "-DUNROLL=%d -DTOGETHER=%d -DBAND=%d -DCOLUMNS=%d",
                     options, bias, to, ti, t.tr, t.tk, ci_block, pool, columns_unrolled(&s, t),
                     pool ? 1 : blocks_together(&s, t, target), 2, s.out_width / 2 * 2);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_IN(pool ? 2 : 1)); /* the mask, or any buffer */
    if (chunks > 1) {
        CLT_ARGS(p, CLT_SCRATCH(sums), CLT_SCRATCH(bias_sums));
    } else {
        CLT_ARGS(p, CLT_OUT(0), CLT_OUT(1));
    }
    arg_sizes(p, &s);
    CLT_ARGS(p, CLT_FIXED(chunk));
    clt_range3(p, clt_fixed(ceil_div(ci, ci_block)),
               clt_fixed((int64_t)s.groups * ceil_div(co, to)), clt_fixed(chunks), 1, 1, 1);
    if (chunks > 1) {
        clt_batch_blocked_sum_chunks(p, target, sums, 0, weights, chunk);
        if (bias)
            clt_batch_blocked_sum_chunks(p, target, bias_sums, 1, s.out_channels, chunk);
    }
}

void clt_conv2d_weight_grad_batch_blocked(const clt_node *node, const clt_target *target,
                                          clt_program *p)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    clt_conv2d_emit_weight_grad_batch_blocked(node, &s, attr->bias, 0, target, p);
}
