/*
 * The layers of models/recurrent_layers.c: compared with PyTorch's nn.LSTM and nn.GRU
 * (tests/goldens/README.md), trained on one device and several, and with states that are carried
 * from batch to batch. test_carried.c carries states on several devices.
 */
#include "goldens/goldens.h"
#include "train/lab.h"
#include <cltrain/models.h>

/* --- PyTorch --------------------------------------------------------------------------------- */

enum { B = 5, T = 7, IN = 6, H = 9, LAYERS = 2 };

static const char *const kinds[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};

static float *as_f32(const double *numbers, int64_t count)
{
    float *all = malloc((size_t)count * sizeof *all);
    assert_non_null(all);
    for (int64_t i = 0; i < count; i++)
        all[i] = (float)numbers[i];
    return all;
}

static void compare(const char *prefix, const char *name, const float *have, const double *want,
                    int64_t count)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)have[i] - want[i], 2);
        size += pow(want[i], 2);
    }
    if (!(sqrt(difference) <= 2e-6 * sqrt(size)))
        fail_msg("%s: %s is off by %.3g of its size", prefix, name, sqrt(difference / size));
}

/* Makes a parameter. Sequences and states are parameters too, so that their gradients can be
 * compared. */
static clt_value *leaf(clt_graph *graph, const char *name, int k, int rank, const int64_t *dims)
{
    char full[32];
    snprintf(full, sizeof full, "%s.%d", name, k);
    return clt_parameter(graph, full, rank, dims, (clt_init){CLT_INIT_ZERO, 0, 0});
}

static clt_graph *golden_graph(bool lstm, int directions, const int32_t *lengths)
{
    const int64_t x[] = {B, T, IN}, state[] = {B, H}, batch = B;
    clt_layer_recurrent layer = {.hidden = H, .layers = LAYERS, .bidirectional = directions > 1};
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    for (int k = 0; k < LAYERS * directions; k++) {
        layer.h0[k] = leaf(graph, "h0", k, 2, state);
        layer.c0[k] = lstm ? leaf(graph, "c0", k, 2, state) : NULL;
    }
    if (lengths)
        layer.lengths = clt_constant(graph, CLT_I32, 1, &batch, lengths);
    clt_value *y =
        (lstm ? clt_layer_lstm : clt_layer_gru)(graph, leaf(graph, "x", 0, 3, x), "", &layer);
    clt_output_gradient(clt_output(y, "y"), "dy");
    for (int k = 0; k < LAYERS * directions; k++) {
        char name[16];
        snprintf(name, sizeof name, "h_n.%d", k);
        clt_output(layer.h_n[k], name);
        snprintf(name, sizeof name, "c_n.%d", k);
        if (lstm)
            clt_output(layer.c_n[k], name);
    }
    ok(clt_graph_status(graph));
    return graph;
}

static void set(lab *l, const char *name, const double *numbers, int64_t count)
{
    float *all = as_f32(numbers, count);
    ok(clt_store_set(l->store, name, all, (size_t)count * sizeof *all));
    free(all);
}

static void check_gradient(lab *l, const char *prefix, const char *name, const double *want,
                           int64_t count)
{
    float *have = malloc((size_t)count * sizeof *have);
    ok(clt_trainer_gradient(l->trainer, 0, name, have, (size_t)count * sizeof *have));
    compare(prefix, name, have, want, count);
    free(have);
}

/* Calls `each` with the names of the store and the numbers of the golden. */
static void each_leaf(lab *l, const clt_tensors *golden, const char *prefix, bool lstm,
                      int directions, bool gradients)
{
    char name[64];
    for (int level = 0; level < LAYERS; level++)
        for (int d = 0; d < directions; d++)
            for (int k = 0; k < 4; k++) {
                char stored[80];
                snprintf(name, sizeof name, "%s_l%d%s", kinds[k], level, d ? "_reverse" : "");
                snprintf(stored, sizeof stored, "%s%s", gradients ? "grad." : "", name);
                const int64_t count = golden_count(golden_find(golden, prefix, stored));
                const double *numbers = golden_f64(golden, prefix, stored, count);
                if (gradients)
                    check_gradient(l, prefix, name, numbers, count);
                else
                    set(l, name, numbers, count);
            }
    for (int s = 0; s < (lstm ? 2 : 1); s++)
        for (int k = 0; k < LAYERS * directions; k++) {
            static const char *const states[] = {"h0", "c0"}, *const grads[] = {"dh0", "dc0"};
            const double *all = golden_f64(golden, prefix, (gradients ? grads : states)[s],
                                           (int64_t)LAYERS * directions * B * H);
            snprintf(name, sizeof name, "%s.%d", states[s], k);
            if (gradients)
                check_gradient(l, prefix, name, all + (int64_t)k * B * H, B * H);
            else
                set(l, name, all + (int64_t)k * B * H, B * H);
        }
    const double *x = golden_f64(golden, prefix, gradients ? "dx" : "x", B * T * IN);
    if (gradients)
        check_gradient(l, prefix, "x.0", x, B * T * IN);
    else
        set(l, "x.0", x, B * T * IN);
}

