/* Averages of weights against a recomputation in double from the parameters after each step: on one
 * and several devices, with shards, in 16 bits, with skipped steps, and resumed. */
#include "train/lab.h"

#include <math.h>

#include "train/lab_scratch.h"

enum { IN = 5, HIDDEN = 7, CLASSES = 3, BATCH = 12, STEPS = 9, BREAK = 4, MOST = 80 };

typedef struct average_case {
    const char *name, *devices, *average;
    int zero;
    clt_dtype precision;
    double loss; /* coefficient of the loss: a large one overflows f16 at first */
    int accumulate;
    int64_t shards;
} average_case;

static const average_case cases[] = {
    {"ema", "pocl", "ema:0.9", 0, CLT_F32, 1, 1, 0},
    {"swa", "pocl", "swa:2:3", 0, CLT_F32, 1, 1, 0},
    {"from the last step", "pocl", "swa:9", 0, CLT_F32, 1, 1, 0},
    {"two devices", "pocl/2", "ema:0.5", 0, CLT_F32, 1, 1, 0},
    {"zero 1", "pocl/2", "ema:0.99", 1, CLT_F32, 1, 1, 0},
    {"zero 3", "pocl/2", "swa:1", 3, CLT_F32, 1, 1, 0},
    {"bf16", "pocl", "ema:0.9", 0, CLT_BF16, 1, 2, 0},
    {"f16, skipped steps", "pocl/2", "swa:1", 0, CLT_F16, 100, 1, 0},
    {"micro-batches", "pocl", "ema:0.9", 0, CLT_F32, 1, 3, 0},
    {"virtual shards", "pocl/2", "ema:0.9", 0, CLT_F32, 1, 1, 4},
};
enum { CASES = sizeof cases / sizeof *cases };

/* The names and numbers of elements of what is averaged, and a counter, which is copied. */
static const struct {
    const char *name;
    int count;
} tensors[] = {{"a.weight", HIDDEN *IN},      {"a.bias", HIDDEN},    {"norm.weight", HIDDEN},
               {"norm.bias", HIDDEN},         {"norm.mean", HIDDEN}, {"norm.var", HIDDEN},
               {"b.weight", CLASSES *HIDDEN}, {"b.bias", CLASSES}};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static clt_graph *network(double coefficient)
{
    const int64_t x[] = {CLT_BATCH, IN}, label[] = {CLT_BATCH}, wide[] = {HIDDEN}, one[] = {1};
    const clt_init zero = {CLT_INIT_ZERO, 0, 0}, ones = {CLT_INIT_CONSTANT, 1, 0};
    clt_graph *g;
    clt_value *sum, *weight;
    ok(clt_graph_create(&g));
    clt_value *h = layer(g, clt_input(g, "x", CLT_F32, 2, x), "a.weight", "a.bias", IN, HIDDEN);
    h = clt_batch_norm(h, clt_parameter(g, "norm.weight", 1, wide, ones),
                       clt_parameter(g, "norm.bias", 1, wide, zero),
                       clt_state(g, "norm.mean", CLT_F32, 1, wide, zero),
                       clt_state(g, "norm.var", CLT_F32, 1, wide, ones),
                       clt_state(g, "norm.batches", CLT_I32, 1, one, zero), NULL);
    clt_value *logits = layer(g, clt_relu(h), "b.weight", "b.bias", HIDDEN, CLASSES);
    clt_cross_entropy(logits, clt_input(g, "label", CLT_I32, 1, label), NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, coefficient);
    ok(clt_graph_status(g));
    return g;
}

static lab make(const average_case *c)
{
    clt_trainer_options options;
    clt_store_options store;
    lab l = lab_on_kept(c->devices);
    clt_trainer_options_init(&options);
    clt_store_options_init(&store);
    store.seed = 3;
    store.zero = c->zero == 3 ? 3 : 0;
    options.batch = BATCH;
    options.lr = c->precision == CLT_F16 ? 1e-4 : 0.2;
    options.optimizer = CLT_ADAM;
    options.zero = c->zero;
    options.precision = c->precision;
    options.accumulate = c->accumulate;
    options.virtual_shards = c->shards;
    ok(clt_average_parse(c->average, &options.average));
    l.graph = network(c->loss);
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    lab_trainer(&l, &options);
    return l;
}

static void step(lab *l, int number)
{
    float xs[BATCH * IN];
    int32_t labels[BATCH];
    double loss;
    make_samples(xs, labels, BATCH, IN, CLASSES);
    for (int i = 0; i < BATCH * IN; i++)
        xs[i] += 0.1f * (float)((i * number) % 7);
    const int64_t xshape[] = {BATCH, IN}, lshape[] = {BATCH};
    clt_feed feeds[] = {
        {"x", -1, {.host = xs, .dtype = CLT_F32, .rank = 2}},
        {"label", -1, {.host = labels, .dtype = CLT_I32, .rank = 1}},
    };
    memcpy(feeds[0].array.shape, xshape, sizeof xshape);
    memcpy(feeds[1].array.shape, lshape, sizeof lshape);
    ok(clt_step_arrays(l->trainer, feeds, 2, &loss));
}

typedef struct values {
    float of[TENSORS][MOST];
    int32_t batches;
} values;

static void read_all(lab *l, values *v)
{
    memset(v, 0, sizeof *v);
    for (int i = 0; i < TENSORS; i++)
        ok(clt_store_get(l->store, tensors[i].name, v->of[i],
                         (size_t)tensors[i].count * sizeof(float)));
    ok(clt_store_get(l->store, "norm.batches", &v->batches, sizeof v->batches));
}

