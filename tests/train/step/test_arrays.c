/* Feeds and fetches of arrays with gaps, in another order and of other types: results have the bits
 * of those of dense arrays, and the caller's memory is free when a call returns. */
#include "train/lab.h"
#include "device/core/device.h"

enum { IN = 5, CLASSES = 3, MOST = 23, STEPS = 3, WIDE = 7 };

/* The samples as a Fortran program has them, (feature, sample) in real64 and integer*8, and the
 * dense arrays of the same samples. */
static double turned[IN][MOST];
static int64_t wide[MOST][WIDE];
static float xs[MOST * IN];
static int32_t labels[MOST];

static void fill(int step)
{
    for (int i = 0; i < MOST; i++) {
        for (int k = 0; k < IN; k++) {
            turned[k][i] = sin(0.7 * (i + 1) * (k + 2) + step);
            xs[i * IN + k] = (float)turned[k][i];
        }
        labels[i] = (i * i + step) % CLASSES;
        wide[i][2] = labels[i];
    }
}

static void spoil(void)
{
    for (int i = 0; i < MOST; i++) {
        wide[i][2] = -77;
        for (int k = 0; k < IN; k++)
            turned[k][i] = NAN;
    }
}

/* The views for samples [first, first + count). */
static clt_array x_view(int64_t first, int64_t count)
{
    return (clt_array){.host = turned,
                       .offset = first * (int64_t)sizeof(double),
                       .bytes = sizeof turned,
                       .dtype = CLT_F64,
                       .rank = 2,
                       .shape = {count, IN},
                       .strides = {sizeof(double), MOST * sizeof(double)}};
}

static clt_array label_view(int64_t first, int64_t count)
{
    return (clt_array){.host = wide,
                       .offset = (first * WIDE + 2) * (int64_t)sizeof(int64_t),
                       .bytes = sizeof wide,
                       .dtype = CLT_I64,
                       .rank = 1,
                       .shape = {count},
                       .strides = {WIDE * sizeof(int64_t)}};
}

/* Every second column, from the last one on, of a table of doubles. */
static double table[MOST][2 * CLASSES];
static clt_array logits_view(int64_t count)
{
    return (clt_array){.host = table,
                       .offset = (2 * CLASSES - 1) * (int64_t)sizeof(double),
                       .bytes = sizeof table,
                       .dtype = CLT_F64,
                       .rank = 2,
                       .shape = {count, CLASSES},
                       .strides = {sizeof table[0], -2 * (int64_t)sizeof(double)}};
}

static void same_logits(const float *want, int64_t count)
{
    for (int i = 0; i < count; i++)
        for (int c = 0; c < CLASSES; c++) {
            assert_true(table[i][2 * CLASSES - 1 - 2 * c] == (double)want[i * CLASSES + c]);
            assert_true(table[i][2 * CLASSES - 2 - 2 * c] == 4.5); /* is not of the array */
        }
    for (int64_t i = count; i < MOST; i++)
        assert_true(table[i][1] == 4.5);
}

static void clear_table(void)
{
    for (int i = 0; i < MOST; i++)
        for (int c = 0; c < 2 * CLASSES; c++)
            table[i][c] = 4.5;
}

static lab lab_open(const char *list, int accumulate)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = MOST;
    options.accumulate = accumulate;
    options.poison = 1;
    lab l = lab_on_kept(list);
    clt_graph *graph;
    clt_value *sum = NULL, *weight = NULL;
    const int64_t in[] = {CLT_BATCH, IN}, one[] = {CLT_BATCH};
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    clt_value *h = clt_relu(layer(graph, x, "h.weight", "h.bias", IN, 9));
    clt_value *logits = clt_output(layer(graph, h, "o.weight", "o.bias", 9, CLASSES), "logits");
    clt_cross_entropy(logits, clt_input(graph, "label", CLT_I32, 1, one), NULL, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    lab_store(&l, graph, 4);
    lab_trainer(&l, &options);
    return l;
}

static clt_step_batch batch_of(const clt_feed *feeds, const clt_fetch *fetch, int64_t count)
{
    clt_step_batch batch = lab_batch(feeds, count);
    batch.fetches = fetch;
    batch.n_fetches = 1;
    return batch;
}

/* Trains, evaluates and predicts with views on one lab and with dense arrays on another. `apart`:
 * each device has feeds of its own. */