static void check_golden(const char *prefix, bool lstm, int directions, int portable)
{
    enum { MOST = 2 * LAYERS };
    clt_tensors *golden = golden_open("recurrent.safetensors");
    const int states = LAYERS * directions, y_count = B * T * H * directions;
    float y[B * T * H * 2], last[2][MOST][B * H];
    float *dy = as_f32(golden_f64(golden, prefix, "dy", y_count), y_count);
    char names[2][MOST][16];
    clt_fetch fetches[1 + 2 * MOST] = {{"y", 0, CLT_HOST(y)}};
    int n = 1;
    for (int s = 0; s < (lstm ? 2 : 1); s++)
        for (int k = 0; k < states; k++) {
            snprintf(names[s][k], sizeof names[s][k], "%c_n.%d", "hc"[s], k);
            fetches[n++] = (clt_fetch){names[s][k], 0, CLT_HOST(last[s][k])};
        }
    lab l = lab_on_kept(clt_test_devices("cpu"));
    lab_store(&l,
              golden_graph(lstm, directions,
                           directions > 1 ? golden_i32(golden, prefix, "lengths", B) : NULL),
              1);
    each_leaf(&l, golden, prefix, lstm, directions, false);
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = 1;
    options.lr = 0;
    options.portable = portable;
    options.poison = 1;
    lab_trainer(&l, &options);
    const clt_feed feed = {"dy", 0, CLT_HOST(dy)};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = 1;
    batch.feeds = &feed;
    batch.n_feeds = 1;
    batch.fetches = fetches;
    batch.n_fetches = n;
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_wait(l.trainer));
    compare(prefix, "y", y, golden_f64(golden, prefix, "y", y_count), y_count);
    for (int s = 0; s < (lstm ? 2 : 1); s++)
        for (int k = 0; k < states; k++)
            compare(prefix, names[s][k], last[s][k],
                    golden_f64(golden, prefix, s ? "c_n" : "h_n", (int64_t)states * B * H) +
                        (int64_t)k * B * H,
                    B * H);
    each_leaf(&l, golden, prefix, lstm, directions, true);
    free(dy);
    lab_close(&l);
    clt_tensors_close(golden);
}

static void test_goldens(void **state)
{
    (void)state;
    for (int portable = 0; portable < 2; portable++) {
        check_golden("lstm", true, 1, portable);
        check_golden("gru", false, 1, portable);
        check_golden("lstm.both", true, 2, portable);
        check_golden("gru.both", false, 2, portable);
    }
}

/* --- training -------------------------------------------------------------------------------- */

enum { SEQUENCES = 32, STEPS = 10, UNITS = 16 };

/* Builds a classifier of sequences: is the sum of the numbers above zero? Each step matters. */
static clt_graph *sums(bool lstm)
{
    const int64_t x[] = {CLT_BATCH, STEPS, 1}, one = CLT_BATCH;
    clt_layer_recurrent layer = {.hidden = UNITS, .layers = 2};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    (lstm ? clt_layer_lstm : clt_layer_gru)(graph, clt_input(graph, "x", CLT_F32, 3, x), "rnn",
                                            &layer);
    clt_value *logits = clt_layer_linear(graph, layer.h_n[1], "out", 2);
    clt_cross_entropy(logits, clt_input(graph, "label", CLT_I32, 1, &one), NULL, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    ok(clt_graph_status(graph));
    return graph;
}

static double train_sums(const char *devices, bool lstm, double *first)
{
    float x[SEQUENCES * STEPS];
    int32_t label[SEQUENCES];
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(x)}, {"label", -1, CLT_HOST(label)}};
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.lr = 0.02;
    options.batch = SEQUENCES;
    lab l = lab_on_kept(devices);
    lab_store(&l, sums(lstm), 3);
    lab_trainer(&l, &options);
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = SEQUENCES;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    unsigned random = 5;
    double late = 0;
    for (int step = 0; step < 80; step++) {
        for (int i = 0; i < SEQUENCES; i++) {
            double sum = 0;
            for (int t = 0; t < STEPS; t++) {
                random = random * 1664525u + 1013904223u;
                x[i * STEPS + t] = (float)(random >> 8) / 8388608.0f - 1;
                sum += (double)x[i * STEPS + t];
            }
            label[i] = sum > 0;
        }
        clt_step_result result;
        clt_step_result_init(&result);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_result(l.trainer, step, &result));
        if (step == 0)
            *first = result.loss;
        late += step >= 70 ? result.loss / 10 : 0;
    }
    ok(clt_store_check(l.store));
    lab_close(&l);
    return late;
}

static void test_training(void **state)
{
    (void)state;
    for (int lstm = 0; lstm < 2; lstm++) {
        double first, other, one = train_sums(clt_test_devices("cpu"), lstm, &first);
        assert_true(fabs(first - log(2)) < 0.1);
        assert_true(one < 0.25);
        if (!getenv("CLT_TEST_DEVICES")) {
            const double two = train_sums("cpu/2", lstm, &other);
            assert_true(fabs(first - other) < 1e-6);
            assert_true(two < 0.25);
        }
    }
}

