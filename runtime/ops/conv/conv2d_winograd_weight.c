/* Tiles and launches of clkernels/conv/batch_blocked/winograd_weight_grad.cl. */
#include <stdio.h>

#include "ops/conv/conv2d_winograd.h"

/* As in the kernel file: a tile has OUT x OUT gradients. */
enum { OUT = 4, POINTS = (OUT + 2) * (OUT + 2), TAPS = 9, SPREAD = 16 };

/* A register tile: input channels x vectors of output channels. */
typedef struct tile {
    int channels, vectors;
} tile;

static const tile wide_tiles[] = {{6, 4}, {8, 3}, {8, 2}, {5, 4}},
                  narrow_tiles[] = {{6, 2}, {4, 3}, {4, 2}, {5, 2}};
enum { TILES_TO_TRY = sizeof wide_tiles / sizeof *wide_tiles };

/* The cheapest tile that fits the registers. A multiplication and a load take half a cycle each.
 * Eight independent sums hide a multiplication's latency. A tenth of the loads' time is not hidden.
 */
static tile best_tile(const clt_target *target, int channels, int vectors)
{
    tile best = {1, 1};
    double best_cost = 1e30;
    for (int to = 1; to <= 8; to++)
        for (int tc = 1; tc <= 8 && tc * to + to + 1 <= target->caps->vector_registers; tc++) {
            double cost = 0;
            for (int c = 0; c < channels; c += tc)
                for (int o = 0; o < vectors; o += to) {
                    const int rows = channels - c < tc ? channels - c : tc;
                    const int columns = vectors - o < to ? vectors - o : to;
                    const double cells = rows * columns / 2.0, loads = (rows + columns) / 2.0;
                    const double most = cells > loads ? cells : loads;
                    cost += (most > 4 ? most : 4) + 0.1 * loads;
                }
            if (cost < best_cost) {
                best = (tile){tc, to};
                best_cost = cost;
            }
        }
    return best;
}

/* How the work is divided over work-groups. */
typedef struct division {
    tile t;
    int64_t tiles;          /* tiles of a strip */
    int64_t strips, groups; /* strips of a whole batch; work-groups that share them */
    int64_t block, blocks;  /* vectors of output channels in a work-group; number of such blocks */
    int64_t area, part;     /* floats of scratch memory of a work-group; floats of a group's sums */
    double cycles;          /* estimate for the busiest compute unit */
} division;

/* Estimated cycles; the costs of the parts were measured. */
static double cycles_of(const division *d, const clt_conv2d_shape *s, const clt_target *target)
{
    enum { TRANSFORM = 340, LAUNCHES = 50000, CACHE = 1 << 20 };
    const double units = target->caps->compute_units, ci = s->channels, block = (double)d->block;
    const double images =
        (double)target->max_batch / (double)clt_ceil_div(target->max_batch, target->lanes);
    const double sums = POINTS * ci * block, weights = (double)s->out_channels * ci * TAPS;
    /* Cost of loading or storing a vector of sums. Sums that do not fit the cache are in slow
     * memory. */
    const double sum = sums * target->lanes * (double)sizeof(float) > CACHE ? 10 : 2;
    const double cells = d->t.channels * d->t.vectors / 2.0;
    const double loads = (d->t.channels + d->t.vectors) / 2.0;
    const double most = cells > loads ? cells : loads, slow = (most > 4 ? most : 4) / cells;
    const double products = 0.55 * slow * sums * (double)d->tiles * images;
    const double transforms = TRANSFORM * (ci + block * target->lanes) * (double)d->tiles;
    const double strip = products + transforms + 2 * sum * sums;
    const double group =
        (double)clt_ceil_div(d->strips, d->groups) * strip + sum * sums + 6 * TAPS * ci * block;
    const double last = (double)d->groups * TAPS * ci * (double)(d->blocks * d->block) * 6;
    return (double)clt_ceil_div(d->groups * d->blocks, target->caps->compute_units) * group +
           (last + 1.5 * weights) / units + LAUNCHES;
}

