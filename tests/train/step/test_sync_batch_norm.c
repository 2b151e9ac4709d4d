/* Synchronised batch norm: several devices with any division of the batch give what one device
 * gives with the whole batch. Without synchronisation, running statistics are means over the
 * devices. */
#include "train/lab.h"

enum { CHANNELS = 3, SIDE = 5, IN = CHANNELS * SIDE * SIDE, CLASSES = 4, MOST = 24, STEPS = 4 };

static float xs[MOST * IN];
static int32_t labels[MOST];

static clt_graph *network(int synchronised)
{
    const int64_t dims[] = {CLT_BATCH, CHANNELS, SIDE, SIDE}, one[] = {CLT_BATCH};
    const int64_t channels = CHANNELS, mix[] = {CHANNELS, CHANNELS, 1, 1};
    const clt_init uniform = {CLT_INIT_UNIFORM, 0.6, 0};
    const clt_init zero = {CLT_INIT_ZERO, 0, 0}, unit = {CLT_INIT_CONSTANT, 1, 0};
    clt_batch_norm_options options;
    clt_graph *g;
    clt_value *sum, *weight;
    clt_batch_norm_options_init(&options);
    options.synchronised = synchronised;
    ok(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 4, dims),
              *label = clt_input(g, "label", CLT_I32, 1, one);
    /* A parameter comes before batch norm, so its gradient passes through the statistics. */
    x = clt_conv2d(x, clt_parameter(g, "mix.weight", 4, mix, uniform), NULL, NULL);
    x = clt_relu(clt_batch_norm(x, clt_parameter(g, "bn.weight", 1, &channels, unit),
                                clt_parameter(g, "bn.bias", 1, &channels, zero),
                                clt_state(g, "bn.running_mean", CLT_F32, 1, &channels, zero),
                                clt_state(g, "bn.running_var", CLT_F32, 1, &channels, unit),
                                clt_state(g, "bn.num_batches_tracked", CLT_I32, 0, NULL, zero),
                                &options));
    clt_value *logits = layer(g, clt_flatten(x), "fc.weight", "fc.bias", IN, CLASSES);
    clt_cross_entropy(logits, label, NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

typedef struct outcome {
    double losses[STEPS];
    float mix[CHANNELS * CHANNELS], weight[CHANNELS], bias[CHANNELS], mean[CHANNELS], var[CHANNELS],
        fc[CLASSES * IN];
    int32_t tracked;
} outcome;

static double lr = 0.1;

/* `offsets` is by step; NULL: evenly. */
static outcome train(const char *list, int synchronised, int64_t count, const int64_t (*offsets)[3],
                     int accumulate)
{
    outcome o;
    clt_trainer_options options;
    lab l = lab_on_kept(clt_test_devices(list));
    clt_trainer_options_init(&options);
    options.batch = 2 * MOST; /* one device has room for all samples */
    options.lr = lr;
    options.accumulate = accumulate;
    options.rebalance = offsets != NULL;
    options.poison = 1;
    lab_store(&l, network(synchronised), 3);
    lab_trainer(&l, &options);
    for (int s = 0; s < STEPS; s++) {
        const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
        clt_step_batch batch;
        clt_step_result result;
        clt_step_result_init(&result);
        clt_step_batch_init(&batch);
        batch.count = count;
        batch.feeds = feeds;
        batch.n_feeds = 2;
        batch.offsets = offsets && l.n == 2 ? offsets[s] : NULL;
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_result(l.trainer, s, &result));
        o.losses[s] = result.loss;
        ok(clt_store_check(l.store));
    }
    ok(clt_store_get(l.store, "mix.weight", o.mix, sizeof o.mix));
    ok(clt_store_get(l.store, "bn.weight", o.weight, sizeof o.weight));
    ok(clt_store_get(l.store, "bn.bias", o.bias, sizeof o.bias));
    ok(clt_store_get(l.store, "bn.running_mean", o.mean, sizeof o.mean));
    ok(clt_store_get(l.store, "bn.running_var", o.var, sizeof o.var));
    ok(clt_store_get(l.store, "fc.weight", o.fc, sizeof o.fc));
    ok(clt_store_get(l.store, "bn.num_batches_tracked", &o.tracked, sizeof o.tracked));
    lab_close(&l);
    return o;
}

static void near(const char *what, const float *a, const float *b, int count)
{
    for (int i = 0; i < count; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= 1e-5 * (1 + fabs((double)a[i]))))
            fail_msg("%s[%d]: %.9g on one device, %.9g on two", what, i, (double)a[i],
                     (double)b[i]);
}

