/*
 * The execution contract of steps: which objects they may create, and how long events live. Every
 * division of a batch, every repetition and every replica must give the expected result.
 */
#include "base/alloc.h"
#include "device/core/cl.h"
#include "support/objects.h"
#include "train/lab.h"
#include "train/core/trainer.h"
#include "train/step/states.h"

enum { IN = 24, CLASSES = 5, MOST = 48 };

static float xs[MOST * IN];
static int32_t labels[MOST];

/* Builds a classifier. A wide hidden layer makes several buckets. */
static clt_graph *build(int64_t hidden)
{
    const int64_t in[] = {CLT_BATCH, IN}, one[] = {CLT_BATCH};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    clt_value *label = clt_input(graph, "label", CLT_I32, 1, one);
    clt_value *h = clt_relu(layer(graph, x, "a.weight", "a.bias", IN, hidden));
    h = clt_relu(layer(graph, h, "b.weight", "b.bias", hidden, hidden));
    clt_value *logits =
        clt_output(layer(graph, h, "c.weight", "c.bias", hidden, CLASSES), "logits");
    clt_cross_entropy(logits, label, NULL, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    clt_correct(logits, label, 1, -100, &sum, &weight);
    clt_metric(graph, "accuracy", sum, weight);
    ok(clt_graph_status(graph));
    return graph;
}

static clt_trainer_options default_options(void)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_MOMENTUM;
    options.batch = MOST;
    options.poison = 1;
    return options;
}

static lab lab_open(const char *list, int share_context, int64_t hidden,
                    const clt_trainer_options *options)
{
    clt_device_options device_options;
    clt_device_options_init(&device_options);
    device_options.share_context = share_context;
    lab l = lab_on(clt_test_devices(list), &device_options);
    lab_store(&l, build(hidden), 5);
    lab_trainer(&l, options);
    return l;
}

static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};

static clt_step_batch batch_of(int64_t count)
{
    return lab_batch(feeds, count);
}

static void step(lab *l, int64_t count)
{
    const clt_step_batch batch = batch_of(count);
    ok(clt_trainer_step(l->trainer, &batch, NULL));
}

static double loss_of_last(lab *l)
{
    clt_step_result result;
    clt_step_result_init(&result);
    ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
    return result.loss;
}

/* Returns all parameters and states, one after the other. */
static float *values_of(lab *l, size_t *bytes)
{
    const int count = clt_store_count(l->store);
    *bytes = 0;
    float *all = NULL;
    for (int i = 0; i < count; i++) {
        const char *name;
        int rank;
        int64_t dims[CLT_MAX_RANK], elements = 1;
        ok(clt_store_describe(l->store, i, &name, NULL, &rank, dims, NULL));
        for (int d = 0; d < rank; d++)
            elements *= dims[d];
        all = realloc(all, *bytes + (size_t)elements * sizeof *all);
        ok(clt_store_get(l->store, name, (char *)all + *bytes, (size_t)elements * sizeof *all));
        *bytes += (size_t)elements * sizeof *all;
    }
    return all;
}

/* --- objects, allocations, events ------------------------------------------------------------ */

