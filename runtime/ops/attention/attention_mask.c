/* The gradient of attention's mask. It computes the scores again in kernels of its own, so that the
 * other gradients cost the same with and without it. */
#include "ops/attention/attention.h"

/* How samples are divided if the mask is common to them. The slices are summed afterwards. */
typedef struct slicing {
    int64_t count;
    int64_t elements; /* elements of the mask for one sample */
    clt_extent z;     /* samples of the mask, or slices */
} slicing;

/* Chooses the slices. `tiles` work-items or work-groups compute the mask of one sample; about
 * `wanted` should run. */
static slicing slice(const clt_target *target, const clt_attention_shape *s, int64_t tiles,
                     int64_t wanted)
{
    const int64_t images = clt_dim(s->batch, target->max_batch);
    slicing own = {.count = 1,
                   .elements = s->mask_dims[1] * s->mask_dims[2] * s->mask_dims[3],
                   .z = clt_attention_images(s, 1)};
    if (s->mask_strides[0])
        return own;
    own.count = target->caps->compute_units > 1 ? (wanted + tiles - 1) / tiles : 1;
    if (own.count > images)
        own.count = images > 0 ? images : 1;
    own.z = clt_fixed(own.count);
    return own;
}

/* Adds the operands of the launch begun last and its destination: the gradient, or a scratch block
 * for the slices' parts. Returns the block's index, or -1. */
static int arg_operands(clt_program *p, const clt_node *node, const clt_attention_shape *s,
                        int delta, const slicing *by)
{
    clt_arg_attention_operands(p, node, s);
    CLT_ARGS(p, CLT_ATTENTION_IN(&s->out), CLT_IN(s->log_sum), CLT_SCRATCH(delta));
    if (by->count == 1) {
        CLT_ARGS(p, CLT_OUT(0));
        return -1;
    }
    const int parts = clt_scratch_add(p, clt_fixed(by->count * by->elements * 4));
    CLT_ARGS(p, CLT_SCRATCH(parts));
    return parts;
}

static void sum_parts(clt_program *p, const clt_target *target, int parts, const slicing *by)
{
    if (parts < 0)
        return;
    clt_launch_begin(p, "attention/portable/attention_mask.cl", "attention_mask_sum", "%s", "");
    CLT_ARGS(p, CLT_SCRATCH(parts), CLT_OUT(0), CLT_LONG(clt_fixed(by->elements)),
             CLT_FIXED(by->count));
    clt_range_items(p, target, clt_fixed(by->elements));
}

static void emit_tiles(const clt_node *node, const clt_target *target, clt_program *p,
                       const char *file, const clt_attention_tile *t, int delta, int64_t wanted)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const int64_t x = (s.mask_dims[3] + t->keys - 1) / t->keys;
    const int64_t y = (s.mask_dims[2] + t->rows - 1) / t->rows * s.mask_dims[1];
    const slicing by = slice(target, &s, x * y, wanted);
    char types[CLT_ATTENTION_OPTIONS];
    clt_launch_begin(p, file, "attention_mask_grad", "%s%s", t->options,
                     clt_attention_types(node, &s, types));
    const int parts = arg_operands(p, node, &s, delta, &by);
    CLT_ARGS(p, CLT_ATTENTION_SIZES(&s), CLT_INT(clt_attention_images(&s, 1)), CLT_FIXED(by.count),
             CLT_LONG(clt_fixed(by.elements)));
    clt_arg_attention_drop(p, node, &s);
    clt_range3(p, clt_fixed(x * t->threads), clt_fixed(y), by.z, t->threads, 1, 1);
    sum_parts(p, target, parts, &by);
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { ITEMS_A_UNIT = 4 };
    const clt_attention_tile t = clt_attention_tile_cpu(node, target);
    const int delta = clt_attention_delta_cpu(node, target, p);
    emit_tiles(node, target, p, "attention/cpu/attention_mask.cl", &t, delta,
               ITEMS_A_UNIT * (int64_t)target->caps->compute_units);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { GROUPS_A_UNIT = 4 };
    const clt_attention_tile t = clt_attention_tile_gpu(node, target);
    const int delta = clt_attention_delta_gpu(node, target, p);
    emit_tiles(node, target, p, "attention/gpu/attention_mask.cl", &t, delta,
               GROUPS_A_UNIT * (int64_t)target->caps->compute_units);
}

/* One work-item for each element and slice. */
static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { ITEMS_A_UNIT = 64 };
    const clt_attention_shape s = clt_attention_shape_of(node);
    const int delta = clt_attention_delta_portable(node, target, p);
    const int64_t elements = s.mask_dims[1] * s.mask_dims[2] * s.mask_dims[3];
    const slicing by =
        slice(target, &s, elements, ITEMS_A_UNIT * (int64_t)target->caps->compute_units);
    const clt_extent items =
        s.mask_strides[0] ? clt_attention_images(&s, elements) : clt_fixed(by.count * elements);
    char types[CLT_ATTENTION_OPTIONS];
    clt_launch_begin(p, "attention/portable/attention_mask.cl", "attention_mask_grad", "%s",
                     clt_attention_types(node, &s, types));
    const int parts = arg_operands(p, node, &s, delta, &by);
    CLT_ARGS(p, CLT_LONG(items), CLT_ATTENTION_LENGTHS(&s, s.heads),
             CLT_INT(clt_attention_images(&s, 1)), CLT_FIXED(by.count));
    for (int i = 1; i < 4; i++)
        CLT_ARGS(p, CLT_FIXED(s.mask_dims[i]));
    clt_arg_attention_drop(p, node, &s);
    clt_range_items(p, target, items);
    sum_parts(p, target, parts, &by);
}

const clt_variant clt_attention_mask_variants[] = {
    {"tiles_cpu", clt_attention_cpu_accepts, emit_cpu},
    {"tiles_gpu", clt_attention_gpu_accepts, emit_gpu},
    {"portable", clt_accepts_plain, emit_portable},
    {0},
};
