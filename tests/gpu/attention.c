/* Attention and rotary embedding. */
#include "gpu/plans.h"

/* A training step with dropout of the weights and a learnt position bias. */
static void plan_training(const clt_caps *caps, int64_t size, double dropout)
{
    clt_graph *g;
    clt_attention_options o;
    const int64_t dims[] = {CLT_BATCH, 128, 3 * 4 * size}, bias[] = {4, 128, 128};
    OK(clt_graph_create(&g));
    clt_attention_options_init(&o);
    o.dropout = dropout;
    o.attn_mask = clt_parameter(g, "bias", 3, bias, (clt_init){0});
    clt_value *shift = clt_parameter(g, "shift", 1, dims + 2, (clt_init){0});
    clt_value *y =
        clt_attention_packed(clt_add(clt_input(g, "x0", CLT_F32, 3, dims), shift), 4, 0, &o);
    if (!clt_output_gradient(clt_output(y, "y"), "dy"))
        stop("training of attention");
    plan_graph(g, caps, CLT_PLAN_TRAIN, 64);
}

/* Heads of sizes for which there are tiles, in rows that float4 fits, and a head of another
 * size. */
void plan_attention(const clt_caps *caps)
{
    static const int64_t sizes[] = {64, 128, 32, 96};
    for (size_t i = 0; i < (with_tiles ? sizeof sizes / sizeof *sizes : 3); i++) {
        clt_graph *g;
        clt_attention_options o;
        clt_rotary_options turned;
        OK(clt_graph_create(&g));
        clt_attention_options_init(&o);
        clt_rotary_options_init(&turned);
        o.is_causal = 1;
        turned.size = sizes[i];
        turned.heads = 8;
        clt_value *x =
            clt_input(g, "x0", CLT_F32, 3, (int64_t[]){CLT_BATCH, 256, 3 * 4 * sizes[i]});
        clt_value *y = clt_attention_packed(clt_rotary(x, &turned), 4, 0, &o);
        plan_layer(g, y, &x, 1, caps);
        plan_training(caps, sizes[i], 0.1);
    }
    plan_training(caps, 64, 0);
    clt_graph *g;
    clt_value *x[3];
    OK(clt_graph_create(&g));
    for (int i = 0; i < 3; i++)
        x[i] = clt_input(g, (const char *[]){"x0", "x1", "x2"}[i], CLT_F32, 4,
                         (int64_t[]){CLT_BATCH, i ? 2 : 4, 128, 64});
    plan_layer(g, clt_scaled_dot_product_attention(x[0], x[1], x[2], NULL), x, 3, caps);
    /* One query of a decoder, for which CPUs have a variant. */
    OK(clt_graph_create(&g));
    for (int i = 0; i < 3; i++)
        x[i] = clt_input(g, (const char *[]){"x0", "x1", "x2"}[i], CLT_F32, 4,
                         (int64_t[]){CLT_BATCH, 4, i ? 128 : 1, 64});
    plan_layer(g, clt_scaled_dot_product_attention(x[0], x[1], x[2], NULL), x, 3, caps);
}
