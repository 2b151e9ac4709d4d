/* Operators that move, convert, pool and compute single elements. */
#include "gpu/plans.h"

/* Pooling of LeNet, ResNet and Inception, with rows that float4 fits or not. */
void plan_pooling(const clt_caps *caps)
{
    static const int shapes[][4] = {{24, 2, 2, 0}, {112, 3, 2, 1}, {35, 3, 2, 0}};
    for (size_t i = 0; i < (with_tiles ? 3 : 1); i++)
        for (int mean = 0; mean < 2; mean++) {
            const int *s = shapes[i];
            clt_pool2d_options o;
            clt_graph *g;
            clt_pool2d_options_init(&o);
            o.kernel[0] = o.kernel[1] = s[1];
            o.stride[0] = o.stride[1] = s[2];
            o.padding[0] = o.padding[1] = s[3];
            OK(clt_graph_create(&g));
            clt_value *x = clt_input(g, "x0", CLT_F32, 4, (int64_t[]){CLT_BATCH, 64, s[0], s[0]});
            plan_layer(g, (mean ? clt_avg_pool2d : clt_max_pool2d)(x, &o), &x, 1, caps);
        }
}

/* Transpositions, and chains with broadcast operands. */
void plan_moves(const clt_caps *caps)
{
    for (int odd = 0; odd < 1 + with_tiles; odd++) {
        clt_graph *g;
        clt_value *x[3];
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 3, (int64_t[]){CLT_BATCH, 128 + odd, 64});
        plan_layer(g, clt_transpose(x[0], (int[]){0, 2, 1}), x, 1, caps);
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 4, (int64_t[]){CLT_BATCH, 64, 8, 8 + odd});
        x[1] = clt_input(g, "x1", CLT_F32, 4, (int64_t[]){1, 64, 1, 1});
        x[2] = clt_input(g, "x2", CLT_F32, 4, (int64_t[]){CLT_BATCH, 64, 8, 8 + odd});
        plan_layer(g, clt_gelu(clt_add(clt_mul(x[0], x[1]), x[2])), x, 3, caps);
    }
}

/* Begins a graph with images of `width` columns. */
static clt_graph *begin(clt_value **x, clt_dtype dtype, int64_t width)
{
    clt_graph *g;
    OK(clt_graph_create(&g));
    *x = clt_input(g, "x0", dtype, 4, (int64_t[]){CLT_BATCH, 12, 16, width});
    return g;
}

/* Operators that place elements: of heads before and behind attention, of two branches, of a part
 * and of a border, with rows that 16 bytes fit or not. */
void plan_places(const clt_caps *caps)
{
    for (int odd = 0; odd < 2; odd++) {
        const int64_t width = 64 - odd, none[4] = {0}, start[4] = {0, 4, 0, 0};
        const int64_t end[4] = {CLT_TO_END, 8, CLT_TO_END, CLT_TO_END}, step[4] = {1, 1, 2, 1};
        const int64_t border[4] = {0, 0, 4, odd ? 1 : 4};
        clt_value *x[2];
        clt_graph *g = begin(&x[0], CLT_F32, width);
        plan_layer(g, clt_transpose(x[0], (int[]){0, 2, 1, 3}), x, 1, caps);
        g = begin(&x[0], CLT_F32, width);
        x[1] = clt_input(g, "x1", CLT_F32, 4, (int64_t[]){CLT_BATCH, 5, 16, width});
        plan_layer(g, clt_concat(x, 2, 1), x, 2, caps);
        g = begin(&x[0], CLT_F32, width);
        plan_layer(g, clt_slice(x[0], start, end, NULL), x, 1, caps);
        g = begin(&x[0], CLT_F32, width);
        plan_layer(g, clt_slice(x[0], none, end, step), x, 1, caps);
        g = begin(&x[0], CLT_F32, width);
        plan_layer(g, clt_pad(x[0], border, border, 0), x, 1, caps);
        g = begin(&x[0], CLT_F32, width);
        x[1] = clt_parameter(g, "w", 3, (int64_t[]){12, 16, width}, (clt_init){0});
        x[0] = clt_output(clt_dropout(clt_add(x[0], x[1]), 0.1), "y");
        clt_output_gradient(x[0], "dy");
        plan_graph(g, caps, CLT_PLAN_TRAIN, 64);
    }
}

/* Conversions between all element types. */
void plan_casts(const clt_caps *caps)
{
    static const clt_dtype types[] = {CLT_F32, CLT_F16, CLT_BF16, CLT_I32, CLT_U8, CLT_F64};
    for (int i = 0; i < 36; i++) {
        const clt_dtype from = types[i / 6], to = types[i % 6];
        clt_value *x;
        if (from == to || ((from == CLT_F64 || to == CLT_F64) && !caps->fp64) ||
            (!with_tiles && from != CLT_F32 && to != CLT_F32))
            continue;
        for (int odd = 0; odd < 1 + (with_tiles || i == 2); odd++) {
            clt_graph *g = begin(&x, from, 64 - odd);
            plan_layer(g, clt_cast(x, to), NULL, 0, caps);
        }
    }
}

static clt_value *product(clt_value *x)
{
    return clt_mul(x, x);
}

static clt_value *quotient(clt_value *x)
{
    return clt_div(x, x);
}

static clt_value *difference(clt_value *x)
{
    return clt_sub(x, x);
}

static clt_value *scaled(clt_value *x)
{
    return clt_scale(x, 2);
}

static clt_value *row_sum(clt_value *x)
{
    return clt_reduce_sum(x, (int[]){3}, 1, 1);
}

static clt_value *leaky(clt_value *x)
{
    return clt_leaky_relu(x, 0.1);
}

/* Each activation in a graph of its own, with its gradient, because a chain of them becomes one
 * kernel. */
void plan_activations(const clt_caps *caps)
{
    static clt_value *(*const all[])(clt_value *) = {
        clt_relu, leaky,    clt_sigmoid, clt_tanh, clt_gelu, clt_gelu_tanh,
        product,  quotient, difference,  scaled,   row_sum,  clt_copy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        clt_value *x;
        clt_graph *g = begin(&x, CLT_F32, 64);
        plan_layer(g, all[i](x), &x, 1, caps);
    }
}
