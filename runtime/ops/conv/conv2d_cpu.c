/* Tile sizes and launches of clkernels/conv/cpu/conv2d.cl. */
#include "ops/conv/conv2d_cpu.h"

#include <stdio.h>

#include "ops/conv/conv.h"
#include "ops/matmul/gemm_cpu.h"

/* Costs in vector multiplications, like those of gemm_cpu.h. */
#define COST_OF_LOAD 0.15   /* loading an operand of a register tile */
#define COST_OF_TILE 60.0   /* overhead of a tile's loop */
#define COST_OF_ROW 30.0    /* a row of a tile, cut at the ends of lines */
#define COST_OF_COPY 0.2    /* copying an element with its neighbours */
#define COST_OF_STRIDED 1.5 /* copying an element by itself */
#define COST_OF_LINE 20.0   /* copying a line */
#define COST_OF_SUM 16.0    /* adding up a weight's vector lanes */

/* TAPS: limit of channels x taps in one pass. MOST_FLOATS: a copy of this size stays in a core's
 * cache. LEAST_CUT: the fewest columns of a line that was cut. */
enum { TAPS = 1024, MOST_FLOATS = 40 * 1024, LEAST_CUT = 256 };
enum { DOT_COLUMNS_32 = 6, DOT_COLUMNS_16 = 3, DOT_ROWS = 4 };

/* A node as the kernels see it. Arrays hold the values along y and along x. A class is the set of
 * positions of dx that have the same remainder modulo the stride. */
typedef struct conv {
    clt_conv2d_shape s;
    bool data, weight;   /* which gradient */
    int64_t batch, taps; /* at least 1 */
    int64_t sources;     /* copied channels of a group */
    int64_t rows;        /* channels of a group that are the tiles' rows */
    int64_t kinds;       /* classes of results */
    int64_t hit;         /* about the number of classes that have taps */
    int64_t hits;        /* the most taps of a class */
    bool zeros;          /* some classes have no taps */
    int64_t parts;       /* parts of the copy, by remainder modulo the stride */
    int64_t lines, columns;
    int64_t reach[2];  /* the farthest tap, in lines and positions */
    int64_t around[2]; /* extra lines and positions of a block: reach, and an offset of classes */
    int64_t room;      /* floats of local memory for copies */
    int width;
} conv;

typedef struct division {
    clt_gemm_tile tile;
    int64_t lines, columns, rows; /* of a work-group */
    int64_t channels;             /* in one pass; for weight gradients, of a work-group */
    int64_t kinds;                /* classes of a work-group */
    double cost;                  /* negative: no division fits */
} division;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* Sets the values along dimension i that depend on the stride. */
static void part(conv *c, int i)
{
    const int64_t size = i ? c->s.width : c->s.height, kernel = c->s.kernel[i];
    const int64_t stride = c->s.stride[i], dilation = c->s.dilation[i];
    const int64_t span = (kernel - 1) * dilation;
    c->reach[i] = c->around[i] = span / stride;
    if (!c->data) {
        c->parts *= least(stride, span + 1);
        return;
    }
    /* Taps at this distance belong to the same class. */
    const int64_t period = stride / gcd(stride, dilation);
    const int64_t kinds = least(stride, size);
    c->around[i] += c->s.padding[i] % stride + kinds - 1 >= stride;
    c->kinds *= kinds;
    c->hit *= least(least(kernel, period), kinds);
    c->hits *= clt_ceil_div(kernel, period);
    c->zeros |= least(kernel, period) < stride;
}

static conv conv_of(const clt_node *node, const clt_target *target)
{
    const clt_conv2d_shape s =
        clt_is_conv3d(node->op) ? clt_conv3d_planes(node) : clt_conv2d_shape_of(node);
    const int64_t batch = clt_dim(s.batch, target->max_batch);
    const bool data = clt_conv_is_data_grad(node);
    const int64_t in = s.channels / s.groups, out = s.out_channels / s.groups;
    conv c = {.s = s,
              .data = data,
              .weight = clt_conv_is_weight_grad(node),
              .batch = batch > 0 ? batch : 1,
              .taps = (int64_t)s.kernel[0] * s.kernel[1],
              .sources = data ? out : in,
              .rows = data ? in : out,
              .kinds = 1,
              .hit = 1,
              .hits = data ? 1 : (int64_t)s.kernel[0] * s.kernel[1],
              .parts = 1,
              .lines = data ? clt_ceil_div(s.height, s.stride[0]) : s.out_height,
              .columns = data ? clt_ceil_div(s.width, s.stride[1]) : s.out_width,
              .width = target->caps->vector_width};
    for (int i = 0; i < 2; i++)
        part(&c, i);
    /* The lists of taps use local memory too. */
    const int64_t bytes = target->caps->local_bytes * 3 / 4;
    c.room = least(MOST_FLOATS, bytes / (int64_t)sizeof(float) - 2 * TAPS) / c.width * c.width;
    return c;
}