static void check_counts(const char *list, int64_t hidden, int accumulate, int least_buckets)
{
    clt_trainer_options options = default_options();
    options.accumulate = accumulate;
    lab l = lab_open(list, 0, hidden, &options);
    int buckets = 0;
    for (int b = 0; b < l.store->layout.n_buckets; b++)
        buckets += !l.store->layout.buckets[b].state;
    assert_true(buckets >= least_buckets);
    assert_true(objects_made() > 0 && objects_live() > 0); /* check that they are counted */
    const int64_t limit = (3 * buckets + 4) * (int64_t)l.n;
    const int64_t live = clt_device_object_live(CLT_OBJECT_EVENT);
    step(&l, MOST);
    step(&l, MOST);
    for (int s = 0; s < 8; s++) {
        const int64_t objects = clt_device_object_count(CLT_OBJECT_KINDS);
        const int64_t events = clt_device_object_count(CLT_OBJECT_EVENT);
        const int64_t allocations = clt_alloc_count(), made = objects_made();
        step(&l, MOST - (s & 3)); /* uneven and smaller batches too */
        const int64_t new_events = clt_device_object_count(CLT_OBJECT_EVENT) - events;
        assert_int_equal(clt_device_object_count(CLT_OBJECT_KINDS) - objects, new_events);
        assert_int_equal(objects_made(), made);
        assert_int_equal(clt_alloc_count(), allocations);
        assert_true(new_events <= limit);
        /* The events of this step, and of the previous step while it may still run. */
        assert_true(clt_device_object_live(CLT_OBJECT_EVENT) - live <= 2 * limit);
        assert_true(clt_device_object_live(CLT_OBJECT_EVENT) - live <= 2 * l.n);
    }
    lab_close(&l);
    assert_int_equal(objects_live(), 0);
}

static void test_counts(void **state)
{
    (void)state;
    check_counts("pocl", 32, 1, 1);
    check_counts("pocl", 32, 3, 1);
    check_counts("pocl", 800, 1, 2);
    check_counts("pocl/2", 32, 1, 1);
    check_counts("pocl/2", 32, 2, 1);
    check_counts("pocl/2", 800, 1, 2);
}

/* --- splits ---------------------------------------------------------------------------------- */

static void same_gradient(lab *a, lab *b, int64_t count)
{
    static const char *const names[] = {"a.weight", "b.bias", "c.weight"};
    static const int elements[] = {32 * IN, 32, CLASSES * 32};
    float x[32 * IN], y[32 * IN];
    for (int p = 0; p < 3; p++)
        for (int d = 0; d < b->n; d++) {
            double size = 0, difference = 0;
            ok(clt_trainer_gradient(a->trainer, 0, names[p], x, (size_t)elements[p] * 4));
            ok(clt_trainer_gradient(b->trainer, d, names[p], y, (size_t)elements[p] * 4));
            for (int i = 0; i < elements[p]; i++) {
                size += pow((double)x[i], 2);
                difference += pow((double)(x[i] - y[i]), 2);
            }
            if (!(difference <= 1e-10 * size) || (count && !(size > 0)))
                fail_msg("%s, batch %lld, device %d: relative difference %g", names[p],
                         (long long)count, d, sqrt(difference / size));
        }
}

/* Batches of every size, including none, on two devices with and without micro-batches. The
 * reference is one device with the whole batch. In the second round only the labels determine the
 * weight. */
static void test_splits(void **state)
{
    (void)state;
    static const int64_t counts[] = {MOST, MOST - 1, 17, 3, 2, 1, 0, 5, MOST};
    for (int accumulate = 1; accumulate <= 5; accumulate += 2) {
        clt_trainer_options options = default_options();
        lab one = lab_open("pocl", 0, 32, &options);
        options.accumulate = accumulate;
        lab two = lab_open("pocl/2", 0, 32, &options);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            step(&one, counts[i]);
            step(&two, counts[i]);
            same_gradient(&one, &two, counts[i]);
            const double a = loss_of_last(&one), b = loss_of_last(&two);
            assert_true(fabs(a - b) <= 1e-5 * fabs(a));
            assert_true(counts[i] ? a > 0 : a == 0);
            ok(clt_store_check(two.store));
        }
        lab_close(&one);
        lab_close(&two);
    }
}

static int guard = 1;

static float *train(const char *list, int share_context, int64_t hidden, size_t *bytes)
{
    clt_trainer_options options = default_options();
    options.guard = guard;
    lab l = lab_open(list, share_context, hidden, &options);
    for (int s = 0; s < 12; s++) {
        step(&l, MOST - s % 5);
        if (l.n > 1)
            ok(clt_store_check(l.store));
    }
    float *values = values_of(&l, bytes);
    lab_close(&l);
    return values;
}

/* Updates that begin right after the reduction of their bucket give the bits of updates that wait
 * for the step status. A wide layer makes several buckets. */
