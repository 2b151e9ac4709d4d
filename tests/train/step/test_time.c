/*
 * Trainers over time: places compute positions of sequences. Saturated attention of small integers
 * is exact, so parameters have the bits of one device.
 */
#include "train/split_steps.h"

enum { LENGTH = 8, WIDTH = 4, HEADS = 2 };

/* --- networks -------------------------------------------------------------------------------- */

static clt_value *sequence(clt_graph *g, const char *name, clt_dtype dtype, int64_t width)
{
    const int64_t dims[] = {CLT_BATCH, LENGTH, width};
    clt_value *x = clt_input(g, name, dtype, width ? 3 : 2, dims);
    ok(clt_shard_value(x, CLT_AXIS_TIME, 1));
    return x;
}

static clt_value *linear(clt_graph *g, clt_value *x, const char *name, int64_t out)
{
    char bias[32];
    snprintf(bias, sizeof bias, "%s.bias", name);
    clt_value *weight = clt_scale(parameter(g, name, out, clt_value_dim(x, 2)), 0.25);
    return clt_linear(x, weight, parameter(g, bias, out, 0));
}

static void distance(clt_graph *g, clt_value *y)
{
    clt_value *sum, *weight;
    clt_output(y, "y");
    ok(clt_graph_status(g));
    clt_mse(y, clt_input(g, "target", CLT_F32, y->type.rank, y->type.dims), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
}

/* Keys differ by 128 or more, so each row attends to one key. */
static void saturated(clt_graph *g)
{
    const int64_t dims[] = {LENGTH, 2};
    float keys[LENGTH][2] = {{0}}, signs[LENGTH][2] = {{0}};
    clt_attention_options o;
    clt_attention_options_init(&o);
    o.is_causal = 1;
    o.scale = 1;
    for (int t = 0; t < LENGTH; t++) {
        keys[t][0] = (float)(128 * (3 * t % LENGTH));
        signs[t][0] = t % 2 ? 1.0f : -1.0f;
    }
    clt_value *x = sequence(g, "x", CLT_F32, 3);
    clt_value *q =
        clt_add(clt_scale(linear(g, x, "q", 2), 0), clt_constant(g, CLT_F32, 2, dims, signs));
    clt_value *k =
        clt_add(clt_scale(linear(g, x, "k", 2), 0), clt_constant(g, CLT_F32, 2, dims, keys));
    distance(g, clt_attention(q, k, linear(g, x, "v", 2), 1, &o));
}

/* Rotates the heads of q and k in packed rows by their positions. */
static clt_value *rotated(clt_value *packed)
{
    clt_rotary_options o;
    clt_rotary_options_init(&o);
    o.size = WIDTH / HEADS;
    o.heads = 2 * HEADS;
    return clt_rotary(packed, &o);
}

/* A language model of one layer. Some targets do not count. */
static void language_of(clt_graph *g, double dropout, bool turns)
{
    const int64_t rows[] = {-LENGTH, 3};
    clt_attention_options o;
    clt_cross_entropy_options c;
    clt_value *sum, *weight;
    clt_attention_options_init(&o);
    o.is_causal = 1;
    o.dropout = dropout;
    clt_value *wte = clt_scale(parameter(g, "wte", 3, WIDTH), 0.25);
    clt_value *x = clt_embedding(sequence(g, "tokens", CLT_I32, 0), wte, CLT_NO_PADDING);
    x = clt_add(x, parameter(g, "wpe", LENGTH, WIDTH));
    x = dropout > 0 ? clt_dropout(x, dropout) : x;
    clt_value *y =
        clt_layer_norm(x, 1, parameter(g, "w", WIDTH, 0), parameter(g, "b", WIDTH, 0), 1e-5);
    y = linear(g, y, "attn", 3 * WIDTH);
    y = clt_attention_packed(turns ? rotated(y) : y, HEADS, 0, &o);
    x = clt_add(x, linear(g, y, "proj", WIDTH));
    x = clt_add(x, linear(g, clt_tanh(linear(g, x, "up", 2 * WIDTH)), "down", WIDTH));
    clt_value *logits = clt_output(clt_linear(x, wte, NULL), "y");
    logits = clt_reshape(logits, 2, rows);
    clt_value *targets = clt_reshape(sequence(g, "targets", CLT_I32, 0), 1, rows);
    clt_cross_entropy_options_init(&c);
    c.ignore_index = 1;
    ok(clt_cross_entropy(logits, targets, &c, &sum, &weight));
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_correct(logits, targets, 1, 1, &sum, &weight));
    clt_metric(g, "accuracy", sum, weight);
}

static void language(clt_graph *g)
{
    language_of(g, 0, false);
}

/* Random numbers count by whole positions, those of attention's weights too. */
static void dropping(clt_graph *g)
{
    language_of(g, 0.25, false);
}

static void rotary(clt_graph *g)
{
    language_of(g, 0, true);
}

/* MLP and attention are split over tp too. */
static void heads(clt_graph *g)
{
    language(g);
    ok(clt_shard(g, "attn|attn.bias", CLT_AXIS_TENSOR, 0, 3, NULL));
    shard(g, "up|up.bias", 0);
    shard(g, "proj|down", 1);
}

