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

static tile tile_of(const clt_target *target)
{
    const tile first = is_wide(target) ? wide_tiles[0] : narrow_tiles[0];
    return (tile){(int)clt_tile_number(target, "TX", 1, 8, first.tiles),
                  (int)clt_tile_number(target, "TC", 1, 8, first.channels)};
}

/* Number of strips in a whole batch. A strip has as many tiles as a register tile. */
static int64_t strips_of(const sizes *z, const clt_target *target, tile t)
{
    const int64_t blocks = clt_ceil_div(target->max_batch, target->lanes);
    return clt_ceil_div(blocks * clt_ceil_div(z->oh, OUT) * clt_ceil_div(z->ow, OUT), t.tiles);
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

/* Estimated cycles of a compute unit, relative to those of the direct kernels. The costs of the
 * parts were measured. */
static double cost(const sizes *z, const clt_target *target)
{
    const tile t = tile_of(target);
    const double units = target->caps->compute_units, pairs = (double)z->from * z->to;
    const double strips =
        (double)clt_ceil_div(strips_of(z, target, t), target->caps->compute_units);
    const double blocks = (double)clt_ceil_div(target->max_batch, target->lanes);
    /* A vector multiplication takes half a cycle. Transformed weights come from a slow cache
     * level. */
    const double products = (POINTS / 2.0 * t.tiles + 12) * pairs;
    const double transforms = (480.0 * z->from + 330.0 * z->to) * t.tiles;
    const double weights = (30 / units + 30) * pairs;
    const double taps = taps_inside(z->ih, z->oh, z->py) * (double)taps_inside(z->iw, z->ow, z->px);
    return (strips * (products + transforms) + weights) / (blocks * taps / 2 * pairs / units);
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
    const tile t = tile_of(target);
    const int lanes = target->lanes;
    const bool bias = !z.flip && node->n_in > 2 && node->in[2];
    /* Each work-group has its own scratch memory, so only a few work-groups are used for each
     * unit. */
    const int64_t strips = strips_of(&z, target, t);
    const int64_t most = 4 * (int64_t)target->caps->compute_units;
    const int64_t groups = strips < most ? strips : most;
    const int64_t area = (int64_t)POINTS * lanes *
                         (clt_ceil_div(z.from, BLOCK) * ((BLOCK * t.tiles) | 1) +
                          clt_ceil_div(z.to, t.channels) * ((t.channels * t.tiles) | 1));
    const int64_t vectors = clt_ceil_div(z.from, lanes), float_bytes = (int64_t)sizeof(float);
    const int u = clt_scratch_add(p, clt_fixed(POINTS * z.to * vectors * lanes * float_bytes));
    const int areas = clt_scratch_add(p, clt_fixed(groups * area * float_bytes));

    clt_launch_begin(p, "conv/batch_blocked/winograd.cl", "clt_batch_blocked_winograd_weights",
                     "-DLANES=%d -DWEIGHTS -DFLIP=%d", lanes, z.flip);
    CLT_ARGS(p, CLT_IN(1), CLT_SCRATCH(u), CLT_FIXED(s.channels), CLT_FIXED(s.out_channels));
    clt_range3(p, clt_fixed(vectors), clt_fixed(z.to), clt_fixed(1), 1, 1, 1);

    clt_launch_begin(p, "conv/batch_blocked/winograd.cl", "clt_batch_blocked_winograd",
                     "-DLANES=%d -DPY=%d -DPX=%d -DBIAS=%d -DACT=%d -DTX=%d -DTC=%d -DCTAIL=%d",
                     lanes, z.py, z.px, bias, (int)attr->epilogue.activation, t.tiles, t.channels,
                     z.to % t.channels);
    CLT_ARGS(p, CLT_IN(0), CLT_SCRATCH(u), CLT_IN(bias ? 2 : 1), CLT_OUT(0), CLT_SCRATCH(areas));
    const int values[] = {z.from, z.ih, z.iw, z.to, z.oh, z.ow};
    CLT_ARGS(p, CLT_RUN(CLT_RUN_COUNT));
    for (int i = 0; i < (int)(sizeof values / sizeof *values); i++)
        CLT_ARGS(p, CLT_FIXED(values[i]));
    clt_range1(p, clt_fixed(groups), 1);
}