/* Floats of the copy of one channel, for a block of so many lines and columns. */
static int64_t channel_floats(const conv *c, int64_t lines, int64_t columns)
{
    return c->parts * (lines + c->around[0]) * (columns + c->around[1]);
}

static double copy_cost(const conv *c, int64_t lines, int64_t columns)
{
    const double each = !c->data && c->s.stride[1] > 1 ? COST_OF_STRIDED : COST_OF_COPY;
    return each * (double)channel_floats(c, lines, columns) +
           COST_OF_LINE * (double)(c->parts * (lines + c->around[0]));
}

/* The next number of ranges to cut columns into, as long as the lines are long enough; 0: none. */
static int64_t next_cut(const conv *c, int64_t cut)
{
    return c->columns / (2 * cut) >= LEAST_CUT ? 2 * cut : 0;
}

/* Work of the busiest unit for `groups` equal work-groups. */
static double makespan(const clt_target *target, int64_t groups, double each)
{
    const int units = target->caps->compute_units > 0 ? target->caps->compute_units : 1;
    return (double)clt_ceil_div(groups, units) * (each + CLT_COST_OF_GROUP);
}

static double cost_of(const conv *c, const clt_target *target, const division *d)
{
    const int64_t pitch = d->columns + c->around[1];
    const int64_t panels =
        clt_ceil_div((d->lines - 1) * pitch + d->columns, d->tile.vectors * (int64_t)c->width);
    const double cells = d->tile.rows * d->tile.vectors;
    const int64_t kinds = c->zeros ? c->hit : d->kinds;
    const double k = (double)(c->sources * c->taps) / (c->data ? (double)c->hit : 1);
    const double passes = (double)clt_ceil_div(c->sources, d->channels);
    const double tiles = (double)(kinds * clt_ceil_div(d->rows, d->tile.rows) * panels);
    const double each = tiles * (k * (cells + COST_OF_LOAD * (d->tile.rows + d->tile.vectors)) +
                                 passes * (COST_OF_TILE + COST_OF_ROW * d->tile.rows)) +
                        (double)c->sources * copy_cost(c, d->lines, d->columns) +
                        CLT_COST_OF_READING * k * (double)(kinds * d->rows);
    const int64_t groups = c->batch * c->s.groups * clt_ceil_div(c->kinds, d->kinds) *
                           clt_ceil_div(c->lines, d->lines) * clt_ceil_div(c->columns, d->columns) *
                           clt_ceil_div(c->rows, d->rows);
    return makespan(target, groups, each);
}

/* Tiles for results with few channels, such as depthwise convolutions. They are numbered after the
 * tiles of products. */
static const clt_gemm_tile few_rows[] = {{1, 8}, {2, 8}, {4, 4}, {3, 6}};
static const clt_gemm_tile few_rows_16[] = {{1, 8}, {2, 4}, {4, 2}, {3, 3}};
enum { FEW_ROWS = sizeof few_rows / sizeof *few_rows };

/* Tile number `index` for the device's registers; returns false past the last. */
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

/* Tries all divisions with the tile for blocks of so many lines and columns. */
static void try_block(const conv *c, const clt_target *target, division d, division *best)
{
    enum { MOST_SPLITS = 16 };
    const int64_t bands = clt_ceil_div(c->rows, d.tile.rows);
    /* A panel reads so many floats beyond the last channel's copy. */
    const int64_t room = c->room - (d.tile.vectors + 1) * (int64_t)c->width;
    const int64_t fit = room / channel_floats(c, d.lines, d.columns);
    d.channels = least(least(fit, TAPS / c->hits), c->sources);
    if (d.channels < 1)
        return;
    /* Divide the channels evenly over the passes. */
    d.channels = clt_ceil_div(c->sources, clt_ceil_div(c->sources, d.channels));
    for (int64_t down = 1; down <= MOST_SPLITS && down <= bands; down *= 2) {
        d.rows = clt_ceil_div(bands, down) * d.tile.rows;
        for (d.kinds = c->kinds;; d.kinds = clt_ceil_div(d.kinds, 4)) {
            d.cost = cost_of(c, target, &d);
            if (best->cost < 0 || d.cost < best->cost)
                *best = d;
            if (d.kinds == 1 || c->zeros)
                break;
        }
    }
}

