/* Partitions of graphs over time: the places' graphs, joined into one, give the numbers of the
 * whole graph. */
#define PLACES_AXIS "time"
#define PLACES_WORK "attention"
#include "space_places.h"

static const clt_init zero = {CLT_INIT_ZERO, 0, 0};

enum { VOCABULARY = 5, WIDTH = 4, HEADS = 2 };

/* A sequence, split along its positions. */
static clt_value *sequence(clt_graph *g, const char *name, clt_dtype dtype, int64_t length,
                           int64_t width)
{
    const int64_t dims[] = {CLT_BATCH, length, width};
    clt_value *x = clt_input(g, name, dtype, width ? 3 : 2, dims);
    ok(clt_shard_value(x, CLT_AXIS_TIME, 1));
    return x;
}

static clt_value *linear(clt_graph *g, clt_value *x, const char *name, int64_t out)
{
    const int64_t dims[] = {out, clt_value_dim(x, 2)};
    char bias[32];
    snprintf(bias, sizeof bias, "%s.bias", name);
    return clt_linear(x, clt_parameter(g, name, 2, dims, zero),
                      clt_parameter(g, bias, 1, &out, zero));
}

/* The squared distance of y, an output, from a target. */
static void distance_loss(clt_graph *g, clt_value *y)
{
    clt_value *sum, *count;
    y = clt_output(y, "y");
    ok(clt_graph_status(g));
    clt_mse(y, clt_input(g, "target", CLT_F32, y->type.rank, y->type.dims), &sum, &count);
    clt_loss(g, "loss", sum, count, 1);
}

static clt_attention_options causal(void)
{
    clt_attention_options o;
    clt_attention_options_init(&o);
    o.is_causal = 1;
    return o;
}

/* A language model of one layer, with the reshapes and the loss of models/data.c. */
static void language_of(clt_graph *g, int64_t length, bool turns, double dropout)
{
    const int64_t table[] = {VOCABULARY, WIDTH}, places[] = {length + 3, WIDTH}, start[] = {0, 0};
    const int64_t stop[] = {length, CLT_TO_END}, rows[] = {-length, VOCABULARY};
    clt_attention_options options = causal();
    clt_rotary_options turn;
    const int64_t width = WIDTH;
    clt_value *sum, *count;
    clt_value *wte = clt_parameter(g, "wte", 2, table, zero);
    clt_value *x = clt_embedding(sequence(g, "tokens", CLT_I32, length, 0), wte, CLT_NO_PADDING);
    x = clt_add(x, clt_slice(clt_parameter(g, "wpe", 2, places, zero), start, stop, NULL));
    clt_value *y = clt_layer_norm(x, 1, clt_parameter(g, "norm", 1, &width, zero),
                                  clt_parameter(g, "norm.bias", 1, &width, zero), 1e-5);
    y = linear(g, y, "attn", 3 * WIDTH);
    clt_rotary_options_init(&turn);
    turn.size = WIDTH / HEADS;
    turn.heads = 2 * HEADS; /* of q and k */
    options.dropout = dropout;
    y = clt_attention_packed(turns ? clt_rotary(y, &turn) : y, HEADS, 0, &options);
    x = clt_add(x, linear(g, y, "proj", WIDTH));
    x = clt_add(x, linear(g, clt_gelu_tanh(linear(g, x, "up", 2 * WIDTH)), "down", WIDTH));
    clt_value *logits = clt_output(clt_linear(x, wte, NULL), "logits");
    logits = clt_reshape(logits, 2, rows);
    clt_value *targets = clt_reshape(sequence(g, "targets", CLT_I32, length, 0), 1, rows);
    clt_cross_entropy(logits, targets, NULL, &sum, &count);
    clt_loss(g, "loss", sum, count, 1);
    clt_correct(logits, targets, 1, -100, &sum, &count);
    clt_metric(g, "accuracy", sum, count);
}

static void language(clt_graph *g)
{
    language_of(g, 12, false, 0);
}

static void rotary_language(clt_graph *g)
{
    language_of(g, 12, true, 0);
}

