/*
 * Vision transformer (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020) of the tiny size
 * (Touvron et al., DeiT, 2020). The names are timm's for VisionTransformer(class_token=False,
 * global_pool="avg"). Patches have 16 pixels, or 4 in images of less than 128 pixels.
 */
#include <stdio.h>

#include "builders.h"

enum { LARGE_IMAGE = 128, LARGE_PATCH = 16, SMALL_PATCH = 4 };

static const double eps = 1e-6; /* as in timm */

typedef struct network {
    clt_graph *graph;
    int64_t width;
    int layers, heads, patch;
} network;

/* Adds a linear layer with timm's initialisation: normal with deviation 0.02, and zero for the
 * bias. */
static clt_value *linear(const network *net, clt_value *x, const char *name, int64_t out)
{
    char text[96];
    if (!x)
        return NULL;
    const int64_t dims[] = {out, clt_value_dim(x, clt_value_rank(x) - 1)};
    const clt_init normal = {CLT_INIT_NORMAL, 0, 0.02}, zero = {CLT_INIT_ZERO, 0, 0};
    snprintf(text, sizeof text, "%s.weight", name);
    clt_value *weight = clt_parameter(net->graph, text, 2, dims, normal);
    snprintf(text, sizeof text, "%s.bias", name);
    clt_value *bias = clt_parameter(net->graph, text, 1, &out, zero);
    return clt_label(clt_linear(x, weight, bias), name);
}

static clt_value *block(const network *net, clt_value *x, int number)
{
    char name[64];
    snprintf(name, sizeof name, "blocks.%d.norm1", number);
    clt_value *y = clt_layer_layer_norm(net->graph, x, name, eps);
    snprintf(name, sizeof name, "blocks.%d.attn.qkv", number);
    y = clt_attention_packed(linear(net, y, name, 3 * net->width), net->heads, 0, NULL);
    snprintf(name, sizeof name, "blocks.%d.attn.proj", number);
    x = clt_add(x, linear(net, y, name, net->width));
    snprintf(name, sizeof name, "blocks.%d.norm2", number);
    y = clt_layer_layer_norm(net->graph, x, name, eps);
    snprintf(name, sizeof name, "blocks.%d.mlp.fc1", number);
    y = clt_gelu(linear(net, y, name, 4 * net->width));
    snprintf(name, sizeof name, "blocks.%d.mlp.fc2", number);
    return clt_add(x, linear(net, y, name, net->width));
}

/* Divides images into patches: [B, C, H, W] -> [B, patches, width]. */
static clt_value *patches(const network *net, clt_value *image)
{
    static const int order[] = {0, 2, 1};
    const int kernel[] = {net->patch, net->patch};
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    o.stride[0] = o.stride[1] = net->patch;
    clt_value *x =
        clt_layer_conv2d_with(net->graph, image, "patch_embed.proj", net->width, kernel, 1, &o);
    if (!x)
        return NULL;
    const int64_t count = clt_value_dim(x, 2) * clt_value_dim(x, 3);
    const int64_t dims[] = {CLT_BATCH, net->width, count}, place[] = {1, count, net->width};
    const clt_init normal = {CLT_INIT_NORMAL, 0, 0.02};
    x = clt_transpose(clt_reshape(x, 3, dims), order);
    return clt_add(x, clt_parameter(net->graph, "pos_embed", 3, place, normal));
}

clt_value *clt_model_vit_tiny(clt_graph *graph, clt_value *image, int64_t classes,
                              const char *arguments)
{
    enum { LAYERS, HEADS, WIDTH, PATCH, COUNT };
    static const int over_patches[] = {1};
    if (!image)
        return NULL;
    const int64_t height = clt_value_dim(image, 2), width = clt_value_dim(image, 3);
    clt_model_argument list[COUNT] = {
        [LAYERS] = {.name = "layers", .whole = 1, .least = 1, .most = 1000, .value = 12},
        [HEADS] = {.name = "heads", .whole = 1, .least = 1, .most = 1024, .value = 3},
        [WIDTH] = {.name = "width", .whole = 1, .least = 1, .most = 65536, .value = 192},
        [PATCH] = {.name = "patch",
                   .whole = 1,
                   .least = 1,
                   .most = 1024,
                   .value = height < LARGE_IMAGE ? SMALL_PATCH : LARGE_PATCH},
    };
    if (clt_model_arguments("vit-tiny", arguments, list, COUNT) != CLT_OK)
        return NULL;
    const network net = {graph, (int64_t)list[WIDTH].value, (int)list[LAYERS].value,
                         (int)list[HEADS].value, (int)list[PATCH].value};
    if (net.width % net.heads || height % net.patch || width % net.patch) {
        clt_model_fail(CLT_INVALID_ARGUMENT,
                       "model vit-tiny: %d heads must divide the width %lld, and patches of %d the "
                       "image of %lldx%lld",
                       net.heads, (long long)net.width, net.patch, (long long)height,
                       (long long)width);
        return NULL;
    }
    static const clt_model_split rows[] = {{"blocks.*.attn.qkv.*", 0, 3},
                                           {"blocks.*.attn.proj.weight", 1, 1},
                                           {"blocks.*.mlp.fc1.*", 0, 1},
                                           {"blocks.*.mlp.fc2.weight", 1, 1},
                                           {NULL, 0, 0}};
    clt_value *x = patches(&net, image);
    for (int i = 0; i < net.layers; i++)
        x = clt_cut(block(&net, x, i));
    if (!x || clt_model_shard(graph, rows) != CLT_OK)
        return NULL;
    x = clt_layer_layer_norm(graph, clt_reduce_mean(x, over_patches, 1, 0), "fc_norm", eps);
    return linear(&net, x, "head", classes);
}
