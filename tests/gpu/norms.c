/* Normalisation. */
#include "gpu/plans.h"
#include "ops/norm/batch_norm.h"
#include <cltrain/ops/norm.h>

/* Rows that fit registers or not, and that float4 fits or not. */
static void plan_row_norm(const clt_caps *caps, int64_t columns, bool rms)
{
    clt_graph *g;
    clt_value *x[3];
    OK(clt_graph_create(&g));
    x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){CLT_BATCH, columns});
    x[1] = clt_input(g, "x1", CLT_F32, 1, &columns);
    x[2] = clt_input(g, "x2", CLT_F32, 1, &columns);
    plan_layer(g,
               rms ? clt_rms_norm(x[0], 1, x[1], CLT_RMS_NORM_EPS)
                   : clt_layer_norm(x[0], 1, x[1], x[2], CLT_NORM_EPS),
               x, rms ? 2 : 3, caps);
}

/* Batch norm of a convolution's result, before a ReLU and, with `add`, an addition of x2. `side` 1:
 * channels are contiguous. */
static void plan_batch_norm(const clt_caps *caps, int64_t side, bool add)
{
    const int64_t channels = 64, dims[] = {CLT_BATCH, channels, side, side};
    const int64_t kernel[] = {channels, channels, 1, 1};
    clt_graph *g;
    clt_value *x[3], *b;
    OK(clt_graph_create(&g));
    x[0] = clt_input(g, "x0", CLT_F32, 4, dims);
    x[1] = clt_input(g, "x1", CLT_F32, 1, &channels);
    x[2] = clt_input(g, "x2", CLT_F32, 4, dims);
    b = clt_input(g, "b", CLT_F32, 1, &channels);
    clt_value *y = clt_conv2d(x[0], clt_parameter(g, "w", 4, kernel, (clt_init){0}), NULL, NULL);
    y = clt_batch_norm(y, x[1], b, NULL, NULL, NULL, NULL);
    plan_layer(g, clt_relu(add ? clt_add(y, x[2]) : y), x, add ? 3 : 2, caps);
}

/* Batch norm in a whole network: with running statistics, in training and evaluation. */
static void plan_running(const clt_caps *caps, clt_plan_mode mode)
{
    const int64_t channels = 64, dims[] = {CLT_BATCH, channels, 1024};
    clt_graph *g;
    OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x0", CLT_F32, 3, dims);
    clt_value *w = clt_parameter(g, "w", 1, &channels, (clt_init){0});
    clt_value *mean = clt_state(g, "mean", CLT_F32, 1, &channels, (clt_init){0});
    clt_value *var = clt_state(g, "var", CLT_F32, 1, &channels, (clt_init){0});
    clt_value *tracked = clt_state(g, "tracked", CLT_I32, 0, NULL, (clt_init){0});
    clt_value *y = clt_output(clt_batch_norm(x, w, w, mean, var, tracked, NULL), "y");
    if (mode == CLT_PLAN_TRAIN)
        clt_output_gradient(y, "dy");
    plan_graph(g, caps, mode, 64);
}

void plan_norms(const clt_caps *caps)
{
    plan_batch_norm(caps, 32, false);
    plan_batch_norm(caps, 1, false);
    plan_batch_norm(caps, 7, true);
    plan_running(caps, CLT_PLAN_TRAIN);
    plan_running(caps, CLT_PLAN_EVALUATE);

    static const int64_t columns[] = {768, 8192, 1023};
    for (int i = 0; i < (with_tiles ? 3 : 2); i++)
        for (int rms = 0; rms < (with_tiles || !i ? 2 : 1); rms++)
            plan_row_norm(caps, columns[i], rms);
}
