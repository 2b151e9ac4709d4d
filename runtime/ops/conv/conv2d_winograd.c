/* Tiles and launches of clkernels/conv/batch_blocked/winograd.cl. */
#include "ops/conv/conv2d_winograd.h"

#include <stdio.h>

/* As in the kernel file: a tile has OUT x OUT outputs. */
enum { OUT = 4, POINTS = (OUT + 2) * (OUT + 2), BLOCK = 8 };

/* The convolution that a node computes: from `from` channels of ih x iw to `to` channels of oh x
 * ow. */
typedef struct sizes {
    int from, to, ih, iw, oh, ow, py, px;
    bool flip; /* data gradient: the weights' taps and channels are reversed */
} sizes;

static sizes sizes_of(const clt_node *node, const clt_conv2d_shape *s)
{
    if (node->op == &clt_op_conv2d)
        return (sizes){s->channels,  s->out_channels, s->height,     s->width, s->out_height,
                       s->out_width, s->padding[0],   s->padding[1], false};
    return (sizes){s->out_channels, s->channels,       s->out_height,     s->out_width, s->height,
                   s->width,        2 - s->padding[0], 2 - s->padding[1], true};
}

/* A register tile: tiles of outputs x channels. */
typedef struct tile {
    int tiles, channels;
} tile;

static const tile wide_tiles[] = {{4, 6}, {6, 4}, {5, 5}, {8, 3}, {3, 8}},
                  narrow_tiles[] = {{3, 4}, {2, 6}, {4, 2}, {2, 4}};

static bool is_wide(const clt_target *target)
{
    return target->caps->vector_registers >= 32;
}

bool clt_conv2d_winograd_tiles(const clt_node *node, const clt_target *target, int index,
                               char *text)
{
    (void)node;
    const tile *list = is_wide(target) ? wide_tiles : narrow_tiles;
    const int count = is_wide(target) ? sizeof wide_tiles / sizeof *wide_tiles
                                      : sizeof narrow_tiles / sizeof *narrow_tiles;
    if (index >= count)
        return false;
    snprintf(text, CLT_TILE_TEXT, "TX=%d,TC=%d", list[index].tiles, list[index].channels);
    return true;
}

/* How the work is divided over work-groups. */
typedef struct division {
    tile t;
    int64_t passes, count; /* over the channels of y; channels of a pass */
    int64_t strips;        /* strips of a whole batch; a strip has as many tiles as t */
    int64_t groups, parts; /* work-groups that share the strips, and the channels of y */
    int64_t share;         /* channels of y of a work-group */
    int64_t together;      /* strips that a work-group computes at a time */
    int64_t area;          /* floats of scratch memory of a strip */
    double cycles;         /* estimate for the busiest compute unit */
} division;

/* Estimated cycles; the costs of the parts were measured. */
static double cycles_of(const division *d, const sizes *z, const clt_target *target)
{
    enum { TRANSFORM_INPUTS = 480, TRANSFORM_SUMS = 330, TRANSFORM_WEIGHTS = 30 };
    enum { FIRST_READ = 30, NEXT_READ = 12 }; /* of the weights of a pair of channels */
    const double pairs = (double)z->from * (double)d->share;
    const double strips = (double)clt_ceil_div(d->strips, d->groups);
    const double reads = (double)clt_ceil_div((int64_t)strips, d->together);
    /* A vector multiplication takes half a cycle, and a load too. Ten independent sums hide a
     * multiplication's latency. A tenth of the loads' time is not hidden. */
    const double cells = d->t.tiles * d->t.channels / 2.0;
    const double loads = (d->t.tiles + d->t.channels) / 2.0;
    const double most = cells > loads ? cells : loads;
    const double step = (most > 5 ? most : 5) + 0.1 * loads;
    const double products = POINTS * pairs / d->t.channels * step;
    const double passes = (double)d->passes;
    /* Inputs that a work-group transforms together are kept for its next passes. */
    const double inputs = TRANSFORM_INPUTS * z->from * (reads > 1 ? 1 : 1 / passes);
    const double transforms = (inputs + TRANSFORM_SUMS * (double)d->share) * d->t.tiles;
    const double group = passes * (strips * (products + transforms) +
                                   (FIRST_READ + NEXT_READ * (reads - 1)) * pairs);
    const double units = target->caps->compute_units;
    return (double)clt_ceil_div(d->groups * d->parts, target->caps->compute_units) * group +
           TRANSFORM_WEIGHTS / units * z->from * z->to;
}

