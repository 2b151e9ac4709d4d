/* The builder of regressors: predictions and losses against plain loops in double. */
#include "train/lab.h"
#include <cltrain/models.h>

enum { IN = 3, OUT = 2, COUNT = 11 };
static const int64_t hidden[] = {7, 5};

static double apply(const char *name, double x)
{
    if (!strcmp(name, "tanh"))
        return tanh(x);
    if (!strcmp(name, "relu"))
        return x > 0 ? x : 0;
    if (!strcmp(name, "gelu"))
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    return !strcmp(name, "silu") ? x / (1 + exp(-x)) : 1 / (1 + exp(-x));
}

static void forward(clt_store *store, const char *name, int layers, const double *x, double *y)
{
    int64_t from = IN;
    double values[16];
    memcpy(values, x, IN * sizeof *x);
    for (int l = 0; l <= layers; l++) {
        const int64_t to = l < layers ? hidden[l] : OUT;
        float weight[64], bias[8];
        double next[16];
        char parameter[32];
        snprintf(parameter, sizeof parameter, "fc%d.weight", l + 1);
        ok(clt_store_get(store, parameter, weight, (size_t)(from * to) * sizeof *weight));
        snprintf(parameter, sizeof parameter, "fc%d.bias", l + 1);
        ok(clt_store_get(store, parameter, bias, (size_t)to * sizeof *bias));
        for (int64_t o = 0; o < to; o++) {
            next[o] = (double)bias[o];
            for (int64_t i = 0; i < from; i++)
                next[o] += (double)weight[o * from + i] * values[i];
            next[o] = l < layers ? apply(name, next[o]) : next[o];
        }
        memcpy(values, next, sizeof next);
        from = to;
    }
    memcpy(y, values, OUT * sizeof *y);
}

static void learns(const char *name, const char *given, int layers)
{
    static const int64_t of_x[] = {COUNT, IN}, of_y[] = {COUNT, OUT};
    double x[COUNT][IN], y[COUNT][OUT], guess[COUNT][OUT], first = 0, last = 0, sum = 0;
    clt_trainer_options options;
    clt_graph *graph;
    lab l = lab_on_kept("0");
    ok(clt_mlp_regressor(IN, hidden, layers, OUT, given, &graph));
    lab_store(&l, graph, 5);
    clt_trainer_options_init(&options);
    options.batch = COUNT;
    options.lr = 0.05;
    lab_trainer(&l, &options);
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < IN; k++)
            x[i][k] = sin(i * 3.1 + k);
        for (int k = 0; k < OUT; k++)
            y[i][k] = cos(i * 1.7 + k);
    }
    clt_feed feeds[] = {{.name = "x", .device = -1}, {.name = "y", .device = -1}};
    clt_fetch fetch = {.name = "prediction", .device = -1};
    ok(clt_array_of(&feeds[0].array, x, CLT_F64, 2, of_x));
    ok(clt_array_of(&feeds[1].array, y, CLT_F64, 2, of_y));
    ok(clt_array_of(&fetch.array, guess, CLT_F64, 2, of_y));
    ok(clt_predict_arrays(l.trainer, feeds, 1, &fetch, 1));
    for (int i = 0; i < COUNT; i++) {
        double want[OUT];
        forward(l.store, name, layers, x[i], want);
        for (int k = 0; k < OUT; k++) {
            assert_true(fabs(guess[i][k] - want[k]) < 1e-5);
            sum += pow(want[k] - y[i][k], 2) / (COUNT * OUT);
        }
    }
    ok(clt_step_arrays(l.trainer, feeds, 2, &first));
    assert_true(fabs(first - sum) < 1e-5 * (1 + sum));
    for (int step = 0; step < 50; step++)
        ok(clt_step_arrays(l.trainer, feeds, 2, &last));
    assert_true(last < first);
    lab_close(&l);
}

static void every_activation(void **state)
{
    (void)state;
    learns("tanh", NULL, 2);
    learns("tanh", "tanh", 1);
    learns("relu", "relu", 2);
    learns("gelu", "gelu", 2);
    learns("silu", "silu", 2);
    learns("sigmoid", "sigmoid", 2);
    learns("", "tanh", 0); /* linear regression */
}

static void refuse(int64_t in, const int64_t *widths, int layers, int64_t out, const char *name,
                   clt_status status, const char *text)
{
    clt_graph *graph = NULL;
    assert_int_equal(clt_mlp_regressor(in, widths, layers, out, name, &graph), status);
    assert_non_null(strstr(clt_error_message(), text));
    assert_null(graph);
}

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    const int64_t wrong[] = {7, 0};
    refuse(0, hidden, 2, 1, NULL, CLT_INVALID_ARGUMENT, "0 inputs, 2 hidden layers, 1 outputs");
    refuse(2, wrong, 2, 1, NULL, CLT_INVALID_ARGUMENT, "at most 16 layers");
    refuse(2, NULL, 2, 1, NULL, CLT_INVALID_ARGUMENT, "2 hidden layers");
    refuse(2, hidden, 17, 1, NULL, CLT_INVALID_ARGUMENT, "17 hidden layers");
    refuse(2, hidden, 2, -1, NULL, CLT_INVALID_ARGUMENT, "-1 outputs");
    refuse(2, hidden, 2, 1, "tan", CLT_NOT_FOUND, "no activation 'tan': tanh, relu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_activation),
        cmocka_unit_test(wrong_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
