/* Tiles and launches of clkernels/attention/cpu/attention.cl and attention_grad.cl. */
#include "ops/attention/attention.h"

#include <stdio.h>

#include "ops/core/nn.h"

enum { KEYS = 48, ROWS = 48, CHUNK = 16, MOST_VECTORS = 3, ITEMS_A_UNIT = 4 };

/* Sizes that the kernels are built with. */
typedef struct tile {
    int width, size;
    int rows, vectors;         /* MR, NV */
    int sum_rows, sum_vectors; /* RM, CV */
} tile;

/* Rows in 16 bits are copied as floats; see attention_tile.clh. */
static bool copies(const clt_node *node)
{
    bool half = false;
    for (int i = 0; i < node->n_in; i++)
        half = half || (node->in[i] && clt_is_half(node->in[i]->type.dtype));
    return half;
}

static int64_t local_bytes(const clt_node *node, const clt_attention_shape *s, int64_t columns,
                           bool grad)
{
    const int64_t copied = !copies(node) ? 0 : grad ? columns + 2 * ROWS : 2 * KEYS;
    const int64_t floats = copied * s->size + (grad ? columns * (4 * s->size + 2 * ROWS)
                                                    : columns * (2 * s->size + KEYS + 1));
    const int64_t of_mask = copied * s->size + columns * (2 * s->size + 3 * ROWS);
    if (node->op == &clt_op_attention_mask_grad && of_mask > floats)
        return of_mask * (int64_t)sizeof(float);
    return floats * (int64_t)sizeof(float);
}

/* As many accumulators as the registers allow; both 48s are multiples of the rows. */
static int rows_for(const clt_caps *caps, int vectors)
{
    static const int many[] = {0, 16, 12, 8, 6, 4}, few[] = {0, 8, 6, 4, 2, 2};
    return (caps->vector_registers >= 32 ? many : few)[vectors];
}

/* Vectors of a row's tile in the sums. A last vector that overlaps the vector before must be in the
 * same tile. */
static int sum_vectors(const clt_caps *caps, const clt_attention_shape *s)
{
    const int64_t vectors = (s->size + caps->vector_width - 1) / caps->vector_width;
    const bool overlaps = s->size % caps->vector_width != 0;
    static const int many[] = {4, 3, 2, 5, 1}, few[] = {2, 3, 4, 5, 1};
    const int *order = caps->vector_registers >= 32 ? many : few;
    for (int i = 0; i < 5; i++)
        if (vectors >= order[i] && !(overlaps && vectors % order[i] == 1))
            return order[i];
    return 1;
}

/* Vectors of rows or of keys in a panel; 0 if local memory has no room for one. */
static int vectors_for(const clt_node *node, const clt_target *target, const clt_attention_shape *s,
                       bool grad)
{
    const int width = target->caps->vector_width;
    const int64_t columns = grad ? s->keys : s->rows;
    int64_t vectors = (columns + width - 1) / width;
    if (vectors > 2)
        vectors = 2;
    vectors = clt_tile_number(target, "NV", 1, MOST_VECTORS, vectors);
    while (vectors > 0 && local_bytes(node, s, vectors * width, grad) > target->caps->local_bytes)
        vectors--;
    return (int)vectors;
}

static tile tile_for(const clt_node *node, const clt_target *target, const clt_attention_shape *s,
                     bool grad)
{
    tile t = {.width = target->caps->vector_width,
              .size = (int)s->size,
              .vectors = vectors_for(node, target, s, grad),
              .sum_vectors = sum_vectors(target->caps, s)};
    t.rows = rows_for(target->caps, t.vectors);
    t.sum_rows = rows_for(target->caps, t.sum_vectors);
    return t;
}