/* The best division with tile number `index`, or with any tile for -1. */
static division divide_with(const conv *c, const clt_target *target, int index)
{
    division best = {.cost = -1}, d = {.cost = -1};
    for (int t = index < 0 ? 0 : index;
         tile_of(target->caps, t, &d.tile) && (index < 0 || t == index); t++)
        for (int64_t cut = 1; cut; cut = next_cut(c, cut)) {
            d.columns = clt_ceil_div(c->columns, cut);
            for (int64_t bands = 1; bands <= c->lines; bands += 1 + bands / 4) {
                d.lines = clt_ceil_div(c->lines, bands);
                try_block(c, target, d, &best);
            }
        }
    return best;
}

/* The fastest division of a forward convolution or data gradient. It uses the requested tile if
 * that one fits. */
static division divide(const conv *c, const clt_target *target)
{
    const int asked = (int)clt_tile_number(target, "TILE", 0, INT8_MAX, -1);
    const division d = divide_with(c, target, asked);
    return d.cost < 0 && asked >= 0 ? divide_with(c, target, -1) : d;
}

static clt_gemm_tile dot_tile(const clt_target *target)
{
    return (clt_gemm_tile){DOT_ROWS,
                           target->caps->vector_registers >= 32 ? DOT_COLUMNS_32 : DOT_COLUMNS_16};
}

/* Tries divisions of the weight gradient with blocks and channels as in `d`. */
static void try_weights(const conv *c, const clt_target *target, division d, division *best)
{
    const int64_t pitch = d.columns + c->reach[1],
                  vectors = clt_ceil_div(d.lines * pitch, c->width);
    const int64_t floats = channel_floats(c, d.lines, d.columns);
    const int64_t bands = clt_ceil_div(c->rows, d.tile.rows);
    for (int64_t down = 1; down <= bands; down += 1 + down / 4) {
        d.rows = least(clt_ceil_div(bands, down) * d.tile.rows, c->rows);
        if (d.rows * vectors * c->width + d.channels * floats + c->reach[1] + c->width > c->room)
            continue;
        const double cells = d.tile.rows * d.tile.vectors;
        const double tiles = (double)(clt_ceil_div(d.rows, d.tile.rows) *
                                      clt_ceil_div(d.channels * c->taps, d.tile.vectors));
        const double loads = COST_OF_LOAD * (d.tile.rows + 2 * d.tile.vectors);
        const double blocks = (double)(c->batch * clt_ceil_div(c->lines, d.lines) *
                                       clt_ceil_div(c->columns, d.columns));
        const double each =
            blocks * (tiles * ((double)vectors * (cells + loads) + cells * COST_OF_SUM) +
                      (double)d.channels * copy_cost(c, d.lines, d.columns) +
                      (double)d.rows * (COST_OF_COPY * (double)(d.lines * pitch) +
                                        COST_OF_LINE * (double)d.lines));
        d.cost = makespan(target,
                          c->s.groups * clt_ceil_div(c->sources, d.channels) *
                              clt_ceil_div(c->rows, d.rows),
                          each);
        if (best->cost < 0 || d.cost < best->cost)
            *best = d;
    }
}

/* The fastest division of the weight gradient: `channels` of x and `rows` of dy in a work-group. */
static division divide_weights(const conv *c, const clt_target *target)
{
    division best = {.cost = -1}, d = {.tile = dot_tile(target), .kinds = 1};
    for (int64_t cut = 1; cut; cut = next_cut(c, cut)) {
        d.columns = clt_ceil_div(c->columns, cut);
        for (int64_t bands = 1; bands <= c->lines; bands += 1 + bands / 4) {
            d.lines = clt_ceil_div(c->lines, bands);
            for (int64_t across = 1; across <= c->sources; across += 1 + across / 4) {
                d.channels = clt_ceil_div(c->sources, across);
                try_weights(c, target, d, &best);
            }
        }
    }
    return best;
}

bool clt_conv2d_cpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_caps *caps = target->caps;
    if (!clt_accepts_cpu_vectors(node, target, why))
        return false;
    const conv c = conv_of(node, target);
    if (c.taps > TAPS)
        return clt_decline(why, "a kernel of more than %d elements", TAPS);
    /* Each number is checked separately first, so that their product fits an int64_t. */
    if (c.room < 1 || c.parts > c.room || c.around[0] >= c.room || c.around[1] >= c.room ||
        (c.weight ? divide_weights(&c, target) : divide(&c, target)).cost < 0)
        return clt_decline(why,
                           "a copy of %lld x %lld lines of %lld elements and more is too large for "
                           "%lld bytes of local memory",
                           (long long)c.parts, (long long)(c.around[0] + 1),
                           (long long)(c.around[1] + 1), (long long)caps->local_bytes);
    return true;
}