/* The fastest division whose scratch memory is not too large; cycles < 0 if there is none. */
static division divide(const clt_conv2d_shape *s, const clt_target *target)
{
    enum { MOST_BYTES = 128 << 20, LEAST_STRIPS = 32, DEPTH = 32 };
    const int64_t vectors = clt_ceil_div(s->out_channels, target->lanes);
    const int64_t units = target->caps->compute_units;
    const tile best = best_tile(target, s->channels, (int)vectors);
    division all = {.t = {(int)clt_tile_number(target, "TC", 1, 8, best.channels),
                          (int)clt_tile_number(target, "TO", 1, 8, best.vectors)},
                    .tiles = clt_tile_number(target, "TILES", 1, 16, DEPTH / target->lanes),
                    .part = ((int64_t)s->channels * TAPS + 1) * vectors * target->lanes,
                    .cycles = -1};
    const int64_t tiles = clt_ceil_div(s->out_height, OUT) * clt_ceil_div(s->out_width, OUT);
    const int64_t c_blocks = clt_ceil_div(s->channels, all.t.channels);
    const int64_t o_blocks = clt_ceil_div(vectors, all.t.vectors);
    all.strips = clt_ceil_div(clt_ceil_div(target->max_batch, target->lanes) * tiles, all.tiles);
    division found = all;
    for (int64_t parts = 1; parts <= o_blocks; parts++) {
        division d = all;
        const int64_t in_block = clt_ceil_div(o_blocks, parts);
        d.block = in_block * d.t.vectors;
        d.blocks = clt_ceil_div(o_blocks, in_block);
        /* Each work-group has its own scratch memory and begins with cold caches. Two for each unit
         * are enough to balance the load if a unit is disturbed. */
        const int64_t wanted = units * (all.strips >= LEAST_STRIPS * units ? 2 : 1);
        d.groups = clt_ceil_div(wanted, d.blocks);
        d.groups = d.groups < d.strips ? d.groups : d.strips;
        d.area = (int64_t)POINTS * target->lanes *
                 (c_blocks * ((d.t.channels * d.tiles) | 1) +
                  in_block * ((d.tiles * target->lanes * d.t.vectors) | 1) +
                  in_block * c_blocks * ((d.t.channels * d.t.vectors) | 1));
        const int64_t floats = d.groups * (d.blocks * d.area + d.part);
        d.cycles = cycles_of(&d, s, target);
        if (floats * (int64_t)sizeof(float) <= MOST_BYTES &&
            (found.cycles < 0 || d.cycles < found.cycles))
            found = d;
    }
    return found;
}

bool clt_conv2d_winograd_weight_tiles(const clt_node *node, const clt_target *target, int index,
                                      char *text)
{
    (void)node;
    const tile *list = target->caps->vector_registers >= 32 ? wide_tiles : narrow_tiles;
    if (index >= 2 * TILES_TO_TRY)
        return false;
    const tile t = list[index / 2];
    snprintf(text, CLT_TILE_TEXT, "TC=%d,TO=%d,TILES=%d", t.channels, t.vectors,
             (index % 2 ? 64 : 32) / target->lanes);
    return true;
}

/* Pairs of a gradient and an input along an axis: of all taps, or of the tap with the fewest
 * pairs. */
static int pairs_inside(int in, int out, int padding, bool of_least)
{
    int all = 0, least = out;
    for (int k = 0; k < 3; k++) {
        int pairs = 0;
        for (int o = 0; o < out; o++)
            pairs += o + k >= padding && o + k < in + padding;
        all += pairs;
        least = pairs < least ? pairs : least;
    }
    return of_least ? least : all;
}

static int pairs_of(const clt_conv2d_shape *s, bool of_least)
{
    return pairs_inside(s->height, s->out_height, s->padding[0], of_least) *
           pairs_inside(s->width, s->out_width, s->padding[1], of_least);
}

