/* The operators that `cltrain bench op` measures. */
#include <stdlib.h>

#include "bench/bench_op.h"

static const clt_init uniform = {CLT_INIT_UNIFORM, 1, 0};

static clt_value *matrix(clt_graph *g, const char *name)
{
    const int64_t dims[2] = {CLT_BATCH, COLUMNS};
    return clt_input(g, name, CLT_F32, 2, dims);
}

/* The gradient of what comes of this is wanted. */
static clt_value *trained(clt_graph *g, clt_value *x)
{
    const int64_t one = 1;
    return clt_mul(x, clt_parameter(g, "scale", 1, &one, uniform));
}

static clt_value *images(clt_graph *g, const char *name)
{
    const int64_t dims[4] = {CLT_BATCH, 16, 8, 8};
    return clt_input(g, name, CLT_F32, 4, dims);
}

static clt_value *build_relu(clt_graph *g)
{
    return clt_relu(matrix(g, "x"));
}

static clt_value *build_add(clt_graph *g)
{
    return clt_add(matrix(g, "x"), matrix(g, "y"));
}

static clt_value *build_chain(clt_graph *g)
{
    const int64_t columns = COLUMNS;
    clt_value *bias = clt_parameter(g, "bias", 1, &columns, uniform);
    return clt_mul(clt_gelu_tanh(clt_add(matrix(g, "x"), bias)), matrix(g, "y"));
}

static clt_value *build_softmax(clt_graph *g)
{
    return clt_softmax(trained(g, matrix(g, "x")), 1);
}

static clt_value *build_softmax_channels(clt_graph *g)
{
    return clt_softmax(trained(g, images(g, "x")), 1);
}