static void test_streaming(void **state)
{
    size_t bytes, same;
    (void)state;
    float *committed = train("pocl/2", 0, 700, &bytes);
    guard = 0;
    float *streamed = train("pocl/2", 0, 700, &same);
    guard = 1;
    assert_int_equal(bytes, same);
    assert_memory_equal(committed, streamed, bytes);
    free(committed);
    free(streamed);
}

/* The same run gives the same bits twice, also with one context for both devices. */
static void test_repeats(void **state)
{
    (void)state;
    static const char *const lists[] = {"pocl", "pocl/2"};
    static const int64_t hidden[] = {32, 800};
    for (int i = 0; i < 2; i++)
        for (int h = 0; h < 2; h++) {
            size_t bytes, again_bytes;
            float *first = train(lists[i], 0, hidden[h], &bytes);
            for (int share = 0; share < 2; share++) {
                float *again = train(lists[i], share, hidden[h], &again_bytes);
                assert_int_equal(bytes, again_bytes);
                assert_memory_equal(first, again, bytes);
                free(again);
            }
            free(first);
        }
}

/* --- several plans on one store -------------------------------------------------------------- */

static void plans_on(const char *list)
{
    clt_trainer_options options = default_options();
    lab plain = lab_open(list, 0, 32, &options), mixed = lab_open(list, 0, 32, &options);
    clt_trainer *small;
    options.batch = 9;
    ok(clt_trainer_create(mixed.graph, mixed.store, &options, &small));
    float logits[MOST * CLASSES], before[MOST * CLASSES];
    const clt_fetch fetch = {"logits", -1, CLT_HOST(logits)};
    for (int s = 0; s < 6; s++) {
        double sums[2] = {0}, weights[2] = {0}, small_sums[2] = {0}, small_weights[2] = {0};
        clt_step_batch batch = batch_of(9);
        ok(clt_trainer_evaluate(mixed.trainer, &batch, sums, weights));
        ok(clt_trainer_evaluate(small, &batch, small_sums, small_weights));
        assert_true(weights[0] == 9 && small_weights[1] == 9);
        assert_true(fabs(sums[0] - small_sums[0]) <= 1e-5 * fabs(sums[0]));
        batch.fetches = &fetch;
        batch.n_fetches = 1;
        ok(clt_trainer_predict(small, &batch, NULL));
        ok(clt_trainer_wait(small));
        if (s)
            assert_memory_not_equal(logits, before, 9 * CLASSES * sizeof *logits);
        memcpy(before, logits, sizeof logits);
        step(&mixed, MOST - s);
        step(&plain, MOST - s);
    }
    size_t bytes, again_bytes;
    float *a = values_of(&plain, &bytes), *b = values_of(&mixed, &again_bytes);
    assert_memory_equal(a, b, bytes);
    free(a);
    free(b);
    /* Another plan in between overwrites the intermediates. */
    const clt_step_batch batch = batch_of(9);
    double sums[2] = {0}, weights[2] = {0};
    if (mixed.n == 1) {
        ok(clt_trainer_forward(mixed.trainer, &batch));
        ok(clt_trainer_evaluate(small, &batch, sums, weights));
        assert_int_equal(clt_trainer_backward(mixed.trainer), CLT_STATE);
    }
    /* The small trainer trains too. */
    ok(clt_trainer_step(small, &batch, NULL));
    ok(clt_trainer_wait(small));
    ok(clt_store_check(mixed.store));
    clt_trainer_destroy(small);
    lab_close(&plain);
    lab_close(&mixed);
}

static void test_plans_on_one_store(void **state)
{
    (void)state;
    plans_on("pocl");
    plans_on("pocl/2");
}

/* The nearest of all tensors is suggested, not the first that is near. */
static void test_nearest_name(void **state)
{
    (void)state;
    const clt_trainer_options options = default_options();
    lab l = lab_open("pocl", 0, 32, &options);
    float value;
    assert_int_equal(clt_store_get(l.store, "b.weigt", &value, sizeof value), CLT_NOT_FOUND);
    if (!strstr(clt_error_message(), "did you mean b.weight?"))
        fail_msg("%s", clt_error_message());
    lab_close(&l);
}

