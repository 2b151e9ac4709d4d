/* Functions, masks, gates, split and stacked values, and losses that are sums of functions. */
#include <stdio.h>

#include "gpu/plans.h"

enum { MOST = 3 };

/* Begins a graph with images of `width` columns, the operands x0, x1, x2. */
static clt_graph *begin(clt_value **x, int count, int64_t width)
{
    clt_graph *g;
    char name[16];
    OK(clt_graph_create(&g));
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "x%d", i);
        x[i] = clt_input(g, name, CLT_F32, 4, (int64_t[]){CLT_BATCH, 12, 16, width});
    }
    return g;
}

static clt_value *clamped(clt_value *x)
{
    return clt_clamp(x, -1, 1);
}

static clt_value *squared(clt_value *x)
{
    return clt_pow_scalar(x, 2);
}

static clt_value *cubed(clt_value *x)
{
    return clt_pow_scalar(x, 3);
}

static clt_value *inverse(clt_value *x)
{
    return clt_pow_scalar(x, -1);
}

static clt_value *power(clt_value *x)
{
    return clt_pow_scalar(x, 2.5);
}

static clt_value *negated(clt_value *x)
{
    return clt_logical_not(clt_cast(x, CLT_U8));
}

/* Each function in a graph of its own, with its gradient. */
void plan_functions(const clt_caps *caps)
{
    static clt_value *(*const all[])(clt_value *) = {clt_silu,  clt_exp, clt_ln,  clt_sqrt,
                                                     clt_rsqrt, clt_abs, clamped, squared,
                                                     cubed,     inverse, power};
    clt_value *x[MOST];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        clt_graph *g = begin(x, 1, 64);
        plan_layer(g, all[i](x[0]), x, 1, caps);
    }
    clt_graph *g = begin(x, 1, 64); /* without a gradient, so not in a chain */
    plan_layer(g, cubed(x[0]), x, 0, caps);
    g = begin(x, 1, 64);
    plan_layer(g, squared(x[0]), x, 0, caps);
    g = begin(x, 2, 64);
    plan_layer(g, clt_swiglu(x[0], x[1]), x, 2, caps);
    g = begin(x, 2, 64);
    plan_layer(g, clt_pow(x[0], x[1]), x, 2, caps);
}

/* Bytes that vectors fit or not, and chains from floats to bytes and back. */
void plan_masks(const clt_caps *caps)
{
    static clt_value *(*const comparisons[])(clt_value *, clt_value *) = {clt_eq, clt_ne, clt_lt,
                                                                          clt_le, clt_gt, clt_ge};
    static clt_value *(*const logic[])(clt_value *, clt_value *) = {clt_logical_and, clt_logical_or,
                                                                    clt_logical_xor};
    clt_value *x[MOST];
    for (int i = 0; i < 6; i++) {
        clt_graph *g = begin(x, 2, i ? 64 : 63);
        plan_layer(g, comparisons[i](x[0], x[1]), x, 0, caps);
    }
    for (int i = 0; i < 3; i++) {
        clt_graph *g = begin(x, 2, 64);
        plan_layer(g, logic[i](clt_cast(x[0], CLT_U8), clt_cast(x[1], CLT_U8)), x, 0, caps);
    }
    clt_graph *g = begin(x, 1, 64);
    plan_layer(g, negated(x[0]), x, 0, caps);
    for (int odd = 0; odd < 2; odd++) {
        g = begin(x, 3, 64 - odd);
        clt_value *mask = clt_cast(x[0], CLT_U8);
        plan_layer(g, clt_where(mask, x[1], x[2]), x + 1, 2, caps);
    }
    g = begin(x, 3, 64);
    plan_layer(g, clt_where(clt_lt(x[0], x[1]), clt_scale(x[0], 3), x[2]), x, 0, caps);
}

/* Queries, keys and values; gates; rows of several values. */
void plan_parts(const clt_caps *caps)
{
    for (int odd = 0; odd < 2; odd++) {
        clt_value *x[MOST], *parts[4];
        clt_graph *g = begin(x, 1, 192 - 3 * odd);
        OK(clt_chunk(x[0], 3, 3, parts));
        plan_layer(g, clt_stack(parts, 3, 1), x, 1, caps);
    }
}

/* With images that float4 fits or not; weights for columns and for channels. */
void plan_pair_losses(const clt_caps *caps)
{
    clt_kl_div_options o;
    clt_kl_div_options_init(&o);
    o.log_target = 1;
    for (int odd = 0; odd < 1 + with_tiles; odd++)
        for (int kind = 0; kind < 6; kind++) {
            clt_value *x[MOST], *sum = NULL, *weight;
            clt_graph *g = begin(x, 2, 64 - odd);
            clt_value *w =
                clt_input(g, "w", CLT_F32, 3,
                          kind == 1 ? (int64_t[]){1, 1, 64 - odd} : (int64_t[]){12, 1, 1});
            OK(kind == 0   ? clt_bce_with_logits(x[0], x[1], NULL, &sum, &weight)
               : kind <= 2 ? clt_bce_with_logits(x[0], x[1], w, &sum, &weight)
               : kind == 3 ? clt_huber(x[0], x[1], 1, &sum, &weight)
                           : clt_kl_div(x[0], x[1], kind == 4 ? NULL : &o, &sum, &weight));
            plan_layer(g, sum, x, 2, caps);
        }
}
