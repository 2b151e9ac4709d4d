/* Training with dropout of attention weights and a learnt position bias. Steps are the same on one
 * device and on several, in micro-batches, in 16 bits and with recomputation. Evaluation drops
 * nothing. */
#include "train/lab.h"

enum { BATCH = 7, STEPS = 3, T = 12, HEADS = 2, SIZE = 16, WIDTH = HEADS * SIZE };
enum { ROWS = 3 * WIDTH, BIAS = HEADS * T * T, ALL = BIAS + ROWS };

static float x[BATCH * T * ROWS], target[BATCH * T * WIDTH];

static clt_graph *build(double dropout)
{
    const int64_t dims[] = {CLT_BATCH, T, ROWS}, to[] = {CLT_BATCH, T, WIDTH};
    const int64_t bias[] = {HEADS, T, T}, width[] = {ROWS};
    const clt_init init = {CLT_INIT_UNIFORM, 0.5, 0};
    clt_attention_options o;
    clt_value *sum, *weight;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_attention_options_init(&o);
    o.dropout = dropout;
    o.attn_mask = clt_parameter(g, "bias", 3, bias, init);
    clt_value *shift = clt_parameter(g, "shift", 1, width, init);
    clt_value *y =
        clt_attention_packed(clt_add(clt_input(g, "x", CLT_F32, 3, dims), shift), HEADS, 0, &o);
    clt_mse(y, clt_input(g, "target", CLT_F32, 3, to), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

typedef struct outcome {
    double losses[STEPS], evaluated; /* before the first step */
    float numbers[ALL];              /* the parameters after all steps */
} outcome;

static outcome run(const char *list, double dropout, const clt_trainer_options *given)
{
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(x)}, {"target", -1, CLT_HOST(target)}};
    clt_trainer_options options = *given;
    outcome o;
    options.batch = BATCH;
    options.lr = 0.5;
    options.seed = 11;
    options.poison = 1;
    lab l = lab_on_kept(clt_test_devices(list));
    lab_store(&l, build(dropout), 3);
    lab_trainer(&l, &options);
    clt_step_batch batch;
    clt_step_result result;
    clt_step_result_init(&result);
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    double sum = 0, weight = 0;
    ok(clt_trainer_evaluate(l.trainer, &batch, &sum, &weight));
    o.evaluated = sum / weight;
    for (int i = 0; i < STEPS; i++) {
        clt_step_result_init(&result);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_result(l.trainer, i, &result));
        o.losses[i] = result.loss;
    }
    ok(clt_store_get(l.store, "bias", o.numbers, BIAS * sizeof *o.numbers));
    ok(clt_store_get(l.store, "shift", o.numbers + BIAS, ROWS * sizeof *o.numbers));
    lab_close(&l);
    return o;
}

static double farthest(const outcome *a, const outcome *b)
{
    double far = 0;
    for (int i = 0; i < STEPS; i++)
        far = fmax(far, fabs(a->losses[i] - b->losses[i]));
    for (int i = 0; i < ALL; i++)
        far = fmax(far, fabs((double)a->numbers[i] - (double)b->numbers[i]));
    return far;
}

static void close_to(const char *what, const outcome *a, const outcome *b, double limit)
{
    const double far = farthest(a, b);
    if (!(far <= limit))
        fail_msg("%s: losses or parameters differ by %g", what, far);
}

static int make_data(void **state)
{
    for (int i = 0; i < BATCH * T * ROWS; i++)
        x[i] = (float)((i * 37 + i / 101) % 203 - 101) / 80;
    for (int i = 0; i < BATCH * T * WIDTH; i++)
        target[i] = (float)((i * 29 + i / 71) % 113 - 56) / 80;
    return open_runtime(state);
}

/* Dropout depends only on the sample, on whatever device it is computed. */
static void test_devices(void **state)
{
    (void)state;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    const outcome one = run("cpu@1", 0.4, &options);
    const outcome two = run("cpu/2", 0.4, &options);
    close_to("two devices", &one, &two, 1e-5);
    options.weights = (const double[]){5, 2};
    const outcome uneven = run("cpu/2", 0.4, &options);
    close_to("an uneven division", &one, &uneven, 1e-5);
    clt_trainer_options_init(&options);
    options.accumulate = 3;
    const outcome parts = run("cpu@1", 0.4, &options);
    close_to("micro-batches", &one, &parts, 1e-5);
}

static void test_recompute(void **state)
{
    (void)state;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    const outcome plain = run("cpu/2", 0.4, &options);
    options.recompute = 1;
    const outcome again = run("cpu/2", 0.4, &options);
    assert_true(farthest(&plain, &again) == 0);
}

static void test_half(void **state)
{
    (void)state;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    const outcome exact = run("cpu@1", 0.4, &options);
    options.precision = CLT_BF16;
    const outcome one = run("cpu@1", 0.4, &options), two = run("cpu/2", 0.4, &options);
    close_to("16 bits", &exact, &one, 3e-2);
    close_to("16 bits on two devices", &one, &two, 1e-2);
}

/* Evaluation drops nothing. */
static void test_evaluation(void **state)
{
    (void)state;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    const outcome dropped = run("cpu@1", 0.4, &options), whole = run("cpu@1", 0, &options);
    assert_true(dropped.evaluated == whole.evaluated);
    assert_true(fabs(whole.losses[0] - whole.evaluated) < 1e-6);
    assert_true(fabs(dropped.losses[0] - whole.evaluated) > 1e-3);
    assert_true(farthest(&dropped, &whole) > 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices), cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_half), cmocka_unit_test(test_evaluation)};
    return cmocka_run_group_tests(tests, make_data, close_runtime);
}
