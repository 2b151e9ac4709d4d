/* Tiles and launches of clkernels/conv/batch_blocked/conv_weight_grad_gathered.cl. */
#include <stdio.h>

#include "ops/conv/conv2d_batch_blocked.h"
#include "ops/core/nn.h"

/* A register tile: input channels x vectors of output channels. */
typedef struct tile {
    int channels, vectors;
} tile;

static const tile wide_tiles[] = {{6, 4}, {8, 3}, {8, 2}, {5, 4}},
                  narrow_tiles[] = {{6, 2}, {4, 3}, {4, 2}, {5, 2}};
enum { TILES_TO_TRY = sizeof wide_tiles / sizeof *wide_tiles };

/* How the work is divided over work-groups. */
typedef struct division {
    tile t;
    int64_t pixels;             /* room of a strip */
    int64_t rows, together;     /* rows, and blocks of images, of a strip */
    int64_t ci_block, co_block; /* channels of a block of weights */
    int64_t groups, area;       /* work-groups; floats of scratch memory of each */
    double cycles;              /* estimate for the busiest compute unit */
} division;

/* Pairs of an output and a tap along an axis that do not read padding. */
static double pairs_inside(const clt_conv2d_shape *s, int axis)
{
    const int in = axis ? s->width : s->height, out = axis ? s->out_width : s->out_height;
    int pairs = 0;
    for (int o = 0; o < out; o++)
        for (int k = 0; k < s->kernel[axis]; k++) {
            const int at = o * s->stride[axis] + k * s->dilation[axis] - s->padding[axis];
            pairs += at >= 0 && at < in;
        }
    return pairs;
}

/* Cycles of the products of a tile of `channels` channels for an image and a pixel. Eight
 * independent sums hide a multiplication's latency. */
static double tile_cycles(int64_t channels, int vectors)
{
    const double cells = (double)channels * vectors / 2;
    return (cells > 4 ? cells : channels ? 4 : 0) + (channels ? 0.8 : 0);
}

/* Estimated cycles. TURN to WRITE are estimates too: cycles a vector that is transposed, gathered,
 * summed and written. */
static double cycles_of(const division *d, const clt_conv2d_shape *s, const clt_target *target)
{
    enum { TURN = 8, GATHER = 3, SUM = 3, WRITE = 2 };
    const double lanes = target->lanes, taps = (double)s->kernel[0] * s->kernel[1];
    const double batch = (double)clt_ceil_div(target->max_batch, target->lanes);
    const double pixels = batch * s->out_height * s->out_width;
    const double pairs = batch * pairs_inside(s, 0) * pairs_inside(s, 1);
    const double strips = (double)clt_ceil_div((int64_t)batch, d->together) *
                          (double)clt_ceil_div(s->out_height, d->rows);
    const int64_t channels = d->ci_block < s->channels ? d->ci_block : s->channels;
    const double columns = (double)d->co_block / (lanes * d->t.vectors);
    const double column =
        (double)(channels / d->t.channels) * tile_cycles(d->t.channels, d->t.vectors) +
        tile_cycles(channels % d->t.channels, d->t.vectors);
    const double products = columns * column * lanes * pairs;
    const double sums = columns * taps * (double)(channels * d->t.vectors) * SUM * strips;
    const double turn = TURN * (double)d->co_block * pixels;
    const double gather = GATHER * (double)channels * pairs;
    const double write = WRITE * (double)(channels * d->co_block) * taps / lanes;
    const int64_t blocks =
        clt_ceil_div(s->channels, d->ci_block) * clt_ceil_div(s->out_channels, d->co_block);
    const int64_t turns =
        clt_ceil_div(blocks, d->groups) * clt_ceil_div(d->groups, target->caps->compute_units);
    return (double)turns * (products + sums + turn + gather + write);
}

