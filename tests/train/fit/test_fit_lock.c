/* Two runs of clt_fit in one checkpoint folder: the second is refused before it trains. */
#include "train/lab.h"

#include "train/lab_scratch.h"

enum { ROWS = 8, UNITS = 3 };

static clt_graph *line_graph(void)
{
    const int64_t x[] = {CLT_BATCH, UNITS}, y[] = {CLT_BATCH, 1};
    clt_graph *g;
    clt_value *sum, *weight;
    ok(clt_graph_create(&g));
    clt_mse(layer(g, clt_input(g, "x", CLT_F32, 2, x), "fc.weight", "fc.bias", UNITS, 1),
            clt_input(g, "y", CLT_F32, 2, y), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

static void refused_and_lent(void **state)
{
    (void)state;
    static const float xs[ROWS * UNITS], ys[ROWS];
    const int64_t x_shape[] = {UNITS}, y_shape[] = {1};
    const char *dir = in_scratch("run");
    clt_trainer_options options;
    clt_fit_options fit;
    clt_dataset *set;
    clt_folder_lock *lock, *after;
    lab l = lab_on("pocl", NULL);
    clt_trainer_options_init(&options);
    options.batch = ROWS;
    lab_store(&l, line_graph(), 1);
    lab_trainer(&l, &options);
    ok(clt_dataset_create_arrays("made up", ROWS, &set));
    ok(clt_dataset_add_field(set, "x", CLT_F32, 1, x_shape, xs, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(set, "y", CLT_F32, 1, y_shape, ys, CLT_DATA_BORROW, NULL));
    clt_fit_options_init(&fit);
    fit.checkpoint_dir = dir;
    ok(clt_folder_lock_take(dir, &lock));
    assert_int_equal(clt_fit(l.trainer, set, NULL, &fit), CLT_BUSY);
    assert_non_null(strstr(clt_error_message(), dir));
    assert_int_equal(clt_trainer_steps(l.trainer), 0);
    fit.lock = lock; /* a lock that the caller holds */
    ok(clt_fit(l.trainer, set, NULL, &fit));
    assert_int_equal(clt_trainer_steps(l.trainer), 1);
    assert_int_equal(clt_folder_lock_take(dir, &after), CLT_BUSY);
    clt_folder_lock_release(lock);
    /* clt_fit releases its own lock when it returns, also after a failure. */
    fit.lock = NULL;
    fit.steps = 2;
    ok(clt_fit(l.trainer, set, NULL, &fit));
    ok(clt_folder_lock_take(dir, &after));
    clt_folder_lock_release(after);
    fit.resume = 1;
    fit.seed = 77;
    assert_int_equal(clt_fit(l.trainer, set, NULL, &fit), CLT_MISMATCH);
    ok(clt_folder_lock_take(dir, &after));
    clt_folder_lock_release(after);
    clt_dataset_free(set);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_and_lent)};
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