/* Keys differ by 128 or more, so each row attends to one key, and the sums are exact. */
static void saturated_of(clt_graph *g, bool is_causal, int64_t length)
{
    float keys[32 * 2] = {0}, signs[32 * 2] = {0};
    const int64_t dims[] = {length, 2};
    clt_attention_options o = causal();
    o.is_causal = is_causal;
    o.scale = 1;
    for (int64_t t = 0; t < length; t++) {
        keys[2 * t] = (float)(128 * (7 * t % length));
        signs[2 * t] = t % 2 ? 1.0f : -1.0f;
    }
    clt_value *x = sequence(g, "x", CLT_F32, length, 3);
    clt_value *q =
        clt_add(clt_scale(linear(g, x, "q", 2), 0), clt_constant(g, CLT_F32, 2, dims, signs));
    clt_value *k =
        clt_add(clt_scale(linear(g, x, "k", 2), 0), clt_constant(g, CLT_F32, 2, dims, keys));
    k = clt_detach(k); /* its gradient is 0 */
    distance_loss(g, clt_attention(q, k, linear(g, x, "v", 2), 1, &o));
}

static void saturated(clt_graph *g)
{
    saturated_of(g, true, 12);
}

static void saturated_uneven(clt_graph *g)
{
    saturated_of(g, false, 9);
}

/* Heads in a dimension of their own, fewer of k and v, and a mask of rows and keys. */
static void masked(clt_graph *g)
{
    enum { LENGTH = 8 };
    static const int order[] = {0, 2, 1, 3};
    const int64_t four[] = {CLT_BATCH, LENGTH, HEADS, 2}, two[] = {CLT_BATCH, LENGTH, 1, 2};
    const int64_t scores[] = {LENGTH, LENGTH}, rows[] = {CLT_BATCH, LENGTH, 2 * HEADS};
    clt_attention_options o = causal();
    o.attn_mask = clt_parameter(g, "mask", 2, scores, zero);
    clt_value *x = sequence(g, "x", CLT_F32, LENGTH, 3);
    clt_value *q = clt_transpose(clt_reshape(linear(g, x, "q", 2 * HEADS), 4, four), order);
    clt_value *k = clt_transpose(clt_reshape(linear(g, x, "k", 2), 4, two), order);
    clt_value *v = clt_transpose(clt_reshape(linear(g, x, "v", 2), 4, two), order);
    clt_value *y = clt_scaled_dot_product_attention(q, k, v, &o);
    distance_loss(g, clt_reshape(clt_transpose(y, order), 3, rows));
}

/* --- recurrent layers ------------------------------------------------------------------------ */

static clt_value *recurrent_layer(clt_graph *g, clt_value *x, bool lstm, const char *name,
                                  int64_t hidden, const clt_recurrent_options *options,
                                  clt_value **last)
{
    const int64_t gates = (lstm ? 4 : 3) * hidden;
    const int64_t in[] = {gates, clt_value_dim(x, 2)}, own[] = {gates, hidden};
    char names[4][32];
    static const char *const parts[] = {"ih", "hh", "bias_ih", "bias_hh"};
    for (int i = 0; i < 4; i++)
        snprintf(names[i], sizeof names[i], "%s.%s", name, parts[i]);
    clt_value *w = clt_parameter(g, names[0], 2, in, zero);
    clt_value *u = clt_parameter(g, names[1], 2, own, zero);
    clt_value *b = clt_parameter(g, names[2], 1, &gates, zero);
    clt_value *c = clt_parameter(g, names[3], 1, &gates, zero);
    clt_value *y = NULL;
    if (lstm)
        ok(clt_lstm(x, w, u, b, c, options, &y, last, NULL));
    else
        ok(clt_gru(x, w, u, b, c, options, &y, last));
    return y;
}

/* Layers of several widths and kinds, the second one with an initial state. The loss depends on all
 * steps and on the first layer's last state. */
