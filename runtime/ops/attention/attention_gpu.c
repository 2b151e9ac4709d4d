/* Tiles and launches of clkernels/attention/gpu/attention.cl. */
#include "ops/attention/attention.h"

#include <stdio.h>

enum { NARROW = 8, PADDING = 4, DELTA_GROUP = 256, DELTA_LANES = 8, MOST_SIZE = 128 };

/* ROWS, COLUMNS and TX of attention_tile.clh. rows: 0 if no tile fits. */
typedef struct tile {
    int rows, columns, tx;
} tile;

static int64_t threads_of(tile t)
{
    return t.rows / 4 * t.tx;
}

static int64_t local_bytes(const clt_attention_shape *s, tile t, bool grad)
{
    const int64_t floats = (grad ? 2 : 1) * s->size * (t.rows + PADDING) +
                           s->size * (t.columns + PADDING) + t.columns * (t.rows + PADDING);
    return floats * (int64_t)sizeof(float);
}

/* Whether the tile fits local memory, work-groups and the head. */
static bool fits(tile t, const clt_target *target, const clt_attention_shape *s, bool grad)
{
    enum { ASIDE = 1024 };
    return s->size % (4 * t.tx) == 0 && threads_of(t) <= target->caps->max_work_group &&
           local_bytes(s, t, grad) + ASIDE <= target->caps->local_bytes;
}

/* Chooses the tile with most work-items in a compute unit at once, as far as local memory limits
 * them. Four SIMDs of AMD's units need as many waves of 64 work-items, or some of them idle. Among
 * equal tiles the first reads local memory least often. Tiles of 16 work-items a row are for
 * devices whose work-groups may have a unit's whole memory. NVIDIA's have less. */
static tile tile_for(const clt_target *target, const clt_attention_shape *s, bool grad)
{
    enum { UNIT_BYTES = 65536 };
    static const tile tiles[] = {{64, 32, NARROW}, {32, 32, NARROW}, {16, 32, NARROW},
                                 {64, 64, 16},     {48, 64, 16},     {32, 64, 16}};
    const bool whole = target->caps->local_bytes >= UNIT_BYTES;
    const int64_t unit = whole ? UNIT_BYTES : target->caps->local_bytes;
    tile best = {0};
    int64_t most = 0;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        const tile t = tiles[i];
        if (!fits(t, target, s, grad) || (t.tx > NARROW && !whole))
            continue;
        const int64_t items = unit / local_bytes(s, t, grad) * threads_of(t);
        if (items > most) {
            most = items;
            best = t;
        }
    }
    return best;
}

bool clt_attention_gpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const bool grad = node->op != &clt_op_attention;
    if (!clt_all_plain(node))
        return clt_decline(why, "values are batch-blocked");
    if (clt_caps_is_cpu(target->caps))
        return clt_decline(why, "made for GPUs");
    if (s.size % (4 * NARROW) || s.size > MOST_SIZE)
        return clt_decline(why, "heads of %lld elements, not 32, 64, 96 or 128", (long long)s.size);
    if (!tile_for(target, &s, grad).rows || (grad && target->caps->max_work_group < DELTA_GROUP))
        return clt_decline(why, "work-groups of %d with %lld bytes of local memory",
                           target->caps->max_work_group, (long long)target->caps->local_bytes);
    return true;
}

/* Sets the range: work-groups of `rows` rows out of `count`, for each of `heads` heads. */
static void range(clt_program *p, const clt_attention_shape *s, int64_t rows, int64_t threads,
                  int64_t count, int64_t heads)
{
    clt_range3(p, clt_fixed((count + rows - 1) / rows * threads), clt_fixed(heads),
               clt_attention_images(s, 1), threads, 1, 1);
}

void clt_attention_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const tile t = tile_for(target, &s, false);
    char types[CLT_ATTENTION_OPTIONS];
    clt_launch_begin(p, "attention/gpu/attention.cl", "attention",
                     "-DD=%d -DROWS=%d -DCOLUMNS=%d -DTX=%d%s", (int)s.size, t.rows, t.columns,
                     t.tx, clt_attention_types(node, &s, types));
    clt_arg_attention_operands(p, node, &s);
    CLT_ARGS(p, CLT_ATTENTION_OUT(&s.out), CLT_OUT(s.log_sum), CLT_ATTENTION_SIZES(&s));
    clt_arg_attention_drop(p, node, &s);
    range(p, &s, t.rows, threads_of(t), s.rows, s.heads);
}

clt_attention_tile clt_attention_tile_gpu(const clt_node *node, const clt_target *target)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const tile t = tile_for(target, &s, true);
    clt_attention_tile own = {.rows = t.rows, .keys = t.columns, .threads = threads_of(t)};
    snprintf(own.options, sizeof own.options, "-DGRADIENT -DD=%d -DROWS=%d -DCOLUMNS=%d -DTX=%d",
             (int)s.size, t.rows, t.columns, t.tx);
    return own;
}

int clt_attention_delta_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const clt_attention_tile t = clt_attention_tile_gpu(node, target);
    const int delta = clt_scratch_add(p, clt_attention_images(&s, s.heads * s.rows * 4));
    const int64_t of_group = DELTA_GROUP / DELTA_LANES;
    clt_attention_view out = s.out;
    out.operand = 1;
    char types[CLT_ATTENTION_OPTIONS];
    clt_launch_begin(p, "attention/gpu/attention.cl", "attention_delta", "%s%s", t.options,
                     clt_attention_types(node, &s, types));
    CLT_ARGS(p, CLT_ATTENTION_IN(&s.out), CLT_ATTENTION_IN(&out), CLT_SCRATCH(delta),
             CLT_FIXED(s.rows));
    clt_range3(p, clt_fixed((s.rows + of_group - 1) / of_group * DELTA_GROUP), clt_fixed(s.heads),
               clt_attention_images(&s, 1), DELTA_GROUP, 1, 1);
    return delta;
}

void clt_attention_grad_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const clt_attention_tile t = clt_attention_tile_gpu(node, target);
    const int delta = clt_attention_delta_gpu(node, target, p);
    char types[CLT_ATTENTION_OPTIONS];
    clt_attention_types(node, &s, types);
    for (int of_keys = 0; of_keys < 2; of_keys++) {
        clt_launch_begin(p, "attention/gpu/attention.cl",
                         of_keys ? "attention_dkv" : "attention_dq", "%s%s", t.options, types);
        clt_arg_attention_operands(p, node, &s);
        CLT_ARGS(p, CLT_ATTENTION_IN(&s.out), CLT_IN(s.log_sum), CLT_SCRATCH(delta),
                 CLT_ATTENTION_OUT(of_keys ? &s.dk : &s.dq));
        if (of_keys)
            CLT_ARGS(p, CLT_ATTENTION_OUT(&s.dv));
        CLT_ARGS(p, CLT_ATTENTION_SIZES(&s));
        clt_arg_attention_drop(p, node, &s);
        range(p, &s, t.rows, t.threads, of_keys ? s.keys : s.rows, of_keys ? s.kv_heads : s.heads);
    }
}
