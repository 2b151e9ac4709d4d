/*
 * Trainers over space: places compute rows of images, and exchange the rows at their borders.
 * Numbers are small integers, so that steps are exact: parameters have the bits of one device.
 */
#include "support/convolution.h"
#include "train/split_steps.h"

enum { SIZE = 8 };

/* --- networks -------------------------------------------------------------------------------- */

static clt_value *image(clt_graph *g, int64_t height)
{
    const int64_t dims[] = {CLT_BATCH, 2, height, 4};
    clt_value *x = clt_input(g, "x", CLT_F32, 4, dims);
    ok(clt_shard_value(x, CLT_AXIS_SPACE, 2));
    return x;
}

static clt_value *conv(clt_value *x, const char *name, int64_t out, int kernel, int stride)
{
    return square_conv(x, name, out, (square){kernel, stride, kernel / 2, 1}, true, zero);
}

static void distance(clt_graph *g, clt_value *y)
{
    clt_value *sum, *weight;
    clt_output(y, "y");
    ok(clt_graph_status(g));
    clt_mse(y, clt_input(g, "target", CLT_F32, y->type.rank, y->type.dims), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
}

static void layers(clt_graph *g)
{
    clt_value *h = clt_relu(conv(image(g, SIZE), "a", 2, 3, 2));
    distance(g, conv(h, "b", 1, 3, 1));
}

/* A small U-Net: pooling, a transposed convolution, a skip. */
static void unet(clt_graph *g)
{
    clt_conv_transpose2d_options o;
    const int64_t dims[] = {2, 2, 2, 2};
    clt_value *a = clt_relu(conv(image(g, SIZE), "a", 2, 3, 1));
    clt_value *b = clt_relu(conv(clt_max_pool2d(a, NULL), "b", 2, 3, 1));
    clt_conv_transpose2d_options_init(&o);
    o.stride[0] = o.stride[1] = 2;
    b = clt_conv_transpose2d(b, clt_parameter(g, "up", 4, dims, zero), NULL, &o);
    clt_value *both[] = {a, b};
    distance(g, conv(clt_concat(both, 2, 1), "c", 1, 1, 1));
}

/* All places have the loss; it counts once. */
static void classes(clt_graph *g)
{
    clt_value *h = clt_relu(conv(image(g, SIZE), "a", 4, 3, 1));
    h = clt_flatten(clt_adaptive_avg_pool2d(h, 1, 1));
    distance(g, clt_linear(h, parameter(g, "fc", 4, 4), NULL));
}

/* The last layer is split over tp too. */
static void channels(clt_graph *g)
{
    clt_value *h = clt_relu(conv(image(g, SIZE), "a", 4, 3, 2));
    distance(g, conv(h, "b", 2, 3, 1));
    shard(g, "a|a.bias", 0);
}

/* Batch norm over all rows, with running statistics; labels of pixels, of which some do not count;
 * the weight of the loss is known after forward only. */
static void segments(clt_graph *g)
{
    const int64_t channel_count = 2, dims[] = {CLT_BATCH, SIZE, 4};
    clt_batch_norm_options o;
    clt_cross_entropy_options c;
    clt_value *sum, *weight;
    clt_batch_norm_options_init(&o);
    o.synchronised = 1;
    clt_value *h = conv(image(g, SIZE), "a", 2, 3, 1);
    h = clt_batch_norm(h, parameter(g, "w", 2, 0), parameter(g, "b", 2, 0),
                       clt_state(g, "mean", CLT_F32, 1, &channel_count, zero),
                       clt_state(g, "var", CLT_F32, 1, &channel_count, zero), NULL, &o);
    h = clt_output(conv(clt_sigmoid(h), "c", 3, 3, 1), "y");
    clt_value *labels = clt_input(g, "labels", CLT_I32, 3, dims);
    clt_cross_entropy_options_init(&c);
    c.ignore_index = 1;
    ok(clt_cross_entropy(h, labels, &c, &sum, &weight));
    clt_loss(g, "pixels", sum, weight, 1);
    ok(clt_correct(h, labels, 1, 1, &sum, &weight));
    clt_metric(g, "accuracy", sum, weight);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void whole_numbers(void **state)
{
    static const setting settings[] = {
        {.build = layers, .devices = two, .parallel = "space=2"},
        {.build = layers, .devices = three, .parallel = "space=3"},
        {.build = layers, .devices = four, .parallel = "dp=2,space=2"},
        {.build = layers, .devices = four, .parallel = "space=2,dp=2"},
        {.build = layers, .devices = two, .parallel = "space=2", .accumulate = 2},
        {.build = layers,
         .devices = two,
         .parallel = "space=2",
         .optimizer = CLT_MOMENTUM,
         .steps = 2,
         .apart = 15},
        {.build = unet, .devices = two, .parallel = "space=2"},
        {.build = unet, .devices = two, .parallel = "space=2", .steps = 2, .apart = 7},
        {.build = unet, .devices = four, .parallel = "dp=2,space=2"},
        {.build = classes, .devices = two, .parallel = "space=2"},
        {.build = classes, .devices = four, .parallel = "dp=2,space=2"},
        {.build = channels, .devices = four, .parallel = "tp=2,space=2"}};
    (void)state;
    check_exact(settings, sizeof settings / sizeof *settings);
}

/* Not AdamW: its first step leaves multiples of the rate, so maxima tie and rounding decides. */
static void rounded_numbers(void **state)
{
    static const setting settings[] = {
        {.build = unet, .devices = two, .parallel = "space=2", .clip = 1},
        {.build = unet,
         .devices = four,
         .parallel = "dp=2,space=2",
         .clip = 1,
         .optimizer = CLT_MOMENTUM},
        {.build = segments, .devices = two, .parallel = "space=2"},
        {.build = segments, .devices = three, .parallel = "space=3", .accumulate = 2},
        {.build = segments, .devices = four, .parallel = "space=2,dp=2"}};
    (void)state;
    check_rounded(settings, sizeof settings / sizeof *settings, 1e-5, 0.25);
}

/* Values are rounded to 16 bits where they are stored, and also where places exchange them. */
static void sixteen_bits(void **state)
{
    static const setting settings[] = {
        {.build = unet, .devices = two, .parallel = "space=2", .precision = CLT_BF16},
        {.build = segments, .devices = two, .parallel = "space=2", .precision = CLT_BF16},
        {.build = segments, .devices = four, .parallel = "dp=2,space=2", .precision = CLT_BF16},
        {.build = segments, .devices = two, .parallel = "space=2", .precision = CLT_F16}};
    setting with_clip[sizeof settings / sizeof *settings];
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        with_clip[i] = settings[i];
        with_clip[i].clip = 1;
    }
    check_rounded(with_clip, sizeof settings / sizeof *settings, 3e-2, 0x1p-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_numbers),
                                       cmocka_unit_test(rounded_numbers),
                                       cmocka_unit_test(sixteen_bits)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
