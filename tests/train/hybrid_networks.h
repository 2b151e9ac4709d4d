/* Networks with cuts whose steps are exact on whole numbers, for meshes of several axes. */
#ifndef TESTS_TRAIN_HYBRID_NETWORKS_H
#define TESTS_TRAIN_HYBRID_NETWORKS_H

#include "support/convolution.h"
#include "train/exact_steps.h"

enum { HEIGHT = 8, LENGTH = 8, HEADS = 2 };

static inline clt_value *divided_input(clt_graph *g, int rank, const int64_t *dims, clt_axis axis,
                                       int dim)
{
    clt_value *x = clt_input(g, "x", CLT_F32, rank, dims);
    ok(clt_shard_value(x, axis, dim));
    return x;
}

static inline void distance(clt_graph *g, clt_value *y)
{
    clt_value *sum, *weight;
    clt_output(y, "y");
    ok(clt_graph_status(g));
    clt_mse(y, clt_input(g, "target", CLT_F32, y->type.rank, y->type.dims), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
}

static inline clt_value *bias_of(clt_graph *g, const char *name, int64_t width)
{
    char bias[32];
    snprintf(bias, sizeof bias, "%s.bias", name);
    return parameter(g, bias, width, 0);
}

/* Two blocks with skips, for dp, tp and pp. */
static inline void two_blocks(clt_graph *g)
{
    clt_value *x = input(g, "x", 4);
    for (int i = 0; i < 2; i++) {
        const char *const in = i ? "1.in" : "0.in", *const out = i ? "1.out" : "0.out";
        clt_value *h =
            clt_relu(clt_add(clt_matmul(x, parameter(g, in, 4, 6), 0, 0), bias_of(g, in, 6)));
        h = clt_add(clt_matmul(h, parameter(g, out, 6, 4), 0, 0), bias_of(g, out, 4));
        x = i ? clt_add(x, h) : clt_cut(clt_add(x, h));
    }
    distance(g, x);
    shard(g, "?.in", 1);
    shard(g, "?.in.bias", 0);
    shard(g, "?.out", 0);
}

/* Rows of a table for words, divided along tp; for dp, tp and pp. */
static inline void words(clt_graph *g)
{
    clt_value *x = clt_input(g, "word", CLT_I32, 1, (const int64_t[]){CLT_BATCH});
    x = clt_embedding(x, parameter(g, "table", 3, 4), CLT_NO_PADDING);
    x = clt_cut(clt_relu(clt_linear(x, parameter(g, "a", 6, 4), bias_of(g, "a", 6))));
    distance(g, clt_linear(x, parameter(g, "b", 4, 6), NULL));
    shard(g, "table|a|a.bias", 0);
    shard(g, "b", 1);
}

static inline clt_value *conv(clt_value *x, const char *name, int64_t out, int kernel, int stride)
{
    return square_conv(x, name, out, (square){kernel, stride, kernel / 2, 1}, true, zero);
}

/* Convolutions, pooling and a skip over the cut, for dp, tp, pp and space. */
static inline void images(clt_graph *g)
{
    const int64_t dims[] = {CLT_BATCH, 2, HEIGHT, 4};
    clt_conv_transpose2d_options o;
    clt_conv_transpose2d_options_init(&o);
    o.stride[0] = o.stride[1] = 2;
    clt_value *x = divided_input(g, 4, dims, CLT_AXIS_SPACE, 2);
    clt_value *a = clt_relu(conv(x, "a", 2, 3, 1));
    clt_value *b = clt_cut(clt_max_pool2d(a, NULL));
    b = clt_relu(conv(b, "b", 2, 3, 1));
    b = clt_conv_transpose2d(b, clt_parameter(g, "up", 4, (const int64_t[]){2, 2, 2, 2}, zero),
                             NULL, &o);
    clt_value *both[] = {a, b};
    distance(g, conv(clt_concat(both, 2, 1), "c", 1, 1, 1));
    shard(g, "b|b.bias", 0);
}

/* The loss has whole values: all places of space compute it, and it counts once. */
static inline void classes(clt_graph *g)
{
    const int64_t dims[] = {CLT_BATCH, 2, HEIGHT, 4};
    clt_value *h = divided_input(g, 4, dims, CLT_AXIS_SPACE, 2);
    h = clt_relu(conv(h, "a", 4, 3, 2));
    h = clt_cut(clt_flatten(clt_adaptive_avg_pool2d(h, 1, 1)));
    distance(g, clt_linear(h, parameter(g, "fc", 4, 4), bias_of(g, "fc", 4)));
    shard(g, "fc|fc.bias", 0);
}

static inline clt_value *quarter_linear(clt_graph *g, clt_value *x, const char *name, int64_t out)
{
    clt_value *weight = clt_scale(parameter(g, name, out, clt_value_dim(x, 2)), 0.25);
    return clt_linear(x, weight, bias_of(g, name, out));
}

/* Attention whose keys differ by 128 or more, so each row attends to one key; for dp, tp, pp and
 * time. */
static inline void saturated(clt_graph *g)
{
    enum { WIDE = 2 * HEADS };
    const int64_t in[] = {CLT_BATCH, LENGTH, 3}, dims[] = {LENGTH, WIDE};
    float keys[LENGTH][WIDE] = {{0}}, signs[LENGTH][WIDE] = {{0}};
    clt_attention_options o;
    clt_attention_options_init(&o);
    o.is_causal = 1;
    o.scale = 1;
    for (int t = 0; t < LENGTH; t++)
        for (int head = 0; head < HEADS; head++) {
            keys[t][2 * head] = (float)(128 * ((3 + 2 * head) * t % LENGTH));
            signs[t][2 * head] = t % 2 ? 1.0f : -1.0f;
        }
    clt_value *x = divided_input(g, 3, in, CLT_AXIS_TIME, 1);
    x = clt_cut(clt_relu(quarter_linear(g, x, "a", 3)));
    clt_value *q = clt_add(clt_scale(quarter_linear(g, x, "q", WIDE), 0),
                           clt_constant(g, CLT_F32, 2, dims, signs));
    clt_value *k = clt_add(clt_scale(quarter_linear(g, x, "k", WIDE), 0),
                           clt_constant(g, CLT_F32, 2, dims, keys));
    x = clt_attention(q, k, quarter_linear(g, x, "v", WIDE), HEADS, &o);
    distance(g, clt_linear(x, parameter(g, "out", 2, WIDE), NULL));
    shard(g, "q|k|v|q.bias|k.bias|v.bias", 0);
    shard(g, "out", 1);
}

/* Adds multiples of 256 to the rows of x, so that a softmax of `width` units chooses one of them,
 * another one at each position. */
static inline clt_value *decided(clt_graph *g, clt_value *x, int width)
{
    const int64_t dims[] = {LENGTH, width};
    float gaps[LENGTH * MOST_SCORES];
    for (int i = 0; i < LENGTH * width; i++)
        gaps[i] = (float)(256 * ((i / width + i % width) % width));
    return clt_add(x, clt_constant(g, CLT_F32, 2, dims, gaps));
}

/* A softmax of hidden units and a cross-entropy, which are saturated; units and classes are divided
 * along tp; for dp, tp, pp and time. */
static inline void labels(clt_graph *g)
{
    enum { CLASSES = 4, UNITS = 6 };
    const int64_t words[] = {CLT_BATCH, LENGTH}, rows[] = {-LENGTH, CLASSES};
    clt_value *sum, *weight, *x = clt_input(g, "word", CLT_I32, 2, words);
    ok(clt_shard_value(x, CLT_AXIS_TIME, 1));
    x = clt_embedding(x, parameter(g, "table", 3, 4), CLT_NO_PADDING);
    clt_value *h = clt_linear(x, parameter(g, "a", UNITS, 4), bias_of(g, "a", UNITS));
    h = clt_softmax(decided(g, h, UNITS), 2);
    h = clt_linear(h, parameter(g, "b", 4, UNITS), NULL);
    x = clt_cut(clt_relu(clt_add(x, h)));
    x = clt_linear(x, parameter(g, "c", CLASSES, 4), bias_of(g, "c", CLASSES));
    x = clt_output(decided(g, x, CLASSES), "y");
    ok(clt_graph_status(g));
    clt_value *target = clt_input(g, "target", CLT_I32, 2, words);
    ok(clt_shard_value(target, CLT_AXIS_TIME, 1));
    target = clt_reshape(target, 1, rows);
    ok(clt_cross_entropy(clt_reshape(x, 2, rows), target, NULL, &sum, &weight));
    clt_loss(g, "loss", sum, weight, 1);
    shard(g, "table|a|a.bias|c|c.bias", 0);
    shard(g, "b", 1);
}

/*
 * How many steps of momentum a network can train before f32 must round. A step multiplies weights
 * by gradients, which are products of weights, so sums need more bits after each step, the more the
 * deeper the network is. `bits` is what the widest sum needs (exact_tape.h). One step more would
 * need more than F32_BITS.
 */
static const struct longest {
    build_fn build;
    const char *name;
    int steps, apart, bits;
} longest[] = {{two_layers, "two_layers", 3, 3, 16},
               {split_result, "split_result", 3, 15, 21},
               {blocks, "blocks", 2, 7, 14},
               {two_blocks, "two_blocks", 2, 7, 13},
               {words, "words", 2, 3, 7},
               {images, "images", 2, 7, 18},
               {classes, "classes", 2, 15, 24},
               {saturated, "saturated", 2, 31, 24},
               {labels, "labels", 3, 7, 23}};

enum { LONGEST = sizeof longest / sizeof *longest };

/* Makes a setting train for as many steps as f32 can hold. */
static inline setting longer(setting s)
{
    for (int i = 0; i < LONGEST; i++)
        if (longest[i].build == s.build) {
            s.steps = longest[i].steps;
            s.apart = longest[i].apart;
        }
    return s;
}

#endif
