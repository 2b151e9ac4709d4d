/* Networks whose parameters are split over tp, and whole numbers to feed them with. */
#ifndef TESTS_TRAIN_SPLIT_NETWORKS_H
#define TESTS_TRAIN_SPLIT_NETWORKS_H

#include "graph/graph.h"
#include <cltrain/cltrain.h>

enum { BATCH = 4 };

typedef void (*build_fn)(clt_graph *graph);

static inline int64_t elements_of(const clt_type *type)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++)
        count *= type->dims[i] < 0 ? -type->dims[i] * BATCH : type->dims[i];
    return count;
}

/* Element i of a tensor: an integer between -2 and 2; of integers: an index below `limit`. */
static inline void fill(const char *name, const clt_type *type, int limit, void *data)
{
    uint32_t state = 2166136261u;
    for (const char *c = name; *c; c++)
        state = (state ^ (uint8_t)*c) * 16777619u;
    for (int64_t i = 0; i < elements_of(type); i++) {
        state = state * 1664525u + 1013904223u;
        const int number = (int)(state >> 20);
        if (type->dtype == CLT_I32)
            ((int32_t *)data)[i] = number % limit;
        else
            ((float *)data)[i] = (float)(number % 5 - 2);
    }
}

static const clt_init zero = {CLT_INIT_ZERO, 0, 0};

static inline clt_value *parameter(clt_graph *g, const char *name, int64_t a, int64_t b)
{
    return clt_parameter(g, name, b ? 2 : 1, (const int64_t[]){a, b}, zero);
}

static inline clt_value *input(clt_graph *g, const char *name, int64_t width)
{
    return clt_input(g, name, CLT_F32, 2, (const int64_t[]){CLT_BATCH, width});
}