bool clt_conv2d_winograd_weight_accepts(const clt_node *node, const clt_target *target, char *why)
{
    return clt_accepts_f32(node, why) && clt_conv2d_winograd_weight_fits(node, target, why);
}

bool clt_conv2d_winograd_weight_fits(const clt_node *node, const clt_target *target, char *why)
{
    enum { LEAST_PAIRS = 16 };
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    if (!clt_accepts_batch_blocked(node, target, why) || !clt_winograd_accepts_shape(&s, why))
        return false;
    /* Rounding errors of a tile's other weights reach each weight. They are negligible only in a
     * sum over many pixels, even of a single sample. */
    if (pairs_of(&s, true) < LEAST_PAIRS)
        return clt_decline(why, "a weight that meets less than %d pixels", LEAST_PAIRS);
    const division d = divide(&s, target);
    if (d.cycles < 0)
        return clt_decline(why, "too much scratch memory for the sums of so many channels");
    /* The direct kernels reach 0.8 of the peak rate. */
    const double direct = (double)clt_ceil_div(target->max_batch, target->lanes) *
                          pairs_of(&s, false) * s.channels * s.out_channels /
                          (2 * 0.8 * target->caps->compute_units);
    const clt_variant *wanted = clt_variant_wanted(node->op, target->variants);
    const bool asked = wanted && wanted->emit == clt_conv2d_winograd_weight;
    if (d.cycles > 0.9 * direct && !asked)
        return clt_decline(why, "it takes %.2f of the direct kernel's time", d.cycles / direct);
    return true;
}

void clt_conv2d_winograd_weight(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const division d = divide(&s, target);
    const int lanes = target->lanes;
    const int64_t float_bytes = (int64_t)sizeof(float);
    const int64_t vectors = clt_ceil_div(s.out_channels, lanes);
    const int areas = clt_scratch_add(p, clt_fixed(d.groups * d.blocks * d.area * float_bytes));
    const int parts = clt_scratch_add(p, clt_fixed(d.groups * d.part * float_bytes));

    clt_launch_begin(
        p, "conv/batch_blocked/winograd_weight_grad.cl", "clt_batch_blocked_winograd_weight_grad",
        "-DLANES=%d -DPY=%d -DPX=%d -DBIAS=%d -DTC=%d -DTO=%d -DCTAIL=%d -DOTAIL=%d "
        "-DBLOCK=%d -DTILES=%d",
        lanes, s.padding[0], s.padding[1], attr->bias, d.t.channels, d.t.vectors,
        s.channels % d.t.channels, (int)(vectors % d.t.vectors), (int)d.block, (int)d.tiles);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(areas), CLT_SCRATCH(parts));
    const int values[] = {s.channels, s.height, s.width, s.out_channels, s.out_height, s.out_width};
    CLT_ARGS(p, CLT_RUN(CLT_RUN_COUNT));
    for (int i = 0; i < (int)(sizeof values / sizeof *values); i++)
        CLT_ARGS(p, CLT_FIXED(values[i]));
    clt_range3(p, clt_fixed(d.groups), clt_fixed(d.blocks), clt_fixed(1), 1, 1, 1);

    clt_launch_begin(p, "conv/batch_blocked/winograd_weight_grad.cl",
                     "clt_batch_blocked_winograd_weight_sum", "-DLANES=%d -DBIAS=%d", lanes,
                     attr->bias);
    CLT_ARGS(p, CLT_SCRATCH(parts), CLT_OUT(0), CLT_OUT(1), CLT_FIXED(d.groups),
             CLT_FIXED(s.channels), CLT_FIXED(s.out_channels));
    clt_range3(p, clt_fixed(vectors), clt_fixed(clt_ceil_div(s.channels, SPREAD)), clt_fixed(1), 1,
               1, 1);
}