bool clt_attention_cpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    enum { MOST_SIZE = 256 };
    const clt_attention_shape s = clt_attention_shape_of(node);
    if (!clt_accepts_cpu_vectors(node, target, why))
        return false;
    if (s.size < target->caps->vector_width || s.size > MOST_SIZE)
        return clt_decline(why, "heads of %lld elements, not %d to %d", (long long)s.size,
                           target->caps->vector_width, MOST_SIZE);
    if (vectors_for(node, target, &s, node->op != &clt_op_attention) < 1)
        return clt_decline(why, "%lld bytes of local memory", (long long)target->caps->local_bytes);
    /* The last vector of a gradient's sums overlaps and would be in a tile by itself. */
    if (node->op != &clt_op_attention && s.size > target->caps->vector_width &&
        sum_vectors(target->caps, &s) == 1)
        return clt_decline(why, "heads of %lld elements by vectors of %d", (long long)s.size,
                           target->caps->vector_width);
    return true;
}

bool clt_attention_few_accepts(const clt_node *node, const clt_target *target, char *why)
{
    enum { MOST_ROWS = 4, MOST_OF_ROW = 8 };
    const clt_attention_shape s = clt_attention_shape_of(node);
    const int width = target->caps->vector_width;
    if (!clt_accepts_cpu_vectors(node, target, why))
        return false;
    if (s.rows > MOST_ROWS)
        return clt_decline(why, "%lld rows, not 1 to %d", (long long)s.rows, MOST_ROWS);
    if (s.size % width || s.size > (int64_t)MOST_OF_ROW * width)
        return clt_decline(why, "heads of %lld elements, not 1 to %d vectors of %d",
                           (long long)s.size, MOST_OF_ROW, width);
    return ((const clt_attention_attr *)node->attr)->dropout > 0 ? clt_decline(why, "dropout")
                                                                 : true;
}

void clt_attention_few(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { BLOCK = 64 };
    const clt_attention_shape s = clt_attention_shape_of(node);
    const int width = target->caps->vector_width;
    char types[CLT_ATTENTION_OPTIONS];
    clt_launch_begin(p, "attention/cpu/attention_few.cl", "attention_few",
                     "-DVW=%d -DVECTORS=%d -DKEYS=%d%s", width, (int)(s.size / width), BLOCK,
                     clt_attention_types(node, &s, types));
    clt_arg_attention_operands(p, node, &s);
    CLT_ARGS(p, CLT_ATTENTION_OUT(&s.out), CLT_OUT(s.log_sum), CLT_ATTENTION_SIZES(&s));
    clt_range3(p, clt_fixed(s.rows), clt_fixed(s.heads), clt_attention_images(&s, 1), 1, 1, 1);
}

void clt_attention_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const tile t = tile_for(node, target, &s, false);
    const int64_t columns = t.vectors * t.width;
    char types[CLT_ATTENTION_OPTIONS];
    clt_launch_begin(p, "attention/cpu/attention.cl", "attention",
                     "-DVW=%d -DD=%d -DMR=%d -DNV=%d -DKEYS=%d%s", t.width, t.size, t.rows,
                     t.vectors, KEYS, clt_attention_types(node, &s, types));
    clt_arg_attention_operands(p, node, &s);
    CLT_ARGS(p, CLT_ATTENTION_OUT(&s.out), CLT_OUT(s.log_sum), CLT_ATTENTION_SIZES(&s));
    clt_arg_attention_drop(p, node, &s);
    clt_range3(p, clt_fixed((s.rows + columns - 1) / columns), clt_fixed(s.heads),
               clt_attention_images(&s, 1), 1, 1, 1);
}

/* Slices of the keys, chosen so that all units have work. */
static int64_t slices_for(const clt_target *target, const clt_attention_shape *s, int64_t columns)
{
    const int64_t blocks = (s->keys + columns - 1) / columns;
    const int64_t images = clt_dim(s->batch, target->max_batch);
    const int64_t items = s->kv_heads * (images > 0 ? images : 1);
    const int64_t wanted = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    const int64_t slices = target->caps->compute_units > 1 ? (wanted + items - 1) / items : 1;
    return slices < blocks ? slices : blocks;
}