/* The average in double: its own rule, from the values after each committed step. */
typedef struct reference {
    double of[TENSORS][MOST];
    int64_t count;
} reference;

static void take(reference *r, const clt_average *how, const values *v, int64_t done)
{
    if (how->kind == CLT_AVERAGE_EQUAL && (done < how->from || (done - how->from) % how->every))
        return;
    for (int i = 0; i < TENSORS; i++)
        for (int k = 0; k < tensors[i].count; k++) {
            double *a = &r->of[i][k];
            const double x = v->of[i][k];
            *a = r->count == 0 ? x
                 : how->kind == CLT_AVERAGE_EMA
                     ? how->decay * *a + (1 - how->decay) * x
                     : (*a * (double)r->count + x) / (double)(r->count + 1);
        }
    r->count++;
}

/* Runs the case, and returns the averages at the end. With `dir` the run is broken and resumed. */
static void run(const average_case *c, const char *dir, values *averages, reference *r)
{
    values now, before, after;
    int64_t count, skipped = 0;
    clt_average how;
    lab l = make(c);
    ok(clt_average_parse(c->average, &how));
    read_all(&l, &before);
    for (int s = 0; s < STEPS; s++) {
        if (dir && s == BREAK) {
            ok(clt_trainer_save_state(l.trainer, dir, 1));
            lab_close(&l);
            l = make(c);
            ok(clt_trainer_restore_state(l.trainer, dir));
            assert_int_equal(clt_trainer_steps(l.trainer), BREAK);
        }
        step(&l, s);
        read_all(&l, &now);
        const bool same = !memcmp(&now, &before, sizeof now);
        skipped += same;
        if (!same && r)
            take(r, &how, &now, s + 1);
        before = now;
    }
    assert_int_equal(skipped > 0, c->precision == CLT_F16);
    assert_true(skipped < STEPS - 2);
    ok(clt_trainer_averaged(l.trainer, &count));
    if (r)
        assert_int_equal(count, r->count);
    ok(clt_trainer_use_average(l.trainer, 1));
    assert_int_equal(clt_trainer_save_state(l.trainer, scratch, 1), CLT_STATE);
    read_all(&l, averages);
    ok(clt_trainer_use_average(l.trainer, 1)); /* once more: nothing */
    ok(clt_trainer_use_average(l.trainer, 0));
    read_all(&l, &after);
    assert_memory_equal(&after, &now, sizeof now);
    /* copied at the last averaged step */
    const int64_t last = how.kind == CLT_AVERAGE_EMA ? 0 : (STEPS - how.from) % how.every;
    assert_int_equal(averages->batches, now.batches - last);
    ok(clt_store_check(l.store));
    lab_close(&l);
}

static void equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        reference r = {.count = 0};
        values whole, broken;
        char dir[300];
        run(&cases[i], NULL, &whole, &r);
        double worst = 0;
        for (int t = 0; t < TENSORS; t++)
            for (int k = 0; k < tensors[t].count; k++) {
                const double error = fabs(whole.of[t][k] - r.of[t][k]);
                const double bound = 1e-6 * fmax(1, fabs(r.of[t][k]));
                worst = fmax(worst, error);
                if (!(error <= bound))
                    fail_msg("%s: %s[%d] is %.9g, the recomputation %.9g", cases[i].name,
                             tensors[t].name, k, whole.of[t][k], r.of[t][k]);
            }
        print_message("%s: %lld steps averaged, largest error %.2g\n", cases[i].name,
                      (long long)r.count, worst);
        snprintf(dir, sizeof dir, "%s/case-%d", scratch, i);
        run(&cases[i], dir, &broken, NULL);
        assert_memory_equal(&whole, &broken, sizeof whole);
    }
}

static void senseless_options(void **state)
{
    (void)state;
    static const char *const bad[] = {"ema",     "ema:1", "ema:-1", "ema:0.9x", "swa:0",
                                      "swa:1:0", "swa",   "mean:3", "ema:nan"};
    clt_average a;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(clt_average_parse(bad[i], &a), CLT_INVALID_ARGUMENT);
    lab l = make(&cases[0]);
    int64_t count;
    assert_int_equal(clt_trainer_use_average(l.trainer, 1), CLT_STATE); /* no step yet */
    ok(clt_trainer_averaged(l.trainer, &count));
    assert_int_equal(count, 0);
    step(&l, 0);
    ok(clt_trainer_use_average(l.trainer, 1));
    clt_step_batch none;
    clt_step_batch_init(&none);
    assert_int_equal(clt_trainer_step(l.trainer, &none, NULL), CLT_STATE);
    assert_non_null(strstr(clt_error_message(), "clt_trainer_use_average"));
    ok(clt_trainer_use_average(l.trainer, 0));
    /* A store has averages of one trainer. */
    clt_trainer_options options;
    clt_trainer *second;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.batch = BATCH;
    ok(clt_average_parse("ema:0.5", &options.average));
    assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &second), CLT_UNSUPPORTED);
    options.average.kind = CLT_AVERAGE_NONE;
    ok(clt_trainer_create(l.graph, l.store, &options, &second));
    assert_int_equal(clt_trainer_averaged(second, &count), CLT_STATE);
    clt_trainer_destroy(second);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_the_reference),
                                       cmocka_unit_test(senseless_options)};
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