static void same(const outcome *one, const outcome *two)
{
    for (int s = 0; s < STEPS; s++)
        if (!(fabs(one->losses[s] - two->losses[s]) <= 1e-5 * one->losses[s]))
            fail_msg("step %d: loss %.9g on one device, %.9g on two", s + 1, one->losses[s],
                     two->losses[s]);
    near("mix.weight", one->mix, two->mix, CHANNELS * CHANNELS);
    near("weight", one->weight, two->weight, CHANNELS);
    near("bias", one->bias, two->bias, CHANNELS);
    near("running mean", one->mean, two->mean, CHANNELS);
    near("running variance", one->var, two->var, CHANNELS);
    near("fc.weight", one->fc, two->fc, CLASSES * IN);
    assert_int_equal(one->tracked, STEPS);
    assert_int_equal(two->tracked, STEPS);
}

static void devices_do_what_one_does(void **state)
{
    static const int64_t counts[] = {MOST, 17, 2};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const int64_t n = counts[i];
        const int64_t offsets[STEPS][3] = {{0, n / 2, n}, {0, n, n}, {0, 0, n}, {0, 1, n}};
        const outcome one = train("pocl@1", 0, n, NULL, 1);
        const outcome alone = train("pocl@1", 1, n, NULL, 1);
        const outcome even = train("pocl/2", 1, n, NULL, 1);
        const outcome uneven = train("pocl/2", 1, n, offsets, 1);
        same(&one, &alone);
        same(&one, &even);
        same(&one, &uneven);
        assert_true(n < MOST || one.losses[STEPS - 1] < one.losses[0]);
    }
}

/* A repeated run has the same bits, also with micro-batches. */
static void repeats(void **state)
{
    (void)state;
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        const outcome a = train("pocl/2", 1, MOST, NULL, accumulate);
        const outcome b = train("pocl/2", 1, MOST, NULL, accumulate);
        assert_memory_equal(a.losses, b.losses, sizeof a.losses);
        assert_memory_equal(a.mean, b.mean, sizeof a.mean);
        assert_memory_equal(a.fc, b.fc, sizeof a.fc);
    }
}

/* The mean over the images is the same, but variances of parts are smaller on the whole. lr is 0,
 * since other statistics would change the parameters. */
static void unsynchronised_statistics_are_means(void **state)
{
    (void)state;
    lr = 0;
    const outcome one = train("pocl@1", 0, MOST, NULL, 1);
    const outcome two = train("pocl/2", 0, MOST, NULL, 1);
    lr = 0.1;
    near("running mean", one.mean, two.mean, CHANNELS);
    for (int c = 0; c < CHANNELS; c++)
        assert_true(fabs((double)one.var[c] - (double)two.var[c]) < 0.2 * (double)one.var[c]);
    assert_int_equal(two.tracked, STEPS);
}

static int set_up(void **state)
{
    make_samples(xs, labels, MOST, IN, CLASSES);
    for (int i = 0; i < MOST * IN; i++) /* channels with different means and scales */
        xs[i] = xs[i] * (float)(1 + i / (SIDE * SIDE) % CHANNELS) +
                (float)(i / (SIDE * SIDE) % CHANNELS);
    return open_runtime(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_do_what_one_does),
        cmocka_unit_test(repeats),
        cmocka_unit_test(unsynchronised_statistics_are_means),
    };
    return cmocka_run_group_tests(tests, set_up, close_runtime);
}
