/*
 * Programs whose ranks do not agree, run by mpiexec on two ranks: the second rank has another
 * setting, model or run. All ranks learn this before the first step.
 */
#include <mpi.h>

#include "train/lab.h"
#include <cltrain/data.h>
#include <cltrain/fit.h>
#include <cltrain/mpi.h>

enum { SAMPLES = 64, FEATURES = 20, CLASSES = 4 };

static clt_world world;

static clt_trainer_options trainer_options(void)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = 32;
    options.world = &world;
    options.comm_timeout = 60;
    return options;
}

static void assert_told(clt_status status, const char *what)
{
    char text[128];
    snprintf(text, sizeof text, "rank 1 has another %s", what);
    assert_int_equal(status, CLT_MISMATCH);
    if (!strstr(clt_error_message(), text))
        fail_msg("not \"%s\": %s", text, clt_error_message());
}

static void assert_refused(int64_t hidden, const clt_trainer_options *options, const char *what)
{
    lab l = lab_on("pocl@1", NULL);
    lab_store(&l, classifier(FEATURES, hidden, CLASSES), 3);
    assert_told(clt_trainer_create(l.graph, l.store, options, &l.trainer), what);
    lab_close(&l);
}

static void settings(void **state)
{
    (void)state;
    const int other = world.rank == 1;
    clt_trainer_options options = trainer_options();
    options.lr = other ? 0.3 : 0.1;
    assert_refused(16, &options, "learning rate (lr) than rank 0 (0.3, not 0.1)");
    options = trainer_options();
    options.check_every = other ? 3 : 5;
    assert_refused(16, &options, "check_every than rank 0 (3, not 5)");
    options = trainer_options();
    options.batch = other ? 64 : 32;
    assert_refused(16, &options, "batch than rank 0 (64, not 32)");
    options = trainer_options();
    options.clip_norm = other ? 1 : 0;
    assert_refused(16, &options, "clip_norm than rank 0 (1, not 0)");
}

static void models(void **state)
{
    (void)state;
    const clt_trainer_options options = trainer_options();
    assert_refused(world.rank == 1 ? 17 : 16, &options, "model");
}

/* Checks that a run is refused: `steps` steps on `count` samples, of which one feature is
 * `value`. */
static void assert_run_refused(int64_t steps, int64_t count, float value, const char *what)
{
    static float x[SAMPLES * FEATURES];
    static int32_t labels[SAMPLES];
    const int64_t features = FEATURES;
    const clt_trainer_options options = trainer_options();
    clt_dataset *data;
    clt_fit_options fit;
    lab l = lab_on("pocl@1", NULL);
    lab_store(&l, classifier(FEATURES, 16, CLASSES), 3);
    lab_trainer(&l, &options);
    make_samples(x, labels, SAMPLES, FEATURES, CLASSES);
    x[FEATURES + 1] = value;
    ok(clt_dataset_create_arrays("samples", count, &data));
    ok(clt_dataset_add_field(data, "x", CLT_F32, 1, &features, x, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(data, "label", CLT_I32, 0, NULL, labels, CLT_DATA_BORROW, NULL));
    clt_fit_options_init(&fit);
    fit.steps = steps;
    assert_told(clt_fit(l.trainer, data, NULL, &fit), what);
    assert_int_equal(clt_trainer_steps(l.trainer), 0);
    lab_close(&l);
    clt_dataset_free(data);
}

static void runs(void **state)
{
    (void)state;
    const int other = world.rank == 1;
    assert_run_refused(other ? 6 : 5, SAMPLES, 1, "run (number of samples");
    assert_run_refused(5, other ? SAMPLES - 1 : SAMPLES, 1, "run (number of samples");
    assert_run_refused(5, SAMPLES, other ? 2 : 1, "content of the training data");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (clt_world_open_mpi(MPI_COMM_WORLD, &world) != CLT_OK)
        MPI_Abort(MPI_COMM_WORLD, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings),
        cmocka_unit_test(models),
        cmocka_unit_test(runs),
    };
    if (cmocka_run_group_tests(tests, open_runtime, close_runtime))
        MPI_Abort(MPI_COMM_WORLD, 1);
    clt_world_close(&world);
    MPI_Finalize();
    return 0;
}