/* --- carried state --------------------------------------------------------------------------- */

/* Builds a model whose sequences continue in the next batch, with `steps` of them at a time. */
static clt_graph *carrying(int steps, bool carry)
{
    const int64_t x[] = {CLT_BATCH, steps, 2}, all[] = {SEQUENCES, UNITS};
    const clt_init zero = {CLT_INIT_ZERO, 0, 0};
    clt_layer_recurrent layer = {.hidden = UNITS, .layers = 1};
    clt_value *sum = NULL, *weight = NULL, *state[2] = {NULL, NULL};
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    if (carry) {
        state[0] = clt_state(graph, "h", CLT_F32, 2, all, zero);
        state[1] = clt_state(graph, "c", CLT_F32, 2, all, zero);
        layer.h0[0] = clt_batch_rows(state[0]);
        layer.c0[0] = clt_batch_rows(state[1]);
    }
    clt_value *y = clt_layer_lstm(graph, clt_input(graph, "x", CLT_F32, 3, x), "rnn", &layer);
    if (carry) {
        clt_assign(graph, state[0], clt_batch_rows_put(state[0], clt_detach(layer.h_n[0])));
        clt_assign(graph, state[1], clt_batch_rows_put(state[1], clt_detach(layer.c_n[0])));
    }
    const int64_t target[] = {CLT_BATCH, steps, UNITS};
    clt_mse(clt_output(y, "y"), clt_input(graph, "target", CLT_F32, 3, target), &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    ok(clt_graph_status(graph));
    return graph;
}

static lab open_carrying(int steps, bool carry, clt_trainer_options *options)
{
    lab l = lab_on_kept(clt_test_devices("cpu"));
    lab_store(&l, carrying(steps, carry), 9);
    clt_trainer_options_init(options);
    options->batch = SEQUENCES;
    options->lr = 0;
    lab_trainer(&l, options);
    return l;
}

static void run(lab *l, const float *x, const float *target, int64_t first, int64_t count, float *y)
{
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(x)}, {"target", -1, CLT_HOST(target)}};
    const clt_fetch fetch = {"y", -1, CLT_HOST(y)};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = count;
    batch.first = first;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    batch.fetches = &fetch;
    batch.n_fetches = 1;
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_wait(l->trainer));
}

/* Two steps of half of each sequence give the same as one step of whole sequences. A state stays
 * unchanged if a later batch lacks its sample. */
static void test_carried(void **state)
{
    enum { HALF = 4, WHOLE = 2 * HALF, FIRST = 7, FEW = 5 };
    static float x[SEQUENCES * WHOLE * 2], half[2][SEQUENCES * HALF * 2];
    static float target[SEQUENCES * WHOLE * UNITS], y[SEQUENCES * WHOLE * UNITS];
    static float part[2][SEQUENCES * HALF * UNITS], h[2][SEQUENCES * UNITS];
    clt_trainer_options options;
    (void)state;
    for (int i = 0; i < SEQUENCES * WHOLE * 2; i++) {
        const int b = i / (WHOLE * 2), k = i % (WHOLE * 2);
        x[i] = (float)((i * 37) % 101 - 50) / 25;
        half[k / (HALF * 2)][b * HALF * 2 + k % (HALF * 2)] = x[i];
    }
    lab whole = open_carrying(WHOLE, false, &options);
    run(&whole, x, target, 0, SEQUENCES, y);
    lab l = open_carrying(HALF, true, &options);
    for (int k = 0; k < 2; k++)
        run(&l, half[k], target, 0, SEQUENCES, part[k]);
    for (int i = 0; i < SEQUENCES * WHOLE * UNITS; i++) {
        const int b = i / (WHOLE * UNITS), k = i % (WHOLE * UNITS);
        const float have = part[k / (HALF * UNITS)][b * HALF * UNITS + k % (HALF * UNITS)];
        if (!(fabs((double)have - (double)y[i]) <= 1e-6))
            fail_msg("sequence %d, step %d: %.9g in two parts, %.9g in one", b, k / UNITS,
                     (double)have, (double)y[i]);
    }
    ok(clt_store_get(l.store, "h", h[0], sizeof h[0]));
    for (int b = 0; b < SEQUENCES; b++)
        assert_memory_equal(h[0] + b * UNITS, part[1] + (b * HALF + HALF - 1) * UNITS,
                            UNITS * sizeof(float));
    run(&l, half[0], target, FIRST, FEW, part[0]);
    ok(clt_store_get(l.store, "h", h[1], sizeof h[1]));
    for (int b = 0; b < SEQUENCES; b++)
        assert_int_equal(b < FIRST || b >= FIRST + FEW,
                         !memcmp(h[0] + b * UNITS, h[1] + b * UNITS, UNITS * sizeof(float)));
    lab_close(&l);
    lab_close(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_training),
                                       cmocka_unit_test(test_carried)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
