/* A device that fails while training draws from a reservoir. The others go on with the same
 * samples. */
#include "exec/testing/lose.h"
#include "train/fit/reservoir_lab.h"

#ifdef CLT_TESTING
enum { STEPS = 8, CAPACITY = 30 };

static clt_dataset *filled(void)
{
    const clt_reservoir_options options = reservoir_options();
    clt_dataset *d = reservoir_open(CAPACITY, &options);
    ok(push_made_up(d, 0, 60));
    return d;
}

static lab lab_fresh(const char *list)
{
    const clt_trainer_options options = trainer_options();
    lab l = lab_on(list, NULL); /* a device that has failed is not kept */
    lab_store(&l, classifier(IN, HIDDEN, CLASSES), 4);
    lab_trainer(&l, &options);
    return l;
}

static learnt by_fit(const char *list, const char *lose)
{
    clt_dataset *d = filled();
    clt_fit_options fit;
    clt_exec_testing_lose = lose;
    lab l = lab_fresh(list);
    clt_fit_options_init(&fit);
    fit.steps = STEPS;
    fit.seed = 11;
    ok(clt_fit(l.trainer, d, NULL, &fit));
    assert_int_equal(clt_trainer_steps(l.trainer), STEPS);
    const learnt w = read_learnt(&l);
    clt_exec_testing_lose = NULL;
    lab_close(&l);
    clt_dataset_free(d);
    return w;
}

static learnt by_steps(const char *list, const char *lose)
{
    clt_dataset *d = filled();
    int lost = 0, redo;
    clt_exec_testing_lose = lose;
    lab l = lab_fresh(list);
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    while (clt_trainer_steps(l.trainer) < STEPS) {
        double loss;
        const clt_status status = clt_step_reservoir(l.trainer, 1, &loss);
        if (status == CLT_DEVICE_LOST) {
            lost++;
            ok(clt_trainer_recover(l.trainer, &redo));
            continue;
        }
        ok(status);
        assert_true(isfinite(loss));
    }
    assert_int_equal(lost, 1);
    const learnt w = read_learnt(&l);
    clt_exec_testing_lose = NULL;
    lab_close(&l);
    clt_dataset_free(d);
    return w;
}

static void expect_close(const learnt *got, const learnt *want)
{
    for (int i = 0; i < HIDDEN * IN; i++)
        assert_true(fabs(got->a[i] - want->a[i]) < 1e-4);
    for (int i = 0; i < CLASSES * HIDDEN; i++)
        assert_true(fabs(got->b[i] - want->b[i]) < 1e-4);
}

static void the_others_go_on(void **state)
{
    (void)state;
    const learnt alone = by_fit("cpu@1", NULL);
    for (int device = 0; device < 2; device++)
        for (int step = 0; step < STEPS; step += 3) {
            char lose[32];
            snprintf(lose, sizeof lose, "#%d=%d", device, step);
            const learnt fit = by_fit("cpu/2", lose), steps = by_steps("cpu/2", lose);
            expect_close(&fit, &alone);
            expect_close(&steps, &alone);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_others_go_on)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
#else
int main(void)
{
    return 0; /* without the tests' hooks no device fails */
}
#endif
