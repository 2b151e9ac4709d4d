/* Products of matrices and convolutions. */
#include "gpu/plans.h"

/* Products large and small, with rows that float4 fits or not. */
void plan_products(const clt_caps *caps)
{
    enum { ALL = 8, FEW = 2 };
    static const int64_t sizes[ALL][3] = {{4096, 4096, 4096}, {1021, 1019, 1031}, {256, 128, 800},
                                          {256, 3072, 768},   {64, 10, 500},      {63, 65, 4097},
                                          {1024, 1024, 1024}, {8, 4096, 4096}};
    const size_t count = with_tiles ? ALL : FEW;
    for (size_t i = 0; i < count; i++)
        /* Gradients are products of the other kinds. */
        for (int t = 0; t < (with_tiles ? 4 : 1); t++) {
            const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            const int ta = t & 1, tb = t >> 1;
            clt_graph *g;
            clt_value *x[2];
            OK(clt_graph_create(&g));
            x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){ta ? k : m, ta ? m : k});
            x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){tb ? n : k, tb ? k : n});
            plan_layer(g, clt_matmul(x[0], x[1], ta, tb), x, 2, caps);
        }
    for (size_t i = 0; i < count; i++) {
        clt_graph *g;
        clt_value *x[3];
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){CLT_BATCH, sizes[i][2]});
        x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){sizes[i][1], sizes[i][2]});
        x[2] = clt_input(g, "x2", CLT_F32, 1, (int64_t[]){sizes[i][1]});
        plan_layer(g, clt_relu(clt_linear(x[0], x[1], x[2])), x, 3, caps);
    }
}

/* Products along a long K with few results: of a vector, a layer with few outputs, and gradients of
 * weights with few outputs. */
void plan_long_products(const clt_caps *caps)
{
    clt_graph *g;
    clt_value *x[2];
    OK(clt_graph_create(&g));
    x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){1, 4096});
    x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){64, 4096});
    plan_layer(g, clt_matmul(x[0], x[1], 0, 1), x, 2, caps);
    OK(clt_graph_create(&g));
    x[0] = clt_input(g, "x0", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4097});
    x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){65, 4097});
    plan_layer(g, clt_linear(x[0], x[1], NULL), x, 2, caps);
    static const int64_t layers[][2] = {{1, 64}, {32, 64}, {1, 1024}}; /* outputs, inputs */
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        OK(clt_graph_create(&g));
        x[0] = clt_input(g, "x0", CLT_F32, 3, (int64_t[]){CLT_BATCH, 1024, layers[i][1]});
        x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){layers[i][0], layers[i][1]});
        plan_layer(g, clt_linear(x[0], x[1], NULL), x, 2, caps);
    }
}

enum { ONE = 6 }; /* this shape has one image, so that its sums are divided */

/* Layers of LeNet, ResNet, MobileNet and ConvNeXt: channels, size, output channels, kernel, stride,
 * groups. */
void plan_convolutions(const clt_caps *caps)
{
    static const int shapes[][6] = {
        {1, 28, 20, 5, 1, 1},   {20, 12, 50, 5, 1, 1},     {3, 224, 64, 7, 2, 1},
        {64, 56, 64, 3, 1, 1},  {32, 56, 32, 3, 1, 32},    {144, 56, 144, 3, 2, 144},
        {512, 7, 512, 3, 1, 1}, {128, 28, 128, 3, 1, 1},   {256, 14, 512, 1, 2, 1},
        {512, 7, 512, 3, 1, 1}, {64, 28, 64, 3, 1, 4},     {96, 14, 96, 3, 1, 96},
        {64, 28, 64, 3, 2, 64}, {240, 28, 240, 5, 1, 240}, {96, 56, 96, 7, 1, 96}};
    for (size_t i = 0; i < (with_tiles ? sizeof shapes / sizeof *shapes : ONE + 1); i++) {
        const int *s = shapes[i];
        clt_conv2d_options o;
        clt_graph *g;
        clt_value *x[3];
        clt_conv2d_options_init(&o);
        o.stride[0] = o.stride[1] = s[4];
        o.padding[0] = o.padding[1] = i < 2 ? 0 : s[3] / 2;
        o.groups = s[5];
        OK(clt_graph_create(&g));
        x[0] =
            clt_input(g, "x0", CLT_F32, 4, (int64_t[]){i == ONE ? 1 : CLT_BATCH, s[0], s[1], s[1]});
        x[1] = clt_input(g, "x1", CLT_F32, 4, (int64_t[]){s[2], s[0] / s[5], s[3], s[3]});
        x[2] = clt_input(g, "x2", CLT_F32, 1, (int64_t[]){s[2]});
        plan_layer(g, clt_relu(clt_conv2d(x[0], x[1], x[2], &o)), x, 3, caps);
    }
}
