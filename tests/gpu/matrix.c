/* Layers in 16 bits on GPUs with matrix units. */
#include "gpu/plans.h"

static const clt_dtype types[] = {CLT_BF16, CLT_F16};

/* Plans a layer whose operands and result other layers make and read, so that they are in 16 bits.
 */
static void plan_between(clt_graph *g, clt_value *y, clt_value **x, int n, const clt_caps *caps)
{
    plan_layer(g, clt_scale(y, 2), x, n, caps);
}

/* Products large and small, whose rows vectors fit or not. Gradients are products of the other
 * kinds. */
static void plan_linear(const clt_caps *caps)
{
    static const int64_t sizes[][3] = {{4096, 4096, 4096}, {64, 768, 3072}, {64, 1019, 1031}};
    for (size_t i = 0; i < (with_tiles ? 3 : 1); i++) {
        const int64_t *s = sizes[i];
        clt_graph *g;
        clt_value *x[3];
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){-s[0] / 64, s[2]});
        x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){s[1], s[2]});
        x[2] = clt_input(g, "x2", CLT_F32, 1, (int64_t[]){s[1]});
        plan_between(g, clt_relu(clt_linear(clt_scale(x[0], 1), x[1], x[2])), x, 3, caps);
    }
}

/* Channels, size, output channels, kernel, stride, groups. The last one has few pixels, so that its
 * sums are divided. */
static void plan_conv(const clt_caps *caps)
{
    static const int shapes[][6] = {{64, 56, 64, 3, 1, 1},
                                    {512, 4, 512, 3, 1, 1},
                                    {256, 14, 512, 1, 2, 1},
                                    {64, 28, 64, 3, 1, 4},
                                    {20, 12, 50, 5, 1, 1}};
    for (size_t i = 0; i < (with_tiles ? sizeof shapes / sizeof *shapes : 2); i++) {
        const int *s = shapes[i];
        clt_conv2d_options o;
        clt_graph *g;
        clt_value *x[3];
        clt_conv2d_options_init(&o);
        o.stride[0] = o.stride[1] = s[4];
        o.padding[0] = o.padding[1] = s[3] / 2;
        o.groups = s[5];
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 4, (int64_t[]){CLT_BATCH, s[0], s[1], s[1]});
        x[1] = clt_input(g, "x1", CLT_F32, 4, (int64_t[]){s[2], s[0] / s[5], s[3], s[3]});
        x[2] = clt_input(g, "x2", CLT_F32, 1, (int64_t[]){s[2]});
        plan_between(g, clt_relu(clt_conv2d(clt_scale(x[0], 1), x[1], x[2], &o)), x, 3, caps);
    }
}

static void plan_heads(const clt_caps *caps)
{
    static const int64_t sizes[] = {64, 128, 32, 96};
    for (size_t i = 0; i < (with_tiles ? 4 : 2); i++) {
        clt_graph *g;
        clt_attention_options o;
        OK(clt_graph_create(&g));
        clt_attention_options_init(&o);
        o.is_causal = 1;
        clt_value *x =
            clt_input(g, "x0", CLT_F32, 3, (int64_t[]){CLT_BATCH, 256, 3 * 4 * sizes[i]});
        plan_between(g, clt_attention_packed(clt_scale(x, 1), 4, 0, &o), &x, 1, caps);
    }
}

/* The same with q, k and v apart, and fewer heads of k and v. */
static void plan_apart(const clt_caps *caps)
{
    clt_graph *g;
    clt_value *x[3], *in[3];
    OK(clt_graph_create(&g));
    for (int i = 0; i < 3; i++) {
        x[i] = clt_input(g, (const char *[]){"x0", "x1", "x2"}[i], CLT_F32, 4,
                         (int64_t[]){CLT_BATCH, i ? 2 : 4, 128, 64});
        in[i] = clt_scale(x[i], 1);
    }
    plan_between(g, clt_scaled_dot_product_attention(in[0], in[1], in[2], NULL), x, 3, caps);
}

void plan_matrix_units(const clt_caps *caps)
{
    for (int i = 0; i < 2; i++) {
        kept_in = types[i];
        plan_linear(caps);
        plan_conv(caps);
        plan_heads(caps);
        plan_apart(caps);
    }
    kept_in = CLT_F32;
}