/* The fastest division whose scratch memory is not too large; cycles < 0 if there is none. */
static division divide(const clt_conv2d_shape *s, const clt_target *target)
{
    enum { MOST_BYTES = 4 << 20, PIXELS = 256, GROUPS = 4, MOST_BLOCKS = 64 };
    const bool wide = target->caps->vector_registers >= 32;
    const tile first = wide ? wide_tiles[0] : narrow_tiles[0];
    const int units = target->caps->compute_units, lanes = target->lanes;
    division all = {.t = {(int)clt_tile_number(target, "TC", 1, 8, first.channels),
                          (int)clt_tile_number(target, "TO", 1, 8, first.vectors)},
                    .cycles = -1};
    const int64_t vectors = (int64_t)all.t.vectors * lanes, taps = s->kernel[0] * s->kernel[1];
    const int64_t batch = clt_ceil_div(target->max_batch, lanes);
    all.pixels = PIXELS / lanes;
    while (all.pixels < s->out_width)
        all.pixels *= 2;
    all.rows = all.pixels / s->out_width;
    all.rows = all.rows < s->out_height ? all.rows : s->out_height;
    all.together =
        all.rows < s->out_height ? 1 : all.pixels / ((int64_t)s->out_height * s->out_width);
    all.together = all.together < batch ? all.together : batch;
    division found = all;
    const int64_t c_tiles = clt_ceil_div(s->channels, all.t.channels);
    const int64_t o_tiles = clt_ceil_div(s->out_channels, vectors);
    for (int64_t i = 1; i <= c_tiles && i <= MOST_BLOCKS; i++)
        for (int64_t o = 1; o <= o_tiles && o <= MOST_BLOCKS; o++) {
            division d = all;
            d.ci_block = clt_ceil_div(c_tiles, i) * d.t.channels;
            d.co_block = clt_ceil_div(o_tiles, o) * vectors;
            const int64_t blocks =
                clt_ceil_div(s->channels, d.ci_block) * clt_ceil_div(s->out_channels, d.co_block);
            d.groups = blocks < GROUPS * units ? blocks : GROUPS * units;
            d.area = d.co_block * d.pixels * lanes + taps * d.t.channels * (d.pixels | 1) * lanes +
                     d.co_block * d.ci_block * taps + d.co_block;
            if (d.groups * d.area * (int64_t)sizeof(float) > MOST_BYTES)
                continue;
            d.cycles = cycles_of(&d, s, target);
            if (found.cycles < 0 || d.cycles < found.cycles)
                found = d;
        }
    return found;
}

bool clt_conv2d_weight_gathered_tiles(const clt_node *node, const clt_target *target, int index,
                                      char *text)
{
    (void)node;
    if (index >= TILES_TO_TRY)
        return false;
    const tile *list = target->caps->vector_registers >= 32 ? wide_tiles : narrow_tiles;
    snprintf(text, CLT_TILE_TEXT, "TC=%d,TO=%d", list[index].channels, list[index].vectors);
    return true;
}

bool clt_conv2d_weight_gathered_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    if (!clt_accepts_batch_blocked(node, target, why))
        return false;
    if (s.groups != 1)
        return clt_decline(why, "groups");
    const division d = divide(&s, target);
    if (d.cycles < 0)
        return clt_decline(why, "too much scratch memory for rows of that size");
    /* The direct kernels may reach 0.6 of the peak rate. */
    const double direct = (double)clt_ceil_div(target->max_batch, target->lanes) *
                          pairs_inside(&s, 0) * pairs_inside(&s, 1) * s.channels * s.out_channels /
                          (2 * 0.6 * target->caps->compute_units);
    const clt_variant *wanted = clt_variant_wanted(node->op, target->variants);
    const bool asked = wanted && wanted->emit == clt_conv2d_weight_gathered;
    if (d.cycles > direct && !asked)
        return clt_decline(why, "it takes %.2f of the direct kernel's time", d.cycles / direct);
    return true;
}

void clt_conv2d_weight_gathered(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const division d = divide(&s, target);
    const int lanes = target->lanes;
    const int64_t vectors = clt_ceil_div(s.out_channels, lanes);
    const int areas = clt_scratch_add(p, clt_fixed(d.groups * d.area * (int64_t)sizeof(float)));
    clt_launch_begin(p, "conv/batch_blocked/conv_weight_grad_gathered.cl",
                     "clt_batch_blocked_conv_weight_grad_gathered",
                     "-DLANES=%d -DBIAS=%d -DTC=%d -DTO=%d -DOTAIL=%d -DPIXELS=%d", lanes,
                     attr->bias, d.t.channels, d.t.vectors, (int)(vectors % d.t.vectors),
                     (int)d.pixels);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(areas), CLT_OUT(0), CLT_OUT(1));
    const int values[] = {s.channels, s.height, s.width, s.out_channels, s.out_height, s.out_width};
    CLT_ARGS(p, CLT_RUN(CLT_RUN_COUNT));
    for (int i = 0; i < (int)(sizeof values / sizeof *values); i++)
        CLT_ARGS(p, CLT_FIXED(values[i]));
    CLT_ARGS(p, CLT_FIXED(d.rows), CLT_FIXED(d.together), CLT_FIXED(d.ci_block),
             CLT_FIXED(d.co_block));
    CLT_ARGS(p, CLT_CONV2D_WINDOW(&s));
    clt_range3(p, clt_fixed(d.groups), clt_fixed(1), clt_fixed(1), 1, 1, 1);
}