/* Divides the work among `wanted` work-groups or fewer. */
static division divide_by(const sizes *z, const clt_target *target, tile t, int64_t parts,
                          int64_t wanted)
{
    enum { MOST_BYTES = 8 << 20, MOST_WEIGHTS = 10 << 20, NEAR = 1 << 20 };
    enum { MOST_TOGETHER = 8, MOST_PASSES = 16 };
    const int64_t blocks = clt_ceil_div(target->max_batch, target->lanes);
    const int64_t tiles = blocks * clt_ceil_div(z->oh, OUT) * clt_ceil_div(z->ow, OUT);
    /* Transformed weights are 4 times as large as the weights, so only a part is kept. Each pass
     * launches two kernels. */
    const int64_t u_bytes = POINTS * (int64_t)z->to * z->from * (int64_t)sizeof(float);
    const int64_t pieces = u_bytes > MOST_WEIGHTS ? clt_ceil_div(u_bytes, MOST_WEIGHTS / 2) : 1;
    const int64_t in_pass =
        clt_ceil_div(clt_ceil_div(z->to, t.channels), pieces < MOST_PASSES ? pieces : MOST_PASSES);
    const int64_t in_share = clt_ceil_div(in_pass, parts);
    division d = {.t = t,
                  .count = in_pass * t.channels,
                  .strips = clt_ceil_div(tiles, t.tiles),
                  .share = in_share * t.channels};
    d.passes = clt_ceil_div(z->to, d.count);
    d.parts = clt_ceil_div(d.count, d.share);
    d.groups = clt_ceil_div(wanted, d.parts);
    d.groups = d.groups < d.strips ? d.groups : d.strips;
    d.area = (int64_t)POINTS * target->lanes *
             (clt_ceil_div(z->from, BLOCK) * ((BLOCK * t.tiles) | 1) +
              in_share * ((t.channels * t.tiles) | 1));
    const int64_t fit = MOST_BYTES / (d.groups * d.parts * d.area * (int64_t)sizeof(float));
    /* Weights of that size come from a near cache for every strip. */
    const int64_t most = u_bytes <= NEAR ? 1 : fit < MOST_TOGETHER ? fit : MOST_TOGETHER;
    const int64_t all = clt_ceil_div(d.strips, d.groups);
    d.together = clt_tile_number(target, "TOGETHER", 1, 64, most < 1 ? 1 : most < all ? most : all);
    d.cycles = cycles_of(&d, z, target);
    return d;
}

/* The fastest division. Each work-group has its own scratch memory, so only a few work-groups are
 * used for each unit. */
static division divide(const sizes *z, const clt_target *target)
{
    const tile *list = is_wide(target) ? wide_tiles : narrow_tiles;
    const int count = is_wide(target) ? sizeof wide_tiles / sizeof *wide_tiles
                                      : sizeof narrow_tiles / sizeof *narrow_tiles;
    const int units = target->caps->compute_units;
    division found = {.cycles = -1};
    for (int i = 0; i < count; i++) {
        const tile t = {(int)clt_tile_number(target, "TX", 1, 8, list[i].tiles),
                        (int)clt_tile_number(target, "TC", 1, 8, list[i].channels)};
        for (int64_t parts = 1; parts <= units && parts <= clt_ceil_div(z->to, t.channels); parts++)
            for (int64_t wanted = units; wanted <= 4 * units; wanted *= 2) {
                const division d = divide_by(z, target, t, parts, wanted);
                /* More work-groups balance the load if a unit is disturbed. */
                if (found.cycles < 0 || d.cycles < 0.98 * found.cycles ||
                    (d.cycles < found.cycles * 1.02 &&
                     d.groups * d.parts > found.groups * found.parts))
                    found = d;
            }
    }
    return found;
}

/* Pairs of an output and a tap along an axis that do not read padding. */
static int taps_inside(int in, int out, int padding)
{
    int taps = 0;
    for (int o = 0; o < out; o++)
        for (int k = 0; k < 3; k++)
            taps += o + k >= padding && o + k < in + padding;
    return taps;
}

/* Estimated cycles, relative to those of the direct kernels. */
static double cost(const sizes *z, const clt_target *target)
{
    const double units = target->caps->compute_units, pairs = (double)z->from * z->to;
    const double blocks = (double)clt_ceil_div(target->max_batch, target->lanes);
    const double taps = taps_inside(z->ih, z->oh, z->py) * (double)taps_inside(z->iw, z->ow, z->px);
    return divide(z, target).cycles / (blocks * taps / 2 * pairs / units);
}