bool clt_conv2d_cpu_tiles(const clt_node *node, const clt_target *target, int index, char *text)
{
    const conv c = conv_of(node, target);
    clt_gemm_tile tile;
    if (c.weight)
        return false;
    /* Number only the tiles that fit. */
    for (int t = 0; tile_of(target->caps, t, &tile); t++)
        if (divide_with(&c, target, t).cost >= 0 && index-- == 0) {
            snprintf(text, CLT_TILE_TEXT, "TILE=%d", t);
            return true;
        }
    return false;
}

static const char *depth_of(const clt_node *node)
{
    return clt_is_conv3d(node->op) ? "-DDEPTH " : "";
}

/* Adds the arguments NUMBERS. */
static void arg_numbers(clt_program *program, const clt_node *node, const conv *c,
                        const division *d)
{
    const clt_conv2d_shape *s = &c->s;
    const int64_t values[] = {s->channels,    s->height,      s->width,      s->out_channels,
                              s->out_height,  s->out_width,   s->kernel[0],  s->kernel[1],
                              s->stride[0],   s->stride[1],   s->padding[0], s->padding[1],
                              s->dilation[0], s->dilation[1], s->groups,     c->reach[0],
                              c->reach[1],    d->lines,       d->columns};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        CLT_ARGS(program, CLT_FIXED(values[i]));
    if (!clt_is_conv3d(node->op))
        return;
    const clt_conv_shape v = clt_conv_shape_of(node);
    const int depths[] = {v.in[0], v.out[0], v.kernel[0], v.stride[0], v.padding[0], v.dilation[0]};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
        CLT_ARGS(program, CLT_FIXED(depths[i]));
}

void clt_conv2d_cpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    const conv c = conv_of(node, target);
    const clt_epilogue none = {CLT_ACTIVATION_NONE, 0};
    const clt_epilogue epilogue = c.data ? none : clt_conv_epilogue(node);
    const division d = divide(&c, target);
    const bool bias = !c.data && node->n_in > 2 && node->in[2];
    clt_launch_begin(program, "conv/cpu/conv2d.cl", "convolve",
                     "%s-DPASS=%d -DVW=%d -DMR=%d -DNV=%d -DROOM=%d -DTAPS=%d", depth_of(node),
                     c.data, c.width, d.tile.rows, d.tile.vectors, (int)c.room, TAPS);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_IN(bias ? 2 : 1), CLT_OUT(0));
    arg_numbers(program, node, &c, &d);
    CLT_ARGS(program, CLT_FIXED(d.rows), CLT_FIXED(d.channels), CLT_FIXED(d.kinds),
             CLT_FIXED(c.zeros), CLT_FIXED(bias), CLT_EPILOGUE(&epilogue));
    clt_extent layers = clt_extent_dim(c.s.batch);
    layers.mul *= c.s.groups;
    clt_range3(program,
               clt_fixed(clt_ceil_div(c.lines, d.lines) * clt_ceil_div(c.columns, d.columns) *
                         clt_ceil_div(c.kinds, d.kinds)),
               clt_fixed(clt_ceil_div(c.rows, d.rows)), layers, 1, 1, 1);
}

void clt_conv2d_weight_grad_cpu(const clt_node *node, const clt_target *target,
                                clt_program *program)
{
    const conv c = conv_of(node, target);
    const division d = divide_weights(&c, target);
    clt_launch_begin(program, "conv/cpu/conv2d.cl", "weight_grad",
                     "%s-DVW=%d -DMR=%d -DNR=%d -DROOM=%d", depth_of(node), c.width, d.tile.rows,
                     d.tile.vectors, (int)c.room);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_OUT(0), CLT_OUT(1));
    arg_numbers(program, node, &c, &d);
    CLT_ARGS(program, CLT_FIXED(d.rows), CLT_FIXED(d.channels), CLT_INT(clt_extent_dim(c.s.batch)),
             CLT_FIXED(clt_conv_wants_bias(node)));
    clt_range3(program, clt_fixed(clt_ceil_div(c.sources, d.channels)),
               clt_fixed(clt_ceil_div(c.rows, d.rows)), clt_fixed(c.s.groups), 1, 1, 1);
}