/* --- the guard ------------------------------------------------------------------------------- */

static void guard_on(const char *list, int accumulate, int sample, int late)
{
    clt_trainer_options options = default_options();
    options.accumulate = accumulate;
    lab l = lab_open(list, 0, 32, &options);
    size_t bytes, after_bytes;
    for (int s = 0; s < 3; s++)
        step(&l, MOST);
    ok(clt_trainer_wait(l.trainer));
    float *before = values_of(&l, &bytes);
    const float kept = xs[sample * IN];
    xs[sample * IN] = NAN;
    step(&l, MOST);
    ok(clt_trainer_wait(l.trainer));
    xs[sample * IN] = kept;
    clt_step_result result;
    clt_step_result_init(&result);
    if (late)
        step(&l, MOST - 7);
    /* The step behind it changes nothing because of it, and says so. */
    const clt_status status = clt_trainer_result(l.trainer, late ? 4 : 3, &result);
    assert_int_equal(status, CLT_NONFINITE);
    char named[96];
    snprintf(named, sizeof named, "step 4: input x is not finite in sample %d of the batch;",
             sample);
    if (!strstr(clt_error_message(), named))
        fail_msg("%s, sample %d, late %d: %s", list, sample, late, clt_error_message());
    /* Command-line options do not help a user of the library. */
    assert_null(strstr(clt_error_message(), "--"));
    /* No further step trains. */
    clt_status later = CLT_OK;
    for (int s = 0; s < 3 && later == CLT_OK; s++) {
        const clt_step_batch batch = batch_of(MOST);
        later = clt_trainer_step(l.trainer, &batch, NULL);
    }
    assert_int_equal(later, CLT_NONFINITE);
    ok(clt_trainer_wait(l.trainer));
    float *after = values_of(&l, &after_bytes);
    assert_memory_equal(before, after, bytes);
    ok(clt_store_check(l.store));
    free(before);
    free(after);
    lab_close(&l);
}

static void test_guard(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        guard_on("pocl", 1, 0, late);
        guard_on("pocl", 1, MOST - 1, late);
        guard_on("pocl", 3, 1, late);
        guard_on("pocl", 3, MOST - 2, late);
        guard_on("pocl/2", 1, 0, late);
        guard_on("pocl/2", 1, MOST - 1, late);
        guard_on("pocl/2", 2, MOST - 1, late);
    }
}

/* --- state ----------------------------------------------------------------------------------- */

/* Builds mean = 0.75 mean + 0.25 (mean of the batch) and steps = steps + 1. With `whole`, an
 * integer `seen`: whether an x[0] of the batch is above 0. */
