/* Reports of compiling: they count to their totals, and change no bit of a step. */
#include "train/lab.h"
#include <cltrain/models.h>

enum { IN = 3, COUNT = 8, MOST = 512 };

typedef struct report {
    int kernels, done, total;
} report;

static report reports[MOST];
static int n_reports;

static void note(void *user, const char *device, int kernels, int done, int total)
{
    assert_ptr_equal(user, reports);
    assert_non_null(device);
    assert_true(n_reports < MOST);
    reports[n_reports++] = (report){kernels, done, total};
}

/* Trains for three steps on a device that has no program yet. Returns the last loss. */
static double train(float *weights)
{
    static const int64_t width = 5, of_x[] = {COUNT, IN}, of_y[] = {COUNT, 1};
    double x[COUNT][IN], y[COUNT], loss = 0;
    clt_trainer_options options;
    clt_graph *graph;
    lab l = lab_on("0", NULL);
    ok(clt_mlp_regressor(IN, &width, 1, 1, "tanh", &graph));
    lab_store(&l, graph, 5);
    clt_trainer_options_init(&options);
    options.batch = COUNT;
    lab_trainer(&l, &options);
    for (int i = 0; i < COUNT; i++) {
        y[i] = cos(i * 1.7);
        for (int k = 0; k < IN; k++)
            x[i][k] = sin(i * 3.1 + k);
    }
    clt_feed feeds[] = {{.name = "x", .device = -1}, {.name = "y", .device = -1}};
    ok(clt_array_of(&feeds[0].array, x, CLT_F64, 2, of_x));
    ok(clt_array_of(&feeds[1].array, y, CLT_F64, 2, of_y));
    for (int step = 0; step < 3; step++)
        ok(clt_step_arrays(l.trainer, feeds, 2, &loss));
    ok(clt_store_get(l.store, "fc1.weight", weights, 5 * IN * sizeof *weights));
    lab_close(&l);
    return loss;
}

/* Checks one kind of reports: each series counts from 0 to its total. */
static int check_series(int kernels)
{
    int series = 0, done = 0, total = 0;
    for (int i = 0; i < n_reports; i++) {
        if (reports[i].kernels != kernels)
            continue;
        if (reports[i].done == 0) {
            assert_int_equal(done, total);
            total = reports[i].total;
            assert_true(total > 0);
            done = 0;
            series++;
        } else {
            assert_int_equal(reports[i].total, total);
            assert_int_equal(reports[i].done, ++done);
        }
    }
    assert_int_equal(done, total);
    return series;
}

static void counts_to_its_totals(void **state)
{
    (void)state;
    float silent[5 * IN], told[5 * IN];
    const double loss = train(silent);
    assert_int_equal(n_reports, 0);
    clt_compile_set(note, reports);
    assert_true(train(told) == loss);
    clt_compile_set(NULL, NULL);
    assert_memory_equal(silent, told, sizeof told);
    assert_true(check_series(0) > 0);
    /* Only PoCL compiles late. */
    clt_device_info info;
    clt_device_info_init(&info);
    lab l = lab_on("0", NULL);
    ok(clt_device_get_info(l.devices[0], &info));
    lab_close(&l);
    const int late = check_series(1);
    assert_true(strcmp(info.suffix, "pocl") == 0 ? late > 0 : late == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_to_its_totals)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