static void compare(const char *list, int accumulate, bool apart)
{
    lab a = lab_open(list, accumulate), b = lab_open(list, accumulate);
    float want[MOST * CLASSES], x[9 * IN], y[9 * IN];
    double sums[2][1] = {{0}}, weights[2][1] = {{0}};
    for (int step = 0; step < STEPS; step++) {
        const int64_t count = MOST - step, half = (count + 1) / 2;
        fill(step);
        clear_table();
        const clt_feed dense[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
        const clt_fetch plain = {"logits", -1, CLT_HOST(want)};
        const clt_feed views[] = {{"x", apart ? 0 : -1, x_view(0, apart ? half : count)},
                                  {"label", -1, label_view(0, count)},
                                  {"x", 1, x_view(half, count - half)}};
        const clt_fetch view = {"logits", -1, logits_view(count)};
        const clt_step_batch first = batch_of(dense, &plain, count);
        clt_step_batch second = batch_of(views, &view, count);
        second.n_feeds = apart ? 3 : 2;
        ok(clt_trainer_step(a.trainer, &first, NULL));
        ok(clt_trainer_wait(a.trainer));
        ok(clt_trainer_step(b.trainer, &second, NULL));
        spoil();
        same_logits(want, count);
        fill(step);
        clear_table();
        ok(clt_trainer_predict(a.trainer, &first, NULL));
        ok(clt_trainer_wait(a.trainer));
        ok(clt_trainer_predict(b.trainer, &second, NULL));
        spoil();
        same_logits(want, count);
        fill(step);
        ok(clt_trainer_evaluate(a.trainer, &first, sums[0], weights[0]));
        ok(clt_trainer_evaluate(b.trainer, &second, sums[1], weights[1]));
        assert_true(sums[0][0] == sums[1][0] && weights[0][0] == weights[1][0]);
    }
    ok(clt_store_get(a.store, "h.weight", x, sizeof x));
    ok(clt_store_get(b.store, "h.weight", y, sizeof y));
    assert_memory_equal(x, y, sizeof x);
    lab_close(&b);
    lab_close(&a);
}

static void one_device(void **state)
{
    (void)state;
    compare(clt_test_devices("0"), 1, false);
    compare(clt_test_devices("0"), 3, false);
}

static void two_devices(void **state)
{
    (void)state;
    compare(clt_test_devices("pocl@1,pocl@1"), 1, false);
    compare(clt_test_devices("pocl@1,pocl@1"), 1, true);
}

/* Steps that are queued read their own copies. */
static void queued_steps_have_memory_of_their_own(void **state)
{
    (void)state;
    lab a = lab_open("0", 1), b = lab_open("0", 1);
    float x[9 * IN], y[9 * IN];
    for (int step = 0; step < 8; step++) {
        const clt_feed dense[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
        const clt_feed views[] = {{"x", -1, x_view(0, MOST)}, {"label", -1, label_view(0, MOST)}};
        const clt_step_batch first = lab_batch(dense, MOST), second = lab_batch(views, MOST);
        fill(step);
        ok(clt_trainer_step(a.trainer, &first, NULL));
        ok(clt_trainer_wait(a.trainer));
        ok(clt_trainer_step(b.trainer, &second, NULL));
        spoil();
    }
    ok(clt_store_get(a.store, "h.weight", x, sizeof x));
    ok(clt_store_get(b.store, "h.weight", y, sizeof y));
    assert_memory_equal(x, y, sizeof x);
    lab_close(&b);
    lab_close(&a);
}

static void refuse(const lab *l, const clt_feed *feeds, const char *text)
{
    const clt_step_batch batch = lab_batch(feeds, MOST);
    assert_int_equal(clt_trainer_step(l->trainer, &batch, NULL), CLT_INVALID_ARGUMENT);
    if (!strstr(clt_error_message(), text))
        fail_msg("message '%s' does not have '%s'", clt_error_message(), text);
}

static void wrong_arrays_are_refused(void **state)
{
    (void)state;
    lab l = lab_open("0", 1);
    fill(0);
    clt_feed feeds[] = {{"x", -1, x_view(0, MOST)}, {"label", -1, label_view(0, MOST)}};
    feeds[0].array.shape[0]--;
    refuse(&l, feeds, "feed x is f64 [22, 5], and must be f32 [23, 5] (or f64)");
    feeds[0].array = x_view(0, MOST);
    feeds[0].array.rank = 1;
    refuse(&l, feeds, "feed x is f64 [23], and must be f32 [23, 5] (or f64)");
    feeds[0].array = x_view(0, MOST);
    feeds[0].array.dtype = CLT_I64;
    refuse(&l, feeds, "feed x is i64 [23, 5], and must be f32 [23, 5] (or f64)");
    feeds[0].array = x_view(1, MOST);
    refuse(&l, feeds, "feed x has elements in bytes 8 to 927 of a memory of 920 bytes");
    feeds[0].array = x_view(0, MOST);
    wide[4][2] = 1LL << 40;
    refuse(&l, feeds, "feed label: element 4 (counted row-major) does not fit in 32 bits");
    wide[4][2] = 1;
    const clt_step_batch batch = lab_batch(feeds, MOST);
    ok(clt_trainer_step(l.trainer, &batch, NULL)); /* nothing is lost */
    assert_int_equal(clt_trainer_steps(l.trainer), 1);
    lab_close(&l);
}

/* Parameters and gradients in the order of Fortran, in f64, and a parameter in a buffer. */
static void parameters_and_gradients(void **state)
{
    (void)state;
    lab l = lab_open("0", 1);
    enum { OUT = 9 };
    float dense[OUT * IN], back[OUT * IN];
    double columns[IN][OUT];
    const clt_array view = {.host = columns,
                            .bytes = sizeof columns,
                            .dtype = CLT_F64,
                            .rank = 2,
                            .shape = {OUT, IN},
                            .strides = {sizeof(double), sizeof columns[0]}};
    ok(clt_store_get(l.store, "h.weight", dense, sizeof dense));
    ok(clt_store_get_array(l.store, "h.weight", &view));
    for (int o = 0; o < OUT; o++)
        for (int k = 0; k < IN; k++) {
            assert_true(columns[k][o] == (double)dense[o * IN + k]);
            columns[k][o] = o - 0.25 * k;
        }
    ok(clt_store_set_array(l.store, "h.weight", &view));
    ok(clt_store_get(l.store, "h.weight", back, sizeof back));
    for (int o = 0; o < OUT; o++)
        for (int k = 0; k < IN; k++)
            assert_true((double)back[o * IN + k] == o - 0.25 * k);

    cl_mem mem;
    ok(clt_device_buffer_create(l.devices[0], sizeof dense + 64, CL_MEM_READ_WRITE, "own", &mem));
    clt_array buffer = CLT_BUFFER(mem, 64);
    ok(clt_store_get_array(l.store, "h.weight", &buffer));
    ok(clt_store_set(l.store, "h.weight", dense, sizeof dense));
    ok(clt_store_set_array(l.store, "h.weight", &buffer));
    ok(clt_store_get_array(l.store, "h.weight", &(clt_array)CLT_HOST(dense)));
    assert_memory_equal(dense, back, sizeof dense);
    buffer.offset = 80;
    assert_int_equal(clt_store_get_array(l.store, "h.weight", &buffer), CLT_INVALID_ARGUMENT);
    clt_release_buffer(mem);

    fill(0);
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    const clt_step_batch batch = lab_batch(feeds, MOST);
    ok(clt_trainer_forward(l.trainer, &batch));
    ok(clt_trainer_backward(l.trainer));
    ok(clt_trainer_gradient(l.trainer, 0, "h.weight", dense, sizeof dense));
    ok(clt_trainer_gradient_array(l.trainer, 0, "h.weight", &view));
    for (int o = 0; o < OUT; o++)
        for (int k = 0; k < IN; k++) {
            assert_true(columns[k][o] == (double)dense[o * IN + k]);
            columns[k][o] *= 2;
        }
    ok(clt_trainer_set_gradient_array(l.trainer, 0, "h.weight", &view));
    ok(clt_trainer_gradient(l.trainer, 0, "h.weight", back, sizeof back));
    for (int i = 0; i < OUT * IN; i++)
        assert_true(back[i] == 2 * dense[i]);
    clt_array wrong = view;
    wrong.shape[0] = IN;
    wrong.shape[1] = OUT;
    wrong.bytes = 0;
    assert_int_equal(clt_trainer_gradient_array(l.trainer, 0, "h.weight", &wrong),
                     CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(),
                           "the array for h.weight is f64 [5, 9], and must be f32 [9, 5]"));
    assert_int_equal(clt_store_get_array(l.store, "h.weight", &wrong), CLT_INVALID_ARGUMENT);
    lab_close(&l);
}

/* The optimizer's tensors in the order of Fortran, and they and a gradient in buffers, on one
 * device and on two. */
static void slots_and_buffers(void **state)
{
    (void)state;
    enum { OUT = 9 };
    const int64_t bytes = OUT * IN * (int64_t)sizeof(float);
    for (int devices = 1; devices <= 2; devices++) {
        float dense[OUT * IN], back[OUT * IN];
        double columns[IN][OUT];
        cl_mem mem;
        clt_array view = {.host = columns,
                          .bytes = sizeof columns,
                          .dtype = CLT_F64,
                          .rank = 2,
                          .shape = {OUT, IN},
                          .strides = {sizeof(double), sizeof columns[0]}};
        const clt_array host = CLT_HOST(back);
        lab l = lab_on_kept(clt_test_devices(devices == 1 ? "pocl" : "pocl/2"));
        clt_trainer_options options;
        clt_trainer_options_init(&options);
        options.optimizer = CLT_MOMENTUM;
        options.batch = MOST;
        lab_store(&l, classifier(IN, OUT, CLASSES), 4);
        lab_trainer(&l, &options);
        ok(clt_device_buffer_create(l.devices[0], bytes + 64, CL_MEM_READ_WRITE, "own", &mem));
        const clt_array buffer = CLT_BUFFER(mem, 64);
        fill(0);
        const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
        const clt_step_batch batch = lab_batch(feeds, MOST);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_slot_get(l.trainer, 0, "a.weight", dense, sizeof dense));
        ok(clt_trainer_slot_get_array(l.trainer, 0, "a.weight", &view));
        for (int o = 0; o < OUT; o++)
            for (int k = 0; k < IN; k++) {
                assert_true(columns[k][o] == (double)dense[o * IN + k]);
                columns[k][o] = o - 0.25 * k;
            }
        ok(clt_trainer_slot_set_array(l.trainer, 0, "a.weight", &view));
        ok(clt_trainer_slot_get(l.trainer, 0, "a.weight", back, sizeof back));
        for (int o = 0; o < OUT; o++)
            for (int k = 0; k < IN; k++)
                assert_true((double)back[o * IN + k] == o - 0.25 * k);
        ok(clt_trainer_slot_get_array(l.trainer, 0, "a.weight", &buffer));
        ok(clt_trainer_slot_set(l.trainer, 0, "a.weight", dense, sizeof dense));
        /* Also to devices that have contexts of their own. */
        ok(clt_trainer_slot_set_array(l.trainer, 0, "a.weight", &buffer));
        ok(clt_trainer_slot_get_array(l.trainer, 0, "a.weight", &(clt_array)CLT_HOST(dense)));
        assert_memory_equal(dense, back, sizeof dense);
        view.shape[0] = 2;
        assert_int_equal(clt_trainer_slot_get_array(l.trainer, 0, "a.weight", &view),
                         CLT_INVALID_ARGUMENT);
        assert_int_equal(clt_trainer_slot_get_array(l.trainer, 1, "a.weight", &host),
                         CLT_INVALID_ARGUMENT);
        assert_int_equal(clt_trainer_slot_set_array(l.trainer, 0, "z", &host), CLT_NOT_FOUND);

        ok(clt_trainer_gradients(l.trainer, &batch));
        ok(clt_trainer_gradient(l.trainer, 0, "a.weight", dense, sizeof dense));
        ok(clt_trainer_gradient_array(l.trainer, 0, "a.weight", &buffer));
        memset(back, 0, sizeof back);
        ok(clt_trainer_set_gradient(l.trainer, 0, "a.weight", back, sizeof back));
        ok(clt_trainer_set_gradient_array(l.trainer, 0, "a.weight", &buffer));
        ok(clt_trainer_gradient(l.trainer, 0, "a.weight", back, sizeof back));
        assert_memory_equal(dense, back, sizeof dense);
        clt_release_buffer(mem);
        lab_close(&l);
    }
}