static clt_graph *build_with_state(int with_mean, int whole)
{
    const int64_t in[] = {CLT_BATCH, IN}, mean_dims[] = {IN}, one[] = {1};
    const int axis = 0;
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    clt_value *y = layer(graph, x, "a.weight", "a.bias", IN, IN);
    clt_mse(y, x, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    clt_value *steps = clt_state(graph, "steps", CLT_F32, 1, one, (clt_init){0});
    clt_assign(graph, steps, clt_add_scalar(steps, 1));
    if (with_mean) {
        clt_value *mean = clt_state(graph, "mean", CLT_F32, 1, mean_dims, (clt_init){0});
        clt_assign(
            graph, mean,
            clt_add(clt_scale(mean, 0.75), clt_scale(clt_reduce_mean(x, &axis, 1, 0), 0.25)));
    }
    if (whole) {
        clt_value *seen = clt_state(graph, "seen", CLT_I32, 1, mean_dims, (clt_init){0});
        clt_assign(graph, seen, clt_cast(clt_reduce_max(x, &axis, 1, 0), CLT_I32));
    }
    ok(clt_graph_status(graph));
    return graph;
}

static clt_step_batch inputs_of(int64_t count)
{
    clt_step_batch batch = batch_of(count);
    batch.n_feeds = 1;
    return batch;
}

/* Statistics are those of the whole batch for every division. The steps count even without samples.
 * Neither an evaluation nor a step that is not committed changes a state. */
static void state_on(const char *list, int accumulate)
{
    static const int64_t counts[] = {MOST, MOST - 3, 0, 17, 1, 2, MOST};
    clt_trainer_options options = default_options();
    options.accumulate = accumulate;
    lab l = lab_on(clt_test_devices(list), NULL);
    double want[IN] = {0}, sums[1] = {0}, weights[1] = {0};
    float mean[IN], steps;
    lab_store(&l, build_with_state(1, 0), 5);
    lab_trainer(&l, &options);
    for (int s = 0; s < 7; s++) {
        const clt_step_batch batch = inputs_of(counts[s]);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        for (int i = 0; i < IN && counts[s]; i++) {
            double sum = 0;
            for (int64_t n = 0; n < counts[s]; n++)
                sum += (double)xs[n * IN + i];
            want[i] = 0.75 * want[i] + 0.25 * sum / (double)counts[s];
        }
        ok(clt_store_check(l.store));
        ok(clt_store_get(l.store, "mean", mean, sizeof mean));
        for (int i = 0; i < IN; i++)
            assert_true(fabs((double)mean[i] - want[i]) < 1e-6);
    }
    clt_step_batch batch = inputs_of(MOST);
    ok(clt_trainer_evaluate(l.trainer, &batch, sums, weights));
    const float kept = xs[0];
    xs[0] = INFINITY;
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_wait(l.trainer));
    xs[0] = kept;
    ok(clt_store_check(l.store));
    ok(clt_store_get(l.store, "mean", mean, sizeof mean));
    ok(clt_store_get(l.store, "steps", &steps, sizeof steps));
    for (int i = 0; i < IN; i++)
        assert_true(fabs((double)mean[i] - want[i]) < 1e-6);
    assert_true(steps == 7);
    lab_close(&l);
}

static void test_state(void **state)
{
    (void)state;
    for (int accumulate = 1; accumulate < 4; accumulate++) {
        state_on("pocl", accumulate);
        state_on("pocl/2", accumulate);
    }
}

/* A state that does not depend on the batch is not reduced. An integer state has no mean. */
static void test_state_without_mean(void **state)
{
    clt_trainer_options options = default_options();
    (void)state;
    for (int with_mean = 0; with_mean < 2; with_mean++) {
        lab l = lab_on(clt_test_devices("pocl/2"), NULL);
        lab_store(&l, build_with_state(with_mean, 0), 5);
        lab_trainer(&l, &options);
        assert_int_equal(clt_states_have_means(l.trainer->states), with_mean && l.n > 1);
        lab_close(&l);
    }
    lab l = lab_on(clt_test_devices("pocl/2"), NULL);
    lab_store(&l, build_with_state(1, 1), 5);
    if (l.n > 1) {
        assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &l.trainer),
                         CLT_UNSUPPORTED);
        assert_non_null(strstr(clt_error_message(), "state seen takes a value of i32"));
    } else {
        const clt_step_batch batch = inputs_of(MOST);
        int32_t seen[IN];
        lab_trainer(&l, &options);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_store_get(l.store, "seen", seen, sizeof seen));
        assert_int_equal(seen[0], 1);
    }
    lab_close(&l);
}

/* States get the values that other states and parameters had in the step, in any order of
 * assignment. So does a view of a state. */
