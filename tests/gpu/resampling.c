/* Adaptive pooling, upsampling, transposed and three-dimensional convolutions, as in ResNet's head
 * and in U-Nets. */
#include "gpu/plans.h"

static clt_value *images(clt_graph **g, int64_t channels, int64_t size)
{
    OK(clt_graph_create(g));
    return clt_input(*g, "x0", CLT_F32, 4, (int64_t[]){CLT_BATCH, channels, size, size});
}

void plan_resampling(const clt_caps *caps)
{
    clt_graph *g;
    /* Planes that float4 fits or not. */
    for (int i = 0; i < 1 + with_tiles; i++) {
        clt_value *x = images(&g, 512, i ? 7 : 8);
        plan_layer(g, clt_adaptive_avg_pool2d(x, 1, 1), &x, 1, caps);
    }
    for (int i = 0; i < 1 + with_tiles; i++) {
        clt_value *x = images(&g, 64, 20);
        plan_layer(g, clt_adaptive_avg_pool2d(x, 8, i ? 7 : 8), &x, 1, caps);
    }
    clt_upsample2d_options o;
    clt_upsample2d_options_init(&o);
    for (int mode = 0; mode < 2; mode++) {
        clt_value *x = images(&g, 64, 32);
        o.mode = mode ? CLT_UPSAMPLE_BILINEAR : CLT_UPSAMPLE_NEAREST;
        plan_layer(g, clt_upsample2d(x, &o), &x, 1, caps);
    }
    clt_conv_transpose2d_options t;
    clt_conv_transpose2d_options_init(&t);
    t.stride[0] = t.stride[1] = 2;
    clt_value *x[3] = {images(&g, 64, 16)};
    x[1] = clt_input(g, "x1", CLT_F32, 4, (int64_t[]){64, 32, 2, 2});
    x[2] = clt_input(g, "x2", CLT_F32, 1, (int64_t[]){32});
    plan_layer(g, clt_conv_transpose2d(x[0], x[1], x[2], &t), x, 3, caps);
    clt_conv3d_options d;
    clt_conv3d_options_init(&d);
    for (int i = 0; i < 3; i++)
        d.padding[i] = 1;
    OK(clt_graph_create(&g));
    x[0] = clt_input(g, "x0", CLT_F32, 5, (int64_t[]){CLT_BATCH, 16, 16, 16, 16});
    x[1] = clt_input(g, "x1", CLT_F32, 5, (int64_t[]){32, 16, 3, 3, 3});
    x[2] = clt_input(g, "x2", CLT_F32, 1, (int64_t[]){32});
    plan_layer(g, clt_conv3d(x[0], x[1], x[2], &d), x, 3, caps);
}
