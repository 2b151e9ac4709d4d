/*
 * Residual networks (He et al., "Deep Residual Learning for Image Recognition", 2015) with
 * torchvision's names. As in torchvision, the 3x3 convolution of a bottleneck has stride 2. Images
 * of less than 64 pixels get the paper's stem for CIFAR: one 3x3 convolution instead of a 7x7
 * convolution with stride 2 and a pooling. "resnet18:width=W" sets the channels of the first stage
 * (64), and the others in proportion. "blocks=N" sets the blocks of each of the four stages.
 */
#include <math.h>
#include <stdio.h>

#include "builders.h"

enum { SMALL_IMAGE = 64, STAGES = 4 };

typedef struct network {
    clt_graph *graph;
    int64_t width;    /* channels of the first stage */
    int bottleneck;   /* blocks are 1x1, 3x3, 1x1 instead of two 3x3 */
    int synchronised; /* batch norm takes means over all devices */
} network;

/* Joins "layer1.0" and "conv1" to "layer1.0.conv1". */
static const char *join(char text[96], const char *block, const char *part)
{
    snprintf(text, 96, "%s%s%s", block, *block ? "." : "", part);
    return text;
}

/* Adds a convolution without bias. The initialisation is He et al.'s for the number of outputs, as
 * in torchvision. */
static clt_value *convolution(const network *net, clt_value *x, const char *name, int64_t out,
                              int kernel, int stride)
{
    if (!x)
        return NULL;
    char weight_name[112];
    snprintf(weight_name, sizeof weight_name, "%s.weight", name);
    const int64_t dims[] = {out, clt_value_dim(x, 1), kernel, kernel};
    const clt_init init = {CLT_INIT_NORMAL, 0, sqrt(2 / (double)(out * kernel * kernel))};
    clt_value *weight = clt_parameter(net->graph, weight_name, 4, dims, init);
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    o.stride[0] = o.stride[1] = stride;
    o.padding[0] = o.padding[1] = kernel / 2;
    return clt_label(clt_conv2d(x, weight, NULL, &o), name);
}

static clt_value *norm(const network *net, clt_value *x, const char *name)
{
    clt_batch_norm_options o;
    clt_batch_norm_options_init(&o);
    o.synchronised = net->synchronised;
    return clt_layer_batch_norm(net->graph, x, name, &o);
}

/* Adds the convolution "PREFIX.convN" and the batch norm "PREFIX.bnN". */
static clt_value *convolve(const network *net, clt_value *x, const char *prefix, int number,
                           int64_t out, int kernel, int stride)
{
    char part[16], name[96];
    snprintf(part, sizeof part, "conv%d", number);
    x = convolution(net, x, join(name, prefix, part), out, kernel, stride);
    snprintf(part, sizeof part, "bn%d", number);
    return norm(net, x, join(name, prefix, part));
}

static clt_value *block(const network *net, clt_value *x, const char *name, int64_t width,
                        int stride)
{
    char part[96];
    if (!x)
        return NULL;
    const int64_t out = net->bottleneck ? 4 * width : width;
    clt_value *shortcut = x, *y;
    if (net->bottleneck) {
        y = clt_relu(convolve(net, x, name, 1, width, 1, 1));
        y = clt_relu(convolve(net, y, name, 2, width, 3, stride));
        y = convolve(net, y, name, 3, out, 1, 1);
    } else {
        y = clt_relu(convolve(net, x, name, 1, width, 3, stride));
        y = convolve(net, y, name, 2, out, 3, 1);
    }
    if (stride != 1 || clt_value_dim(x, 1) != out) {
        shortcut = convolution(net, x, join(part, name, "downsample.0"), out, 1, stride);
        shortcut = norm(net, shortcut, join(part, name, "downsample.1"));
    }
    return clt_relu(clt_add(y, shortcut));
}

static clt_value *stem(const network *net, clt_value *image, int small)
{
    clt_pool2d_options pool;
    clt_pool2d_options_init(&pool);
    pool.kernel[0] = pool.kernel[1] = 3;
    pool.stride[0] = pool.stride[1] = 2;
    pool.padding[0] = pool.padding[1] = 1;
    clt_value *x = clt_model_split_rows(image);
    x = clt_relu(convolve(net, x, "", 1, net->width, small ? 3 : 7, small ? 1 : 2));
    return small ? x : clt_max_pool2d(x, &pool);
}

/* Axis tp splits each block in its middle: output channels of a convolution with its batch norm,
 * and with them input channels of the next one. */
static clt_status split(const network *net)
{
    static const clt_model_split basic[] = {
        {"layer*.conv1.weight|layer*.bn1.*", 0, 1}, {"layer*.conv2.weight", 1, 1}, {NULL, 0, 0}};
    static const clt_model_split bottleneck[] = {
        {"layer*.conv2.weight|layer*.bn2.*", 0, 1}, {"layer*.conv3.weight", 1, 1}, {NULL, 0, 0}};
    MODEL_TRY(clt_graph_status(net->graph));
    return clt_model_shard(net->graph, net->bottleneck ? bottleneck : basic);
}

static clt_value *build(clt_graph *graph, clt_value *image, int64_t classes, const char *arguments,
                        int bottleneck, const int blocks[STAGES])
{
    enum { SMALL, IMAGENET, SYNC, WIDTH, BLOCKS, COUNT };
    clt_model_argument list[COUNT] = {
        [SMALL] = {.name = "small", .word = 1, .choice = 1},
        [IMAGENET] = {.name = "imagenet", .word = 1, .choice = 1},
        [SYNC] = {.name = "sync", .word = 1},
        [WIDTH] = {.name = "width", .whole = 1, .least = 1, .most = 4096, .value = 64},
        [BLOCKS] = {.name = "blocks", .whole = 1, .least = 1, .most = 100}};
    char name[32];
    if (clt_model_arguments("resnet", arguments, list, COUNT) != CLT_OK)
        return NULL;
    const network net = {graph, (int64_t)list[WIDTH].value, bottleneck, list[SYNC].given};
    const int small = list[SMALL].given ||
                      (!list[IMAGENET].given && image && clt_value_dim(image, 2) < SMALL_IMAGE);
    clt_value *x = stem(&net, image, small);
    for (int s = 0; s < STAGES; s++) {
        const int count = list[BLOCKS].given ? (int)list[BLOCKS].value : blocks[s];
        for (int b = 0; b < count; b++) {
            snprintf(name, sizeof name, "layer%d.%d", s + 1, b);
            x = clt_cut(block(&net, x, name, net.width << s, s && !b ? 2 : 1));
        }
    }
    if (split(&net) != CLT_OK)
        return NULL;
    x = clt_flatten(clt_adaptive_avg_pool2d(x, 1, 1));
    return clt_layer_linear(graph, x, "fc", classes);
}

clt_value *clt_model_resnet18(clt_graph *graph, clt_value *image, int64_t classes,
                              const char *arguments)
{
    static const int blocks[STAGES] = {2, 2, 2, 2};
    return build(graph, image, classes, arguments, 0, blocks);
}

clt_value *clt_model_resnet34(clt_graph *graph, clt_value *image, int64_t classes,
                              const char *arguments)
{
    static const int blocks[STAGES] = {3, 4, 6, 3};
    return build(graph, image, classes, arguments, 0, blocks);
}

clt_value *clt_model_resnet50(clt_graph *graph, clt_value *image, int64_t classes,
                              const char *arguments)
{
    static const int blocks[STAGES] = {3, 4, 6, 3};
    return build(graph, image, classes, arguments, 1, blocks);
}
