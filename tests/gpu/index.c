/* Operators that pick elements by indices, and that add to such elements. */
#include "gpu/plans.h"

static clt_value *numbers(clt_graph *g, int rank, int64_t first, int64_t second)
{
    return clt_input(g, "index", CLT_I32, rank, (int64_t[]){first, second});
}

/* A table of rows whose gradient has 16 bits. `tied`: the table is a linear layer's weight too. */
static void plan_table(int64_t width, bool tied, const clt_caps *caps)
{
    const clt_init zero = {.kind = CLT_INIT_ZERO};
    clt_graph *g;
    OK(clt_graph_create(&g));
    clt_value *w = clt_parameter(g, "w", 2, (int64_t[]){1000, width}, zero);
    clt_value *y = clt_scale(clt_embedding(numbers(g, 2, CLT_BATCH, 64), w, CLT_NO_PADDING), 1);
    if (tied)
        y = clt_linear(y, w, NULL);
    clt_output(y, "y");
    clt_output_gradient(y, "dy");
    plan_graph(g, caps, CLT_PLAN_TRAIN, 64);
}

/* GPT-2's tokens, slices and single elements, of sizes that float4 fits or not. */
void plan_indices(const clt_caps *caps)
{
    for (int i = 0; i < 8; i++) {
        kept_in = i & 4 ? CLT_F16 : CLT_BF16;
        plan_table(32 + (i & 1), i & 2, caps);
    }
    kept_in = CLT_F32;
    for (int odd = 0; odd < 2; odd++) {
        clt_graph *g;
        clt_value *x[2];
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){50257, 768 + odd});
        plan_layer(g, clt_embedding(numbers(g, 2, CLT_BATCH, 64), x[0], CLT_NO_PADDING), x, 1,
                   caps);
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 3, (int64_t[]){CLT_BATCH, 64, 32 + odd});
        plan_layer(g, clt_index_select(x[0], 1, numbers(g, 1, 16, 0)), x, 1, caps);
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){1000, 32 + odd});
        x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){CLT_BATCH, 32 + odd});
        plan_layer(g, clt_index_add(x[0], 0, numbers(g, 1, CLT_BATCH, 0), x[1]), x, 2, caps);
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 3, (int64_t[]){4, 1024, 768 + odd});
        x[1] = clt_input(g, "x1", CLT_F32, 3, (int64_t[]){4, 8, 768 + odd});
        plan_layer(g, clt_index_copy(x[0], 1, numbers(g, 1, 8, 0), x[1]), x, 2, caps);
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){CLT_BATCH, 1000 + odd});
        plan_layer(g, clt_gather(x[0], 1, numbers(g, 2, CLT_BATCH, 4 + odd)), x, 1, caps);
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){CLT_BATCH, 1000 + odd});
        x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4 + odd});
        plan_layer(g, clt_scatter_add(x[0], 1, numbers(g, 2, CLT_BATCH, 4 + odd), x[1]), x, 2,
                   caps);
    }
}