static inline void loss(clt_graph *g, clt_value *y, int64_t width)
{
    clt_value *sum, *weight;
    clt_mse(y, input(g, "target", width), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
}

static inline void shard(clt_graph *g, const char *pattern, int dim)
{
    ok(clt_shard(g, pattern, CLT_AXIS_TENSOR, dim, 1, NULL));
}

/* Columns, then rows: one all-reduce forward. Backward needs none, because x has no gradient. */
static inline void two_layers(clt_graph *g)
{
    clt_value *h = clt_relu(
        clt_linear(input(g, "x", 5), parameter(g, "a.weight", 7, 5), parameter(g, "a.bias", 7, 0)));
    loss(g, clt_linear(h, parameter(g, "b.weight", 4, 7), parameter(g, "b.bias", 4, 0)), 4);
    shard(g, "a.*", 0);
    shard(g, "b.weight", 1);
}

/* Two blocks with skips: an all-reduce forward a block, and one backward in the second. */
static inline void blocks(clt_graph *g)
{
    clt_value *x = input(g, "x", 4);
    for (int i = 0; i < 2; i++) {
        const char *const names[2][3] = {{"0.in", "0.out", "0.bias"}, {"1.in", "1.out", "1.bias"}};
        clt_value *h = clt_relu(clt_matmul(x, parameter(g, names[i][0], 4, 6), 0, 0));
        h = clt_add(clt_matmul(h, parameter(g, names[i][1], 6, 4), 0, 0),
                    parameter(g, names[i][2], 4, 0));
        x = clt_add(x, h);
    }
    loss(g, x, 4);
    shard(g, "?.in", 1);
    shard(g, "?.out", 0);
}

/* The last layer has split columns. The loss adds up its part: its sum and weight are reduced, and
 * so is the gradient of the layer before. */
static inline void split_result(clt_graph *g)
{
    clt_value *h = clt_relu(clt_linear(input(g, "x", 4), parameter(g, "a", 5, 4), NULL));
    loss(g, clt_linear(h, parameter(g, "b", 8, 5), parameter(g, "bias", 8, 0)), 8);
    shard(g, "b|bias", 0);
}

/* A transformer block with all that tp splits: vocabulary, heads and hidden units; tied weights. */
static inline void transformer(clt_graph *g)
{
    enum { V = 11, D = 8, T = 4, HEADS = 2 };
    clt_value *tokens = clt_input(g, "tokens", CLT_I32, 2, (const int64_t[]){CLT_BATCH, T});
    clt_value *targets = clt_input(g, "targets", CLT_I32, 2, (const int64_t[]){CLT_BATCH, T});
    clt_attention_options causal;
    clt_value *sum, *weight, *wte = parameter(g, "wte", V, D);
    clt_attention_options_init(&causal);
    causal.is_causal = 1;
    clt_value *x = clt_add(clt_embedding(tokens, wte, CLT_NO_PADDING), parameter(g, "wpe", T, D));
    clt_value *y = clt_layer_norm(x, 1, parameter(g, "n1", D, 0), parameter(g, "b1", D, 0), 1e-5);
    y = clt_add(clt_matmul(y, parameter(g, "qkv", D, 3 * D), 0, 0),
                parameter(g, "qkv_b", 3 * D, 0));
    y = clt_attention_packed(y, HEADS, 0, &causal);
    x = clt_add(x, clt_linear(y, parameter(g, "proj", D, D), parameter(g, "proj_b", D, 0)));
    y = clt_layer_norm(x, 1, parameter(g, "n2", D, 0), parameter(g, "b2", D, 0), 1e-5);
    y = clt_linear(y, parameter(g, "up", 4 * D, D), parameter(g, "up_b", 4 * D, 0));
    x = clt_add(x, clt_linear(clt_gelu_tanh(y), parameter(g, "down", D, 4 * D), NULL));
    clt_value *logits = clt_reshape(clt_linear(x, wte, NULL), 2, (const int64_t[]){-T, V});
    clt_cross_entropy(logits, clt_reshape(targets, 1, (const int64_t[]){-T}), NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    shard(g, "wte|up|up_b", 0);
    shard(g, "proj|down", 1);
    ok(clt_shard(g, "qkv", CLT_AXIS_TENSOR, 1, 3, NULL));
    ok(clt_shard(g, "qkv_b", CLT_AXIS_TENSOR, 0, 3, NULL));
}

/* Attention whose queries are split by heads, and whose only head of keys and values is whole. */
static inline void one_key_head(clt_graph *g)
{
    enum { D = 12, T = 3, HEADS = 6 };
    const int64_t dims[] = {CLT_BATCH, T, D};
    clt_value *sum, *weight, *x = clt_input(g, "x", CLT_F32, 3, dims);
    clt_value *q = clt_linear(x, parameter(g, "q", D, D), NULL);
    clt_value *k = clt_linear(x, parameter(g, "k", D / HEADS, D), NULL);
    clt_value *v = clt_linear(x, parameter(g, "v", D / HEADS, D), NULL);
    clt_value *y = clt_attention(q, k, v, HEADS, NULL);
    y = clt_linear(y, parameter(g, "proj", D, D), NULL);
    clt_mse(y, clt_input(g, "target", CLT_F32, 3, dims), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    shard(g, "q", 0);
    shard(g, "proj", 1);
}

/* Two layers of split columns are joined: the result has two blocks, and so have the next layer's
 * rows. */
static inline void joined(clt_graph *g)
{
    clt_value *x = input(g, "x", 4);
    clt_value *both[] = {clt_linear(x, parameter(g, "a", 6, 4), NULL),
                         clt_relu(clt_linear(x, parameter(g, "b", 6, 4), NULL))};
    loss(g, clt_linear(clt_concat(both, 2, 1), parameter(g, "c", 3, 12), NULL), 3);
    shard(g, "a|b", 0);
    ok(clt_shard(g, "c", CLT_AXIS_TENSOR, 1, 2, NULL));
}

/* A convolution with split channels, before a linear layer of whole rows. */
static inline void flattened(clt_graph *g)
{
    clt_value *x = clt_input(g, "x", CLT_F32, 4, (const int64_t[]){CLT_BATCH, 2, 3, 3});
    clt_value *kernel = clt_parameter(g, "conv", 4, (const int64_t[]){5, 2, 2, 2}, zero);
    clt_value *y = clt_flatten(clt_conv2d(x, kernel, NULL, NULL));
    loss(g, clt_linear(y, parameter(g, "a", 3, 20), NULL), 3);
    shard(g, "conv", 0);
}

/* A softmax over the split units. */
static inline void softmax_over(clt_graph *g, clt_value *(*softmax)(clt_value *x, int axis))
{
    clt_value *h = clt_linear(input(g, "x", 4), parameter(g, "a", 5, 4), NULL);
    loss(g, clt_linear(softmax(h, 1), parameter(g, "b", 3, 5), NULL), 3);
    shard(g, "a", 0);
    shard(g, "b", 1);
}

static inline void softmax_of_parts(clt_graph *g)
{
    softmax_over(g, clt_softmax);
}

static inline void log_softmax_of_parts(clt_graph *g)
{
    softmax_over(g, clt_log_softmax);
}

#endif