/* Begins a launch over chunks of rows of all heads. */
static void begin_rows(clt_program *p, const tile *t, const char *kernel, const char *types)
{
    clt_launch_begin(p, "attention/cpu/attention_grad.cl", kernel,
                     "-DVW=%d -DD=%d -DMR=%d -DNV=%d -DROWS=%d -DRM=%d -DCV=%d%s", t->width,
                     t->size, t->rows, t->vectors, ROWS, t->sum_rows, t->sum_vectors, types);
}

static void range_rows(clt_program *p, const clt_attention_shape *s)
{
    clt_range3(p, clt_fixed((s->rows + CHUNK - 1) / CHUNK), clt_fixed(s->heads),
               clt_attention_images(s, 1), 1, 1, 1);
}

clt_attention_tile clt_attention_tile_cpu(const clt_node *node, const clt_target *target)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const tile t = tile_for(node, target, &s, true);
    clt_attention_tile own = {.rows = ROWS, .keys = (int64_t)t.vectors * t.width, .threads = 1};
    snprintf(own.options, sizeof own.options, "-DVW=%d -DD=%d -DMR=%d -DNV=%d -DROWS=%d", t.width,
             t.size, t.rows, t.vectors, ROWS);
    return own;
}

int clt_attention_delta_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const tile t = tile_for(node, target, &s, true);
    clt_attention_view out = s.out;
    char types[CLT_ATTENTION_OPTIONS];
    out.operand = 1;
    const int delta = clt_scratch_add(p, clt_attention_images(&s, s.heads * s.rows * 4));
    begin_rows(p, &t, "attention_delta", clt_attention_types(node, &s, types));
    CLT_ARGS(p, CLT_ATTENTION_IN(&s.out), CLT_ATTENTION_IN(&out), CLT_SCRATCH(delta),
             CLT_FIXED(s.rows));
    range_rows(p, &s);
    return delta;
}

void clt_attention_grad_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const tile t = tile_for(node, target, &s, true);
    const int64_t slices = slices_for(target, &s, t.vectors * t.width);
    const int64_t elements = s.heads * s.rows * s.size;
    char types[CLT_ATTENTION_OPTIONS];
    clt_attention_types(node, &s, types);
    const int delta = clt_attention_delta_cpu(node, target, p);
    /* For dq in 16 bits, the kernels add in floats in scratch memory. */
    const int parts = slices > 1 || clt_is_half(node->out[s.dq.operand]->type.dtype)
                          ? clt_scratch_add(p, clt_attention_images(&s, slices * elements * 4))
                          : -1;
    begin_rows(p, &t, "attention_grad", types);
    clt_arg_attention_operands(p, node, &s);
    CLT_ARGS(p, CLT_ATTENTION_IN(&s.out), CLT_IN(s.log_sum), CLT_SCRATCH(delta));
    if (parts < 0) {
        CLT_ARGS(p, CLT_ATTENTION_OUT(&s.dq));
    } else {
        CLT_ARGS(p, CLT_SCRATCH(parts), CLT_LONG(clt_fixed(0)), CLT_LONG(clt_fixed(elements)),
                 CLT_LONG(clt_fixed(s.rows * s.size)), CLT_LONG(clt_fixed(s.size)));
    }
    CLT_ARGS(p, CLT_ATTENTION_OUT(&s.dk), CLT_ATTENTION_OUT(&s.dv), CLT_ATTENTION_SIZES(&s),
             CLT_LONG(clt_attention_images(&s, elements)));
    clt_arg_attention_drop(p, node, &s);
    clt_range3(p, clt_fixed(slices), clt_fixed(s.kv_heads), clt_attention_images(&s, 1), 1, 1, 1);
    if (parts < 0)
        return;
    begin_rows(p, &t, "attention_sum", types);
    CLT_ARGS(p, CLT_SCRATCH(parts), CLT_LONG(clt_attention_images(&s, elements)), CLT_FIXED(slices),
             CLT_ATTENTION_OUT(&s.dq), CLT_FIXED(s.rows));
    range_rows(p, &s);
}