static void test_states_of_states(void **state)
{
    const int64_t in[] = {CLT_BATCH, IN}, one[] = {1}, wide[] = {IN}, row[] = {1, IN};
    clt_trainer_options options = default_options();
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    float before[IN], after[IN], old[IN], counts[2];
    (void)state;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    clt_mse(layer(graph, x, "a.weight", "a.bias", IN, IN), x, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    clt_value *now = clt_state(graph, "now", CLT_F32, 1, one, (clt_init){0});
    clt_value *last = clt_state(graph, "last", CLT_F32, 1, one, (clt_init){0});
    clt_value *bias = clt_state(graph, "bias", CLT_F32, 2, row, (clt_init){0});
    clt_value *copy = clt_state(graph, "copy", CLT_F32, 1, wide, (clt_init){0});
    clt_assign(graph, now, clt_add_scalar(now, 1));
    clt_assign(graph, last, now);
    clt_assign(graph, bias, clt_reshape(clt_graph_find(graph, "a.bias"), 2, row));
    clt_assign(graph, copy, clt_graph_find(graph, "a.bias"));
    ok(clt_graph_status(graph));
    lab l = lab_on(clt_test_devices("pocl/2"), NULL);
    lab_store(&l, graph, 5);
    lab_trainer(&l, &options);
    const clt_step_batch batch = inputs_of(MOST);
    for (int s = 0; s < 3; s++) {
        ok(clt_store_get(l.store, "a.bias", before, sizeof before));
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_store_get(l.store, "a.bias", after, sizeof after));
        assert_memory_not_equal(before, after, sizeof before);
        ok(clt_store_get(l.store, "bias", old, sizeof old));
        assert_memory_equal(before, old, sizeof before);
        ok(clt_store_get(l.store, "copy", old, sizeof old));
        assert_memory_equal(before, old, sizeof before);
        ok(clt_store_get(l.store, "now", &counts[0], sizeof *counts));
        ok(clt_store_get(l.store, "last", &counts[1], sizeof *counts));
        assert_true(counts[0] == (float)s + 1 && counts[1] == (float)s);
    }
    ok(clt_store_check(l.store));
    lab_close(&l);
}

/* A device without samples has the inputs without a batch dimension, or zeros in their place. */
static void test_inputs_without_batch(void **state)
{
    const int64_t in[] = {CLT_BATCH, IN}, one[] = {1};
    static const float term = 3;
    clt_trainer_options options = default_options();
    clt_value *sum = NULL, *weight = NULL;
    (void)state;
    for (int each = 0; each < 2; each++) {
        const clt_feed both[] = {{"x", -1, CLT_HOST(xs)}, {"term", each - 1, CLT_HOST(&term)}};
        clt_graph *graph;
        float total;
        ok(clt_graph_create(&graph));
        clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
        clt_mse(layer(graph, x, "a.weight", "a.bias", IN, IN), x, &sum, &weight);
        clt_loss(graph, "loss", sum, weight, 1);
        clt_value *state_of = clt_state(graph, "total", CLT_F32, 1, one, (clt_init){0});
        clt_assign(graph, state_of, clt_add(state_of, clt_input(graph, "term", CLT_F32, 1, one)));
        lab l = lab_on(clt_test_devices("pocl/2"), NULL);
        lab_store(&l, graph, 5);
        lab_trainer(&l, &options);
        clt_step_batch batch = batch_of(1);
        batch.feeds = both;
        for (int s = 0; s < 3; s++)
            ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_store_get(l.store, "total", &total, sizeof total));
        assert_true(total == 9);
        ok(clt_store_check(l.store));
        lab_close(&l);
    }
}

static int set_up(void **state)
{
    make_samples(xs, labels, MOST, IN, CLASSES);
    return open_runtime(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_splits),
                                       cmocka_unit_test(test_streaming),
                                       cmocka_unit_test(test_repeats),
                                       cmocka_unit_test(test_plans_on_one_store),
                                       cmocka_unit_test(test_nearest_name),
                                       cmocka_unit_test(test_guard),
                                       cmocka_unit_test(test_state),
                                       cmocka_unit_test(test_state_without_mean),
                                       cmocka_unit_test(test_states_of_states),
                                       cmocka_unit_test(test_inputs_without_batch)};
    return cmocka_run_group_tests(tests, set_up, close_runtime);
}