bool clt_winograd_accepts_shape(const clt_conv2d_shape *s, char *why)
{
    if (s->kernel[0] != 3 || s->kernel[1] != 3)
        return clt_decline(why, "a kernel of %dx%d, not 3x3", s->kernel[0], s->kernel[1]);
    if (s->stride[0] != 1 || s->stride[1] != 1 || s->dilation[0] != 1 || s->dilation[1] != 1)
        return clt_decline(why, "a stride or dilation");
    if (s->groups != 1)
        return clt_decline(why, "groups");
    return true;
}

bool clt_conv2d_winograd_accepts(const clt_node *node, const clt_target *target, char *why)
{
    return clt_accepts_f32(node, why) && clt_conv2d_winograd_fits(node, target, why);
}

bool clt_conv2d_winograd_fits(const clt_node *node, const clt_target *target, char *why)
{
    enum { LEAST_CHANNELS = 16 };
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    if (!clt_accepts_batch_blocked(node, target, why) || !clt_winograd_accepts_shape(&s, why))
        return false;
    if (node->op != &clt_op_conv2d && (s.padding[0] > 2 || s.padding[1] > 2))
        return clt_decline(why, "a padding of more than 2");
    /* Rounding errors of a tile's other outputs reach each output. They are negligible only in a
     * sum over many channels. */
    if (s.channels < LEAST_CHANNELS || s.out_channels < LEAST_CHANNELS)
        return clt_decline(why, "less than %d channels", LEAST_CHANNELS);
    const sizes z = sizes_of(node, &s);
    const double relative = cost(&z, target);
    const clt_variant *wanted = clt_variant_wanted(node->op, target->variants);
    const bool asked = wanted && wanted->emit == clt_conv2d_winograd;
    if (relative > 0.9 && !asked)
        return clt_decline(why, "transforming takes %.2f of the direct kernel's time", relative);
    return true;
}

void clt_conv2d_winograd(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const sizes z = sizes_of(node, &s);
    const division d = divide(&z, target);
    const int lanes = target->lanes;
    const bool bias = !z.flip && node->n_in > 2 && node->in[2];
    const int64_t vectors = clt_ceil_div(z.from, lanes), float_bytes = (int64_t)sizeof(float);
    const int u = clt_scratch_add(p, clt_fixed(POINTS * d.count * vectors * lanes * float_bytes));
    const int areas =
        clt_scratch_add(p, clt_fixed(d.groups * d.parts * d.together * d.area * float_bytes));
    for (int64_t first = 0; first < z.to; first += d.count) {
        const int64_t count = first + d.count < z.to ? d.count : z.to - first;
        clt_launch_begin(p, "conv/batch_blocked/winograd.cl", "clt_batch_blocked_winograd_weights",
                         "-DLANES=%d -DWEIGHTS -DFLIP=%d", lanes, z.flip);
        CLT_ARGS(p, CLT_IN(1), CLT_SCRATCH(u), CLT_FIXED(s.channels), CLT_FIXED(s.out_channels),
                 CLT_FIXED(first));
        clt_range3(p, clt_fixed(vectors), clt_fixed(count), clt_fixed(1), 1, 1, 1);

        clt_launch_begin(p, "conv/batch_blocked/winograd.cl", "clt_batch_blocked_winograd",
                         "-DLANES=%d -DPY=%d -DPX=%d -DBIAS=%d -DACT=%d -DTX=%d -DTC=%d -DCTAIL=%d",
                         lanes, z.py, z.px, bias, (int)attr->epilogue.activation, d.t.tiles,
                         d.t.channels, z.to % d.t.channels);
        CLT_ARGS(p, CLT_IN(0), CLT_SCRATCH(u), CLT_IN(bias ? 2 : 1), CLT_OUT(0),
                 CLT_SCRATCH(areas));
        const int values[] = {z.from, z.ih, z.iw, z.to, z.oh, z.ow};
        CLT_ARGS(p, CLT_RUN(CLT_RUN_COUNT));
        for (int i = 0; i < (int)(sizeof values / sizeof *values); i++)
            CLT_ARGS(p, CLT_FIXED(values[i]));
        CLT_ARGS(p, CLT_FIXED(first), CLT_FIXED(count), CLT_FIXED(d.share), CLT_FIXED(d.together));
        clt_range3(p, clt_fixed(d.groups), clt_fixed(clt_ceil_div(count, d.share)), clt_fixed(1), 1,
                   1, 1);
    }
}
