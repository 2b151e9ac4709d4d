/*
 * Short steps of clt_fit that are queued (clt_fit_options.queued_steps): a long queue changes no
 * bit, all steps are reported in order, and the guard names the step and the sample that are not
 * finite, whatever was enqueued behind.
 */
#include "train/world.h"
#include "train/core/trainer.h"

/* The queue grows after about 60 short steps. */
enum { IN = 6, HIDDEN = 10, CLASSES = 3, BATCH = 16, STEPS = 600, COUNT = STEPS * BATCH };

static float xs[COUNT * IN];
static int32_t labels[COUNT];

typedef struct outcome {
    clt_trainer *trainer;
    clt_status status;
    int64_t reported, ahead, steps;
    bool ordered;
    double losses[STEPS];
    float weights[HIDDEN * IN];
    char message[400];
} outcome;

static void on_step(void *user, const clt_progress *p)
{
    outcome *o = user;
    const int64_t ahead = clt_trainer_steps(o->trainer) - p->step;
    o->ordered = o->ordered && p->step == o->reported + 1;
    o->reported = p->step;
    o->losses[p->step - 1] = p->loss;
    o->ahead = ahead > o->ahead ? ahead : o->ahead;
}

static void run(clt_merging merging, int queued, outcome *o)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_SGD;
    options.lr = 0.1;
    options.batch = BATCH;
    options.merge_launches = merging;
    lab l = lab_on_kept(clt_test_devices("cpu@1"));
    lab_store(&l, classifier(IN, HIDDEN, CLASSES), 3);
    lab_trainer(&l, &options);
    clt_dataset *d;
    ok(lab_samples(COUNT, IN, xs, labels, 0, &d));
    clt_fit_options fit;
    clt_fit_options_init(&fit);
    fit.steps = STEPS;
    fit.shuffle = 0;
    fit.queued_steps = queued;
    fit.on_step = on_step;
    fit.user = o;
    *o = (outcome){.trainer = l.trainer, .ordered = true};
    o->status = clt_fit(l.trainer, d, NULL, &fit);
    snprintf(o->message, sizeof o->message, "%s", clt_error_message());
    o->steps = clt_trainer_steps(l.trainer);
    ok(clt_store_get(l.store, "a.weight", o->weights, sizeof o->weights));
    clt_dataset_free(d);
    lab_close(&l);
}

static outcome two, more;

static void compare(clt_merging merging)
{
    run(merging, 2, &two);
    run(merging, 8, &more);
    assert_int_equal(two.ahead, 1);
    assert_true(more.ahead <= 7);
    print_message("up to %d steps were enqueued behind a step that was reported\n",
                  (int)more.ahead);
    assert_int_equal(two.status, more.status);
    assert_true(two.ordered && more.ordered);
    assert_int_equal(two.reported, more.reported);
    assert_int_equal(two.steps, more.steps);
    assert_memory_equal(two.losses, more.losses, sizeof two.losses);
    assert_memory_equal(two.weights, more.weights, sizeof two.weights);
}

static void same_bits(void **state)
{
    (void)state;
    make_samples(xs, labels, COUNT, IN, CLASSES);
    compare(CLT_MERGE_OFF);
    assert_int_equal(more.status, CLT_OK);
    assert_int_equal(more.reported, STEPS);
    compare(CLT_MERGE_ON);
    assert_int_equal(more.status, CLT_OK);
}

static void guard(void **state)
{
    enum { SAMPLE = 5003, BAD = SAMPLE / BATCH };
    (void)state;
    make_samples(xs, labels, COUNT, IN, CLASSES);
    xs[SAMPLE * IN] = NAN;
    compare(CLT_MERGE_ON);
    assert_int_equal(more.status, CLT_NONFINITE);
    assert_int_equal(more.steps, BAD);
    assert_int_equal(more.reported, BAD);
    assert_non_null(strstr(more.message, "step 313: input x is not finite in sample 11 of the "));
    assert_non_null(strstr(more.message, "the sample is number 5003 of data set made up"));
    assert_string_equal(two.message, more.message);
}

static void refused(void **state)
{
    (void)state;
    for (int queued = 1; queued <= 9; queued += 8) {
        run(CLT_MERGE_OFF, queued, &more);
        assert_int_equal(more.status, CLT_INVALID_ARGUMENT);
        assert_non_null(strstr(more.message, "queued_steps"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(guard),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
