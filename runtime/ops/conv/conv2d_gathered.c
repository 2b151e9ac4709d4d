/* Tiles and launches of clkernels/conv/batch_blocked/conv_gathered.cl. */
#include <stdio.h>

#include "ops/conv/conv2d_batch_blocked.h"
#include "ops/core/nn.h"

enum { PIXELS = 16, DEPTH = 64, LEAST_CHANNELS = 16, FEW_TAPS = 16, MOST_TAPS = 128 };

/* A register tile: pixels x channels. */
typedef struct tile {
    int pixels, channels;
} tile;

static const tile wide_tiles[] = {{4, 6}, {8, 3}}, narrow_tiles[] = {{4, 3}, {2, 5}};
enum { TILES_TO_TRY = sizeof wide_tiles / sizeof *wide_tiles };

bool clt_conv2d_gathered_tiles(const clt_node *node, const clt_target *target, int index,
                               char *text)
{
    (void)node;
    if (index >= TILES_TO_TRY)
        return false;
    const tile t = target->caps->vector_registers >= 32 ? wide_tiles[index] : narrow_tiles[index];
    snprintf(text, CLT_TILE_TEXT, "TX=%d,TC=%d", t.pixels, t.channels);
    return true;
}

bool clt_conv2d_gathered_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    if (!clt_accepts_batch_blocked(node, target, why))
        return false;
    if (s.groups != 1)
        return clt_decline(why, "groups");
    /* Places of the taps are on the stack. */
    if (s.kernel[0] * s.kernel[1] > MOST_TAPS)
        return clt_decline(why, "more than %d taps", MOST_TAPS);
    const clt_variant *wanted = clt_variant_wanted(node->op, target->variants);
    if (wanted && wanted->emit == clt_conv2d_gathered)
        return true;
    if (s.stride[0] == 1 && s.stride[1] == 1)
        return clt_decline(why, "no stride");
    if (s.channels < LEAST_CHANNELS || s.out_channels < LEAST_CHANNELS)
        return clt_decline(why, "less than %d channels", LEAST_CHANNELS);
    return true;
}

void clt_conv2d_gathered(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { GROUPS = 4, LEAST_SHARE = 48 };
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const bool grad = node->op != &clt_op_conv2d, bias = !grad && node->n_in > 2 && node->in[2];
    const tile first = target->caps->vector_registers >= 32 ? wide_tiles[0] : narrow_tiles[0];
    const tile t = {(int)clt_tile_number(target, "TX", 1, 8, first.pixels),
                    (int)clt_tile_number(target, "TC", 1, 8, first.channels)};
    const int64_t taps = (int64_t)s.kernel[0] * s.kernel[1], float_bytes = (int64_t)sizeof(float);
    const int to = grad ? s.channels : s.out_channels, from = grad ? s.out_channels : s.channels;
    /* Divide the channels of y until there is work for all work-groups. */
    const int64_t strips = clt_ceil_div(PIXELS, t.pixels), pixels = strips * t.pixels;
    const int64_t blocks = clt_ceil_div(target->max_batch, target->lanes);
    const int64_t size =
        grad ? clt_ceil_div(s.height, s.stride[0]) * clt_ceil_div(s.width, s.stride[1])
             : (int64_t)s.out_height * s.out_width;
    const int64_t sets = clt_ceil_div(blocks * size, pixels);
    const int64_t groups = GROUPS * (int64_t)target->caps->compute_units;
    int64_t parts = 1;
    while (sets * parts < 2 * groups && to / (2 * parts) >= LEAST_SHARE)
        parts *= 2;
    const int64_t share = clt_ceil_div(clt_ceil_div(to, parts), t.channels) * t.channels;
    /* Programs differ in the room for taps, not in their number. */
    const int64_t room = taps <= FEW_TAPS ? FEW_TAPS : taps <= DEPTH ? DEPTH : MOST_TAPS;
    const int64_t depth = room > DEPTH ? room : DEPTH;
    const int64_t area = (depth + share) * pixels * target->lanes;
    const int areas = clt_scratch_add(p, clt_fixed(groups * area * float_bytes));
    char options[256];
    snprintf(options, sizeof options, "-DLANES=%d -DMOST_TAPS=%d -DGRAD=%d", target->lanes,
             (int)room, grad);
    int u = -1;
    if (grad) {
        u = clt_scratch_add(p, clt_fixed(taps * s.channels * s.out_channels * float_bytes));
        clt_launch_begin(p, "conv/batch_blocked/conv_gathered.cl",
                         "clt_batch_blocked_conv_gathered_weights", "%s", options);
        CLT_ARGS(p, CLT_IN(1), CLT_SCRATCH(u), CLT_FIXED(s.channels), CLT_FIXED(s.out_channels));
        CLT_ARGS(p, CLT_CONV2D_WINDOW(&s));
        clt_range3(p, clt_fixed(s.channels), clt_fixed(1), clt_fixed(1), 1, 1, 1);
    }
    clt_launch_begin(p, "conv/batch_blocked/conv_gathered.cl", "clt_batch_blocked_conv_gathered",
                     "%s -DBIAS=%d -DACT=%d -DTX=%d -DTC=%d -DSTRIPS=%d", options, bias,
                     grad ? 0 : (int)attr->epilogue.activation, t.pixels, t.channels, (int)strips);
    CLT_ARGS(p, CLT_IN(0));
    CLT_ARGS(p, grad ? CLT_SCRATCH(u) : CLT_IN(1));
    CLT_ARGS(p, CLT_IN(bias ? 2 : 1), CLT_OUT(0), CLT_SCRATCH(areas), CLT_RUN(CLT_RUN_COUNT),
             CLT_FIXED(from), CLT_FIXED(grad ? s.out_height : s.height),
             CLT_FIXED(grad ? s.out_width : s.width), CLT_FIXED(to),
             CLT_FIXED(grad ? s.height : s.out_height), CLT_FIXED(grad ? s.width : s.out_width),
             CLT_FIXED(share));
    CLT_ARGS(p, CLT_CONV2D_WINDOW(&s));
    clt_range3(p, clt_fixed(groups), clt_fixed(1), clt_fixed(1), 1, 1, 1);
}