static void recurrent(clt_graph *g)
{
    const int64_t dims[] = {CLT_BATCH, 3};
    clt_recurrent_options o;
    clt_recurrent_options_init(&o);
    clt_value *last, *sum, *count;
    clt_value *y = recurrent_layer(g, sequence(g, "x", CLT_F32, 7, 2), true, "a", 2, NULL, &last);
    o.h0 = clt_input(g, "h0", CLT_F32, 2, dims);
    y = recurrent_layer(g, y, false, "b", 3, &o, NULL);
    distance_loss(g, recurrent_layer(g, y, true, "c", 2, NULL, NULL));
    last = clt_output(last, "last");
    const int64_t states[] = {CLT_BATCH, 2};
    clt_mse(last, clt_input(g, "state", CLT_F32, 2, states), &sum, &count);
    clt_loss(g, "states", sum, count, 1);
}

static void layers_of(clt_graph *g, bool reverse, bool ragged)
{
    const int64_t dims[] = {CLT_BATCH};
    clt_recurrent_options o;
    clt_recurrent_options_init(&o);
    o.reverse = reverse;
    o.lengths = ragged ? clt_input(g, "lengths", CLT_I32, 1, dims) : NULL;
    distance_loss(g, recurrent_layer(g, sequence(g, "x", CLT_F32, 6, 2), true, "a", 2, &o, NULL));
}

/* --- tests ----------------------------------------------------------------------------------- */

/* Forward: k and v, and the output. Backward: the gradient of k and v. */
static void language_models(void **state)
{
    (void)state;
    check_to(language, 2, 3, 0, 1.001, 2e-6);
    check_to(language, 3, 3, 0, 1.001, 2e-6);
    check_to(rotary_language, 2, 3, 0, 1.001, 2e-6);
}

/* Attention that drops weights is divided as others. train.time compares its numbers. */
static void dropout(void **state)
{
    clt_mesh mesh;
    clt_partition_report report = {0};
    clt_graph *g;
    (void)state;
    ok(clt_mesh_parse("time=2", 2, &mesh));
    ok(clt_graph_create(&g));
    language_of(g, 12, false, 0.25);
    ok(clt_pass_partition_forward(g, &mesh, 0, BATCH, &report));
    assert_int_equal(report.gathers, 0);
    clt_str_free(&report.text);
    clt_graph_destroy(g);
}

static void exact_attention(void **state)
{
    (void)state;
    check_to(saturated, 2, 4, 0, 1.001, 0);
    check_to(saturated, 3, 4, 0, 1.001, 0);
    check_to(saturated_uneven, 2, 4, 0, 1.2, 0);
}

static void masks(void **state)
{
    (void)state;
    check_to(masked, 2, 5, 0, 1.001, 2e-6);
}

/* Layers and places less 2 states pass on forward, and as many gradients backward. The first
 * layer's last state is a sum over the places, and its gradient too. Two outputs. */
static void wavefronts(void **state)
{
    (void)state;
    check_to(recurrent, 2, 2 * 3 + 3, 0, 1, 2e-6);
    check_to(recurrent, 3, 2 * 4 + 3, 0, 1, 2e-6);
}

static void expect(clt_graph *g, clt_status status, const char *message)
{
    clt_mesh mesh;
    clt_partition_report report = {0};
    ok(clt_mesh_parse("time=2", 2, &mesh));
    assert_int_equal(clt_pass_partition_forward(g, &mesh, 0, BATCH, &report), status);
    assert_string_equal(clt_error_message(), message);
    clt_str_free(&report.text);
    clt_graph_destroy(g);
}

static void errors(void **state)
{
    (void)state;
    clt_graph *g;
    ok(clt_graph_create(&g));
    language_of(g, 10, false, 0);
    expect(g, CLT_UNSUPPORTED,
           "tokens is i32[Bx10]: dimension 1 cannot be split over 2 places of time, because causal "
           "attention needs a multiple of 4");
    ok(clt_graph_create(&g));
    layers_of(g, true, false);
    expect(g, CLT_UNSUPPORTED, "node y (lstm): axis time cannot split a layer that runs backwards");
    ok(clt_graph_create(&g));
    layers_of(g, false, true);
    expect(g, CLT_UNSUPPORTED,
           "node y (lstm): axis time cannot split sequences of several lengths");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(language_models), cmocka_unit_test(dropout),
                                       cmocka_unit_test(exact_attention), cmocka_unit_test(masks),
                                       cmocka_unit_test(wavefronts),      cmocka_unit_test(errors)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