/* The short forms make the steps and predictions of the long ones. */
static void short_forms(void **state)
{
    (void)state;
    lab a = lab_open("0", 1), b = lab_open("0", 1);
    float want[MOST * CLASSES];
    for (int step = 0; step < STEPS; step++) {
        const int64_t count = MOST - step;
        const clt_feed dense[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
        const clt_feed views[] = {{"x", -1, x_view(0, count)}, {"label", -1, label_view(0, count)}};
        const clt_step_batch batch = lab_batch(dense, count);
        clt_step_result result;
        double loss = -1;
        fill(step);
        clt_step_result_init(&result);
        ok(clt_trainer_step(a.trainer, &batch, NULL));
        ok(clt_trainer_result(a.trainer, step, &result));
        ok(clt_step_arrays(b.trainer, views, 2, step == 1 ? NULL : &loss));
        assert_true(step == 1 ? loss == -1 : loss == result.loss);
    }
    const clt_feed dense[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    const clt_fetch plain = {"logits", -1, CLT_HOST(want)};
    const clt_step_batch batch = batch_of(dense, &plain, MOST);
    fill(9);
    clear_table();
    ok(clt_trainer_predict(a.trainer, &batch, NULL));
    ok(clt_trainer_wait(a.trainer));
    clt_feed views[] = {{"x", -1, x_view(0, MOST)}, {"label", -1, label_view(0, MOST - 1)}};
    const clt_fetch view = {"logits", -1, logits_view(MOST)};
    ok(clt_predict_arrays(b.trainer, views, 1, &view, 1)); /* labels are not needed */
    same_logits(want, MOST);

    assert_int_equal(clt_step_arrays(b.trainer, views, 2, NULL), CLT_INVALID_ARGUMENT);
    assert_non_null(
        strstr(clt_error_message(), "feed label has 22 samples, and feeds before it 23"));
    assert_int_equal(clt_step_arrays(b.trainer, dense, 2, NULL), CLT_INVALID_ARGUMENT);
    views[0].name = "z";
    assert_int_equal(clt_step_arrays(b.trainer, views, 2, NULL), CLT_NOT_FOUND);
    assert_int_equal(clt_trainer_steps(b.trainer), STEPS);
    lab_close(&b);
    lab_close(&a);
}

/* With `copied`, dense memory may change behind the call too, and fetches are there. */
static void copied_memory_is_free_at_once(void **state)
{
    (void)state;
    lab a = lab_open("0", 1), b = lab_open("0", 1);
    float x[9 * IN], y[9 * IN], want[MOST * CLASSES], got[MOST * CLASSES];
    static float mine[MOST * IN];
    int32_t own[MOST];
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    const clt_feed loose[] = {{"x", -1, CLT_HOST(mine)}, {"label", -1, CLT_HOST(own)}};
    const clt_fetch fetch = {"logits", -1, CLT_HOST(want)}, other = {"logits", -1, CLT_HOST(got)};
    for (int step = 0; step < 6; step++) {
        fill(step);
        memcpy(mine, xs, sizeof mine);
        memcpy(own, labels, sizeof own);
        const clt_step_batch first = batch_of(feeds, &fetch, MOST);
        clt_step_batch second = batch_of(loose, &other, MOST);
        second.copied = 1;
        second.n_fetches = step % 2;
        ok(clt_trainer_step(a.trainer, &first, NULL));
        ok(clt_trainer_wait(a.trainer));
        ok(clt_trainer_step(b.trainer, &second, NULL));
        memset(mine, 0xff, sizeof mine);
        memset(own, 0xff, sizeof own);
        if (step % 2)
            assert_memory_equal(want, got, sizeof got);
    }
    clt_step_batch empty = lab_batch(loose, 0);
    empty.copied = 1;
    ok(clt_trainer_predict(b.trainer, &empty, NULL));
    ok(clt_trainer_wait(b.trainer));
    ok(clt_store_get(a.store, "h.weight", x, sizeof x));
    ok(clt_store_get(b.store, "h.weight", y, sizeof y));
    assert_memory_equal(x, y, sizeof x);
    lab_close(&b);
    lab_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device),
        cmocka_unit_test(two_devices),
        cmocka_unit_test(queued_steps_have_memory_of_their_own),
        cmocka_unit_test(wrong_arrays_are_refused),
        cmocka_unit_test(parameters_and_gradients),
        cmocka_unit_test(slots_and_buffers),
        cmocka_unit_test(short_forms),
        cmocka_unit_test(copied_memory_is_free_at_once),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