static clt_value *build_cross_entropy(clt_graph *g)
{
    const int64_t batch = CLT_BATCH;
    clt_value *sum, *weight;
    clt_cross_entropy(trained(g, matrix(g, "x")), clt_input(g, "labels", CLT_I32, 1, &batch), NULL,
                      &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    return NULL;
}

static clt_value *build_layer_norm(clt_graph *g)
{
    const int64_t columns = COLUMNS;
    return clt_layer_norm(trained(g, matrix(g, "x")), 1,
                          clt_parameter(g, "weight", 1, &columns, uniform),
                          clt_parameter(g, "bias", 1, &columns, uniform), CLT_NORM_EPS);
}

static clt_value *build_rms_norm(clt_graph *g)
{
    const int64_t columns = COLUMNS;
    return clt_rms_norm(trained(g, matrix(g, "x")), 1,
                        clt_parameter(g, "weight", 1, &columns, uniform), CLT_RMS_NORM_EPS);
}

static clt_value *build_batch_norm(clt_graph *g)
{
    const int64_t channels = 16;
    clt_value *w = clt_parameter(g, "weight", 1, &channels, uniform);
    clt_value *b = clt_parameter(g, "bias", 1, &channels, uniform);
    return clt_relu(clt_batch_norm(trained(g, images(g, "x")), w, b, NULL, NULL, NULL, NULL));
}

/* As in a ResNet: behind a convolution, whose layout it takes. */
static clt_value *build_batch_norm_conv(clt_graph *g)
{
    const int64_t channels = 16, kernel[4] = {16, 16, 1, 1};
    clt_value *w = clt_parameter(g, "weight", 1, &channels, uniform);
    clt_value *b = clt_parameter(g, "bias", 1, &channels, uniform);
    clt_value *x =
        clt_conv2d(images(g, "x"), clt_parameter(g, "kernel", 4, kernel, uniform), NULL, NULL);
    return clt_relu(clt_batch_norm(x, w, b, NULL, NULL, NULL, NULL));
}

static clt_value *build_max_pool(clt_graph *g)
{
    return clt_max_pool2d(trained(g, images(g, "x")), NULL);
}

static clt_value *build_avg_pool(clt_graph *g)
{
    return clt_avg_pool2d(trained(g, images(g, "x")), NULL);
}

/* --- resampling, and convolutions that are not of `bench conv` ----------------------------------
 */

static clt_value *build_global_avg_pool(clt_graph *g)
{
    return clt_adaptive_avg_pool2d(trained(g, images(g, "x")), 1, 1);
}

static clt_value *upsample(clt_graph *g, clt_upsample_mode mode)
{
    const int64_t dims[4] = {CLT_BATCH, 4, 8, 8};
    clt_upsample2d_options o;
    clt_upsample2d_options_init(&o);
    o.mode = mode;
    return clt_upsample2d(trained(g, clt_input(g, "x", CLT_F32, 4, dims)), &o);
}

static clt_value *build_upsample_nearest(clt_graph *g)
{
    return upsample(g, CLT_UPSAMPLE_NEAREST);
}

static clt_value *build_upsample_bilinear(clt_graph *g)
{
    return upsample(g, CLT_UPSAMPLE_BILINEAR);
}

/* Eight volumes, whatever the batch. */
static clt_value *build_conv3d(clt_graph *g)
{
    static const int64_t x[5] = {8, 16, 16, 16, 16}, w[5] = {16, 16, 3, 3, 3};
    clt_conv3d_options o;
    clt_conv3d_options_init(&o);
    for (int i = 0; i < 3; i++)
        o.padding[i] = 1;
    return clt_conv3d(clt_parameter(g, "x", 5, x, uniform), clt_parameter(g, "w", 5, w, uniform),
                      NULL, &o);
}

/* A step up of a U-Net. */
static clt_value *build_conv_transpose(clt_graph *g)
{
    static const int64_t x[4] = {8, 64, 32, 32}, w[4] = {64, 32, 2, 2};
    clt_conv_transpose2d_options o;
    clt_conv_transpose2d_options_init(&o);
    o.stride[0] = o.stride[1] = 2;
    return clt_conv_transpose2d(clt_parameter(g, "x", 4, x, uniform),
                                clt_parameter(g, "w", 4, w, uniform), NULL, &o);
}

/* --- reductions: over rows, columns and all elements -------------------------------------------
 */

static const int rows[] = {1}, columns[] = {0};

static clt_value *build_sum_rows(clt_graph *g)
{
    return clt_reduce_sum(matrix(g, "x"), rows, 1, 0);
}

static clt_value *build_sum_columns(clt_graph *g)
{
    return clt_reduce_sum(matrix(g, "x"), columns, 1, 0);
}

static clt_value *build_sum_all(clt_graph *g)
{
    return clt_reduce_sum(matrix(g, "x"), NULL, 0, 0);
}

static clt_value *build_mean_rows(clt_graph *g)
{
    return clt_reduce_mean(trained(g, matrix(g, "x")), rows, 1, 0);
}

static clt_value *build_mean_columns(clt_graph *g)
{
    return clt_reduce_mean(matrix(g, "x"), columns, 1, 0);
}

/* As batch normalisation's: what is kept lies in the middle. */
static clt_value *build_mean_channels(clt_graph *g)
{
    static const int others[] = {0, 2, 3};
    return clt_reduce_mean(images(g, "x"), others, 3, 0);
}

static clt_value *build_max_rows(clt_graph *g)
{
    return clt_reduce_max(trained(g, matrix(g, "x")), rows, 1, 0);
}

static clt_value *build_max_columns(clt_graph *g)
{
    return clt_reduce_max(trained(g, matrix(g, "x")), columns, 1, 0);
}

static clt_value *build_max_all(clt_graph *g)
{
    return clt_reduce_max(matrix(g, "x"), NULL, 0, 0);
}

static clt_value *build_mse(clt_graph *g)
{
    clt_value *sum, *weight;
    clt_mse(trained(g, matrix(g, "x")), matrix(g, "y"), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    return NULL;
}

/* --- moves --------------------------------------------------------------------------------------
 */

static clt_value *build_dropout(clt_graph *g)
{
    return clt_dropout(trained(g, matrix(g, "x")), 0.5);
}

static clt_value *build_concat(clt_graph *g)
{
    clt_value *const parts[] = {trained(g, matrix(g, "x")), matrix(g, "y")};
    return clt_concat(parts, 2, 1);
}

static clt_value *build_pad(clt_graph *g)
{
    static const int64_t around[4] = {0, 0, 1, 1};
    return clt_pad(trained(g, images(g, "x")), around, around, 0);
}

static clt_value *build_slice(clt_graph *g)
{
    static const int64_t start[2] = {0, COLUMNS / 8}, stop[2] = {CLT_TO_END, COLUMNS - COLUMNS / 8};
    return clt_slice(trained(g, matrix(g, "x")), start, stop, NULL);
}

static clt_value *build_slice_steps(clt_graph *g)
{
    static const int64_t start[2] = {0, 0}, stop[2] = {CLT_TO_END, CLT_TO_END}, step[2] = {1, 2};
    return clt_slice(trained(g, matrix(g, "x")), start, stop, step);
}

static clt_value *build_cast_f16(clt_graph *g)
{
    return clt_cast(matrix(g, "x"), CLT_F16);
}

static clt_value *build_cast_bf16(clt_graph *g)
{
    return clt_cast(matrix(g, "x"), CLT_BF16);
}

/* What a data set's bytes go through. */
static clt_value *build_cast_u8(clt_graph *g)
{
    const int64_t dims[2] = {CLT_BATCH, COLUMNS};
    return clt_cast(clt_input(g, "x", CLT_U8, 2, dims), CLT_F32);
}

static clt_value *build_transpose(clt_graph *g)
{
    static const int permutation[] = {1, 0};
    const int64_t dims[2] = {ROWS, COLUMNS};
    return clt_transpose(clt_parameter(g, "x", 2, dims, uniform), permutation);
}

/* --- indices ------------------------------------------------------------------------------------
 */

/* i32 numbers below `range`, each as likely. */
static clt_value *indices(clt_graph *g, int rank, const int64_t *dims, uint32_t range)
{
    int64_t count = 1;
    for (int k = 0; k < rank; k++)
        count *= dims[k];
    int32_t *numbers = calloc((size_t)count, sizeof *numbers);
    uint32_t state = 1;
    for (int64_t i = 0; numbers && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = (int32_t)((uint64_t)state * range >> 32);
    }
    clt_value *value = numbers ? clt_constant(g, CLT_I32, rank, dims, numbers) : NULL;
    free(numbers);
    return value;
}

/* The tokens of GPT-2: 4 sequences of 64. */
static clt_value *build_embedding(clt_graph *g)
{
    enum { VOCABULARY = 50257, WIDTH = 768 };
    static const int64_t tokens[] = {4, 64}, dims[] = {VOCABULARY, WIDTH};
    return clt_embedding(indices(g, 2, tokens, VOCABULARY),
                         clt_parameter(g, "wte.weight", 2, dims, uniform), CLT_NO_PADDING);
}

static clt_value *build_gather(clt_graph *g)
{
    static const int64_t dims[] = {ROWS, COLUMNS}, picks[] = {ROWS, COLUMNS / 4};
    return clt_gather(clt_parameter(g, "x", 2, dims, uniform), 1, indices(g, 2, picks, COLUMNS));
}

/* --- recurrent layers: 64 sequences of 32 steps, 256 numbers in and out -------------------------
 */

static clt_value *recurrent(clt_graph *g, int gates)
{
    enum { SEQUENCES = 64, STEPS = 32, UNITS = 256 };
    const int64_t x[3] = {SEQUENCES, STEPS, UNITS}, w[2] = {(int64_t)gates * UNITS, UNITS};
    const clt_init small = {CLT_INIT_UNIFORM, 0.0625, 0};
    clt_value *in = clt_parameter(g, "x", 3, x, uniform), *y;
    clt_value *w_ih = clt_parameter(g, "w_ih", 2, w, small);
    clt_value *w_hh = clt_parameter(g, "w_hh", 2, w, small);
    clt_value *b_ih = clt_parameter(g, "b_ih", 1, w, small);
    clt_value *b_hh = clt_parameter(g, "b_hh", 1, w, small);
    if (gates == 4)
        clt_lstm(in, w_ih, w_hh, b_ih, b_hh, NULL, &y, NULL, NULL);
    else
        clt_gru(in, w_ih, w_hh, b_ih, b_hh, NULL, &y, NULL);
    return y;
}

static clt_value *build_lstm(clt_graph *g)
{
    return recurrent(g, 4);
}

static clt_value *build_gru(clt_graph *g)
{
    return recurrent(g, 3);
}

/* --- functions, masks, parts ------------------------------------------------------------------ */

static clt_value *build_silu(clt_graph *g)
{
    return clt_silu(trained(g, matrix(g, "x")));
}

static clt_value *build_swiglu(clt_graph *g)
{
    return clt_swiglu(matrix(g, "x"), matrix(g, "y"));
}

static clt_value *build_exp(clt_graph *g)
{
    return clt_exp(matrix(g, "x"));
}

static clt_value *build_log(clt_graph *g)
{
    return clt_ln(matrix(g, "x"));
}

static clt_value *build_pow(clt_graph *g)
{
    return clt_pow_scalar(matrix(g, "x"), 2.5);
}

static clt_value *build_where(clt_graph *g)
{
    clt_value *x = matrix(g, "x"), *y = matrix(g, "y");
    return clt_where(clt_lt(x, y), x, y);
}

static clt_value *build_chunk(clt_graph *g)
{
    clt_value *parts[2];
    if (clt_chunk(trained(g, matrix(g, "x")), 2, 1, parts) != CLT_OK)
        return NULL;
    return clt_swiglu(parts[0], parts[1]);
}

static clt_value *build_bce(clt_graph *g)
{
    clt_value *sum, *weight;
    clt_bce_with_logits(trained(g, matrix(g, "x")), matrix(g, "y"), NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    return NULL;
}

const case_row bench_op_cases[] = {
    {"relu", build_relu, 0, 0},
    {"add", build_add, 0, 0},
    {"chain", build_chain, 0, 0},
    {"softmax", build_softmax, 1, 0},
    {"softmax_channels", build_softmax_channels, 1, 0},
    {"cross_entropy", build_cross_entropy, 1, 0},
    {"layer_norm", build_layer_norm, 1, 0},
    {"rms_norm", build_rms_norm, 1, 0},
    {"batch_norm", build_batch_norm, 1, 0},
    {"batch_norm_conv", build_batch_norm_conv, 1, 0},
    {"max_pool2d", build_max_pool, 1, 0},
    {"avg_pool2d", build_avg_pool, 1, 0},
    {"global_avg_pool2d", build_global_avg_pool, 1, 0},
    {"upsample_nearest", build_upsample_nearest, 1, 0},
    {"upsample_bilinear", build_upsample_bilinear, 1, 0},
    {"conv3d", build_conv3d, 1, 0},
    {"conv_transpose2d", build_conv_transpose, 1, 0},
    {"sum_rows", build_sum_rows, 0, 0},
    {"sum_columns", build_sum_columns, 0, 0},
    {"sum_all", build_sum_all, 0, 0},
    {"mean_rows", build_mean_rows, 1, 0},
    {"mean_columns", build_mean_columns, 0, 0},
    {"mean_channels", build_mean_channels, 0, 0},
    {"max_rows", build_max_rows, 1, 0},
    {"max_columns", build_max_columns, 1, 0},
    {"max_all", build_max_all, 0, 0},
    {"mse", build_mse, 1, 0},
    {"dropout", build_dropout, 1, 0},
    {"concat", build_concat, 1, 0},
    {"pad", build_pad, 1, 0},
    {"slice", build_slice, 1, 0},
    {"slice_steps", build_slice_steps, 1, 0},
    {"cast_f16", build_cast_f16, 0, 0},
    {"cast_bf16", build_cast_bf16, 0, 0},
    {"cast_u8", build_cast_u8, 0, 0},
    {"transpose", build_transpose, 0, 0},
    {"embedding", build_embedding, 1, 0},
    {"gather", build_gather, 1, 0},
    {"lstm", build_lstm, 1, 0},
    {"gru", build_gru, 1, 0},
    {"silu", build_silu, 1, 0},
    {"swiglu", build_swiglu, 0, 0},
    {"exp", build_exp, 0, 0},
    {"log", build_log, 0, 0},
    {"pow", build_pow, 0, 0},
    {"where", build_where, 0, 0},
    {"chunk", build_chunk, 1, 0},
    {"bce_with_logits", build_bce, 1, 0},
    {"sgd", NULL, 1, CLT_SGD},
    {"momentum", NULL, 1, CLT_MOMENTUM},
    {"adam", NULL, 1, CLT_ADAM},
};

const int bench_op_case_count = sizeof bench_op_cases / sizeof *bench_op_cases;
