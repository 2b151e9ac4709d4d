/*
 * U-Net (Ronneberger et al., 2015) from fields x [C, H, W] to y [D, H, W], with batch norm and
 * transposed convolutions. The names are those of the widely used Pytorch-UNet: inc, down1..,
 * up1.., outc. Height and width must be multiples of 2 to the number of levels. "unet:sync"
 * synchronises batch norm over all devices.
 */
#include <stdio.h>

#include "builders.h"

enum { MOST_LEVELS = 8 };

typedef struct network {
    clt_graph *graph;
    int levels, synchronised;
    int64_t width;
} network;

/* Adds two 3x3 convolutions without bias, each with batch norm and ReLU. */
static clt_value *twice(const network *net, clt_value *x, const char *name, int64_t out)
{
    static const int kernel[] = {3, 3};
    clt_conv2d_options o;
    clt_batch_norm_options norm;
    clt_conv2d_options_init(&o);
    clt_batch_norm_options_init(&norm);
    o.padding[0] = o.padding[1] = 1;
    norm.synchronised = net->synchronised;
    for (int i = 0; i < 2; i++) {
        char part[96];
        snprintf(part, sizeof part, "%s.double_conv.%d", name, 3 * i);
        x = clt_layer_conv2d_with(net->graph, x, part, out, kernel, 0, &o);
        snprintf(part, sizeof part, "%s.double_conv.%d", name, 3 * i + 1);
        x = clt_relu(clt_layer_batch_norm(net->graph, x, part, &norm));
    }
    return x;
}

static clt_value *up(const network *net, clt_value *x, clt_value *beside, int level, int64_t out)
{
    char name[96];
    clt_conv_transpose2d_options o;
    clt_conv_transpose2d_options_init(&o);
    o.stride[0] = o.stride[1] = 2;
    snprintf(name, sizeof name, "up%d.up", level);
    clt_value *both[] = {beside, clt_layer_conv_transpose2d(net->graph, x, name, out, 2, &o)};
    snprintf(name, sizeof name, "up%d.conv", level);
    return twice(net, clt_concat(both, 2, 1), name, out);
}

static clt_value *build(const network *net, clt_value *x, int64_t out)
{
    static const int kernel[] = {1, 1};
    clt_value *beside[MOST_LEVELS];
    const int levels = net->levels;
    const int64_t width = net->width;
    char name[32];
    x = twice(net, x, "inc", width);
    for (int i = 0; i < levels; i++) {
        beside[i] = x;
        snprintf(name, sizeof name, "down%d.maxpool_conv.1", i + 1);
        x = clt_cut(twice(net, clt_max_pool2d(x, NULL), name, width << (i + 1)));
    }
    for (int i = 0; i < levels; i++)
        x = clt_cut(up(net, x, beside[levels - 1 - i], i + 1, width << (levels - 1 - i)));
    /* Axis tp splits each pair of convolutions in its middle. */
    static const clt_model_split rows[] = {{"*.double_conv.0.weight|*.double_conv.1.*", 0, 1},
                                           {"*.double_conv.3.weight", 1, 1},
                                           {NULL, 0, 0}};
    if (!x || clt_model_shard(net->graph, rows) != CLT_OK)
        return NULL;
    return clt_layer_conv2d_with(net->graph, x, "outc.conv", out, kernel, 1, NULL);
}

clt_status clt_model_unet(const char *model, const clt_model_input *in, const char *arguments,
                          clt_graph *graph)
{
    enum { LEVELS, WIDTH, SYNC, COUNT };
    const clt_model_field *x = clt_model_field_find(in, "x"), *y = clt_model_field_find(in, "y");
    clt_model_argument list[COUNT] = {
        [LEVELS] = {.name = "levels", .whole = 1, .least = 1, .most = MOST_LEVELS, .value = 4},
        [WIDTH] = {.name = "width", .whole = 1, .least = 1, .most = 4096, .value = 64},
        [SYNC] = {.name = "sync", .word = 1},
    };
    MODEL_TRY(clt_model_arguments(model, arguments, list, COUNT));
    if (!x || !y || x->rank != 3 || y->rank != 3 || x->dims[1] != y->dims[1] ||
        x->dims[2] != y->dims[2])
        return clt_model_misfit(model, in, "for fields x [C,H,W] and y [D,H,W]");
    const network net = {graph, (int)list[LEVELS].value, list[SYNC].given,
                         (int64_t)list[WIDTH].value};
    for (int d = 1; d < 3; d++)
        if (x->dims[d] % ((int64_t)1 << net.levels))
            return clt_model_fail(CLT_INVALID_ARGUMENT,
                                  "model %s: %lld is not a multiple of %d, as %d levels need; "
                                  "unet:levels=N",
                                  model, (long long)x->dims[d], 1 << net.levels, net.levels);
    clt_value *made = build(&net, clt_model_split_rows(clt_model_input_of(graph, x)), y->dims[0]);
    return clt_model_regress(graph, made, y);
}