static clt_value *recurrent(clt_graph *g, clt_value *x, int lstm, const char *name, int64_t hidden,
                            clt_value **last)
{
    static const char *const parts[] = {"ih", "hh", "bias_ih", "bias_hh"};
    const int64_t gates = (lstm ? 4 : 3) * hidden, widths[] = {clt_value_dim(x, 2), hidden, 0, 0};
    clt_value *of[4], *y = NULL;
    for (int i = 0; i < 4; i++) {
        char full[32];
        snprintf(full, sizeof full, "%s.%s", name, parts[i]);
        of[i] = clt_scale(parameter(g, full, gates, widths[i]), 0.125);
    }
    if (lstm)
        ok(clt_lstm(x, of[0], of[1], of[2], of[3], NULL, &y, last, NULL));
    else
        ok(clt_gru(x, of[0], of[1], of[2], of[3], NULL, &y, last));
    return y;
}

/* The loss depends on all steps of the last layer and on the first one's last state. */
static void layers_of(clt_graph *g, bool cut)
{
    clt_value *last, *sum, *weight;
    clt_value *y = recurrent(g, sequence(g, "x", CLT_F32, 2), 1, "a", 3, &last);
    y = recurrent(g, y, 0, "b", 4, NULL);
    y = cut ? clt_cut(y) : y;
    distance(g, recurrent(g, y, 1, "c", 2, NULL));
    clt_mse(last, clt_input(g, "state", CLT_F32, 2, (int64_t[]){CLT_BATCH, 3}), &sum, &weight);
    clt_loss(g, "states", sum, weight, 0.5);
}

static void layers(clt_graph *g)
{
    layers_of(g, false);
}

/* A stage of two layers, and one of the last layer. */
static void stages(clt_graph *g)
{
    layers_of(g, true);
}

/* A language model of two recurrent layers, whose vocabulary is split over tp. The places of time
 * come to the collectives of both axes in different orders. */
static void speech(clt_graph *g)
{
    const int64_t rows[] = {-LENGTH, 3};
    clt_value *sum, *weight, *wte = clt_scale(parameter(g, "wte", 3, WIDTH), 0.25);
    clt_value *x = clt_embedding(sequence(g, "tokens", CLT_I32, 0), wte, CLT_NO_PADDING);
    x = clt_cut(recurrent(g, recurrent(g, x, 1, "a", 3, NULL), 1, "b", 4, NULL));
    clt_value *logits = clt_reshape(clt_output(linear(g, x, "fc", 3), "y"), 2, rows);
    clt_value *targets = clt_reshape(sequence(g, "targets", CLT_I32, 0), 1, rows);
    ok(clt_cross_entropy(logits, targets, NULL, &sum, &weight));
    clt_loss(g, "loss", sum, weight, 1);
    shard(g, "wte|fc|fc.bias", 0);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void whole_numbers(void **state)
{
    static const setting settings[] = {
        {.build = saturated, .devices = two, .parallel = "time=2"},
        {.build = saturated, .devices = four, .parallel = "time=4"},
        {.build = saturated, .devices = four, .parallel = "dp=2,time=2"},
        {.build = saturated, .devices = four, .parallel = "time=2,dp=2"},
        {.build = saturated, .devices = two, .parallel = "time=2", .accumulate = 2},
        {.build = saturated, .devices = two, .parallel = "time=2", .optimizer = CLT_MOMENTUM},
        {.build = saturated, .devices = two, .parallel = "time=2", .steps = 2, .apart = 7}};
    (void)state;
    check_exact(settings, sizeof settings / sizeof *settings);
}

static void rounded_numbers(void **state)
{
    static const setting settings[] = {
        {.build = language, .devices = two, .parallel = "time=2", .clip = 1},
        {.build = language, .devices = four, .parallel = "dp=2,time=2", .optimizer = CLT_MOMENTUM},
        {.build = language, .devices = four, .parallel = "time=2,dp=2", .accumulate = 2},
        {.build = heads, .devices = four, .parallel = "tp=2,time=2"},
        {.build = dropping, .devices = two, .parallel = "time=2"},
        {.build = rotary, .devices = two, .parallel = "time=2"},
        {.build = layers, .devices = two, .parallel = "time=2", .clip = 1},
        {.build = layers, .devices = three, .parallel = "time=3"},
        {.build = speech, .devices = four, .parallel = "tp=2,time=2"},
        {.build = speech, .devices = four, .parallel = "time=2,tp=2", .accumulate = 2},
        {.build = layers, .devices = four, .parallel = "dp=2,time=2", .accumulate = 2},
        {.build = stages, .devices = four, .parallel = "pp=2,time=2", .accumulate = 2},
        {.build = speech, .devices = four, .parallel = "time=2,pp=2", .accumulate = 4}};
    (void)state;
    check_rounded(settings, sizeof settings / sizeof *settings, 1e-5, 0.25);
}

/* Values are rounded to 16 bits where they are stored, and also where places exchange them. */
static void sixteen_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        check(&(setting){.build = i & 1 ? language : layers,
                         .devices = i & 2 ? four : two,
                         .parallel = i & 2 ? "dp=2,time=2" : "time=2",
                         .precision = i & 4 ? CLT_F16 : CLT_BF16,
                         .steps = 3,
                         .lr = 0x1p-6,
                         .tolerance = i & 4 ? 1e-2 : 3e-2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_numbers),
                                       cmocka_unit_test(rounded_numbers),
                                       cmocka_unit_test(sixteen_bits)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
