/* clt_fit_options.schedule_batch: a schedule that stays in its place when a run resumes with
 * another batch. */
#include "train/lab.h"

#include <math.h>

#include "train/lab_scratch.h"

enum { ROWS = 22, MOST = 64, FIRST = 4 }; /* an epoch is 5 whole batches of FIRST and one of 2 */

typedef struct seen {
    int64_t steps, stop; /* stops after that step; 0: at the end */
    double lr[MOST];
    int64_t samples[MOST], epoch[MOST];
} seen;

static void on_step(void *user, const clt_progress *p)
{
    seen *s = user;
    assert_int_equal(p->step, s->steps + 1);
    s->lr[s->steps] = p->lr;
    s->samples[s->steps] = p->samples;
    s->epoch[s->steps++] = p->epoch;
}

static int should_stop(void *user)
{
    const seen *s = user;
    return s->stop && s->steps + 1 >= s->stop; /* the last step is not reported yet */
}

static clt_graph *slope(void)
{
    const int64_t x[] = {CLT_BATCH, 1};
    clt_graph *g;
    clt_value *sum, *weight;
    ok(clt_graph_create(&g));
    clt_mse(layer(g, clt_input(g, "x", CLT_F32, 2, x), "fc.weight", "fc.bias", 1, 1),
            clt_input(g, "y", CLT_F32, 2, x), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

/* A run, or its continuation. */
static void run(seen *s, const char *dir, int64_t batch, const clt_fit_options *how, double lr)
{
    static const float xs[ROWS], ys[ROWS];
    const int64_t shape[] = {1};
    clt_trainer_options options;
    clt_fit_options fit = *how;
    clt_dataset *set;
    lab l = lab_on("pocl", NULL);
    clt_trainer_options_init(&options);
    options.batch = batch;
    options.lr = lr;
    ok(clt_schedule_parse("cosine,warmup:3", 18, &options.schedule));
    lab_store(&l, slope(), 1);
    lab_trainer(&l, &options);
    ok(clt_dataset_create_arrays("made up", ROWS, &set));
    ok(clt_dataset_add_field(set, "x", CLT_F32, 1, shape, xs, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(set, "y", CLT_F32, 1, shape, ys, CLT_DATA_BORROW, NULL));
    fit.checkpoint_dir = dir;
    fit.resume = s->steps > 0;
    fit.on_step = on_step;
    fit.should_stop = should_stop;
    fit.user = s;
    assert_int_equal(clt_fit(l.trainer, set, NULL, &fit), s->stop ? CLT_STOPPED : CLT_OK);
    clt_dataset_free(set);
    lab_close(&l);
}

/* The rate at a position, by the definition of the schedule. */
static double rate_at(int64_t epoch, int64_t sample, int64_t per_epoch, double lr)
{
    int64_t within = sample / FIRST;
    if (within > per_epoch - 1)
        within = per_epoch - 1;
    const double s = (double)((epoch - 1) * per_epoch + within);
    const double p = fmin(fmax((s - 3) / 15, 0), 1);
    return lr * (1 + cos(acos(-1) * p)) / 2 * (s < 3 ? (s + 1) / 3 : 1);
}

static void compare(const seen *s, int64_t from, int64_t per_epoch, double lr, int64_t *epoch,
                    int64_t *sample)
{
    for (int64_t i = from; i < s->steps; i++) {
        if (s->epoch[i] != *epoch)
            *sample = 0;
        *epoch = s->epoch[i];
        assert_true(fabs(s->lr[i] - rate_at(*epoch, *sample, per_epoch, lr)) < 1e-9);
        *sample += s->samples[i];
    }
}

static void one_batch_counts_steps(void **state)
{
    (void)state;
    clt_fit_options fit;
    clt_fit_options_init(&fit);
    fit.epochs = 3;
    seen plain = {0}, counted = {0};
    run(&plain, NULL, FIRST, &fit, 0.1);
    fit.schedule_batch = FIRST;
    run(&counted, NULL, FIRST, &fit, 0.1);
    assert_int_equal(plain.steps, 18);
    assert_memory_equal(&plain, &counted, sizeof plain);
}

/* From 4 to 8 to 3 samples, within epochs, with other rates. */
static void other_batches_stay_in_place(void **state)
{
    (void)state;
    const char *dir = in_scratch("run");
    clt_fit_options fit;
    clt_fit_options_init(&fit);
    fit.epochs = 3;
    fit.schedule_batch = FIRST;
    seen s = {.stop = 2};
    int64_t epoch = 1, sample = 0, samples[4] = {0};
    run(&s, dir, 4, &fit, 0.1);
    compare(&s, 0, 6, 0.1, &epoch, &sample);
    assert_int_equal(s.steps, 2);
    s.stop = 4;
    run(&s, dir, 8, &fit, 0.2); /* 8 and 6 of epoch 1 */
    compare(&s, 2, 6, 0.2, &epoch, &sample);
    s.stop = 0;
    run(&s, dir, 3, &fit, 0.075); /* 8 steps an epoch */
    compare(&s, 4, 6, 0.075, &epoch, &sample);
    assert_int_equal(s.steps, 4 + 8 + 8);
    for (int64_t i = 0; i < s.steps; i++)
        samples[s.epoch[i]] += s.samples[i];
    for (int e = 1; e <= 3; e++)
        assert_int_equal(samples[e], ROWS);
}

/* `steps` counts such steps too: 8 are an epoch of 6 and 2 more, 30 samples. */
static void steps_end_at_the_same_place(void **state)
{
    (void)state;
    static const struct {
        int64_t batch, stop, steps;
    } cases[] = {
        {4, 0, 8}, {8, 1, 1 + 3 + 1}, {3, 1, 1 + 6 + 3}, {22, 1, 1 + 1 + 1}, {1, 1, 1 + 18 + 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[16];
        snprintf(name, sizeof name, "run-%zu", i);
        const char *dir = in_scratch(name);
        clt_fit_options fit;
        clt_fit_options_init(&fit);
        fit.steps = 8;
        fit.schedule_batch = FIRST;
        seen s = {.stop = cases[i].stop};
        run(&s, dir, FIRST, &fit, 0.1);
        s.stop = 0;
        if (cases[i].stop)
            run(&s, dir, cases[i].batch, &fit, 0.1);
        assert_int_equal(s.steps, cases[i].steps);
    }
}

/* drop_last: 5 steps an epoch. Samples behind the last of them count as its place. */
static void dropped_batches(void **state)
{
    (void)state;
    const char *dir = in_scratch("dropped");
    clt_fit_options fit;
    clt_fit_options_init(&fit);
    fit.epochs = 3;
    fit.drop_last = 1;
    fit.schedule_batch = FIRST;
    seen s = {.stop = 1};
    int64_t epoch = 1, sample = 0;
    run(&s, dir, 4, &fit, 0.1);
    s.stop = 0;
    run(&s, dir, 1, &fit, 0.025);
    assert_int_equal(s.steps, 1 + 18 + 22 + 22);
    seen begin = s;
    begin.steps = 1;
    compare(&begin, 0, 5, 0.1, &epoch, &sample);
    compare(&s, 1, 5, 0.025, &epoch, &sample);
}

static void negative(void **state)
{
    (void)state;
    clt_fit_options fit;
    clt_fit_options_init(&fit);
    fit.schedule_batch = -1;
    lab l = lab_on("pocl", NULL);
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    lab_store(&l, slope(), 1);
    lab_trainer(&l, &options);
    assert_int_equal(clt_fit(l.trainer, NULL, NULL, &fit), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "schedule_batch -1"));
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_batch_counts_steps), cmocka_unit_test(other_batches_stay_in_place),
        cmocka_unit_test(steps_end_at_the_same_place), cmocka_unit_test(dropped_batches),
        cmocka_unit_test(negative)};
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
