/* Optimizers and clipping, compared with PyTorch (tests/goldens/ops/optimizers.safetensors).
 * Gradients reach the buckets through clt_output_gradient on copies of the parameters. */
#include "goldens/goldens.h"

#include <math.h>

#include <jansson.h>

#include "device/core/device.h"
#include "support/devices.h"
#include <cltrain/cltrain.h>

enum { PARAMETERS = 3, UPDATES = 6, MOST = 64 };

static clt_runtime *runtime;

/* Devices use the kernels for GPUs. */
static bool as_gpu;

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

typedef struct lab {
    clt_device **devices;
    int n;
    clt_store *store;
    clt_trainer *trainer;
    int64_t elements[PARAMETERS];
} lab;

static const char *const names[] = {"p0", "p1", "p2"}, *const gradient_names[] = {"g0", "g1", "g2"};

static double number(const json_t *attributes, const char *name)
{
    return json_number_value(json_object_get(attributes, name));
}

static clt_trainer_options options_of(const json_t *a)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    ok(clt_optimizer_parse(json_string_value(json_object_get(a, "optimizer")), &o.optimizer));
    ok(clt_optimizer_defaults(o.optimizer, &o));
    o.lr = number(a, "lr");
    o.momentum = number(a, "momentum");
    o.beta1 = json_number_value(json_array_get(json_object_get(a, "betas"), 0));
    o.beta2 = json_number_value(json_array_get(json_object_get(a, "betas"), 1));
    if (number(a, "eps") > 0)
        o.epsilon = number(a, "eps");
    o.alpha = number(a, "alpha");
    o.centered = json_is_true(json_object_get(a, "centered"));
    o.lr_decay = number(a, "lr_decay");
    o.initial_accumulator = number(a, "initial_accumulator_value");
    o.weight_decay = number(a, "weight_decay");
    if (o.optimizer == CLT_MUON) {
        o.adamw_lr = number(a, "adamw_lr");
        o.muon_adamw = "p1"; /* p0 is a matrix. Copies read it, not a product */
        o.muon_scale = json_is_true(json_object_get(a, "match")) ? CLT_MUON_MATCH_RMS_ADAMW
                                                                 : CLT_MUON_ORIGINAL;
    }
    o.clip_norm = number(a, "clip_norm");
    o.batch = 2;
    return o;
}

static bool unlike(const lab *l)
{
    for (int d = 1; d < l->n; d++)
        if (l->devices[d]->identity != l->devices[0]->identity)
            return true;
    return false;
}

/* Devices of several kinds refuse muon: the lab then has no trainer. */
static lab lab_open(const char *list, const clt_tensors *golden, const char *prefix,
                    const clt_trainer_options *options)
{
    lab l = {0};
    clt_graph *graph;
    ok(clt_devices_open(runtime, list, NULL, &l.devices, &l.n));
    for (int d = 0; as_gpu && d < l.n; d++)
        l.devices[d]->caps.kind = CLT_KIND_GPU;
    ok(clt_graph_create(&graph));
    for (int p = 0; p < PARAMETERS; p++) {
        const clt_tensor *start = golden_find(golden, prefix, names[p]);
        char name[16];
        snprintf(name, sizeof name, "copy%d", p);
        clt_value *parameter =
            clt_parameter(graph, names[p], start->rank, start->dims, (clt_init){0});
        clt_output_gradient(clt_output(clt_copy(parameter), name), gradient_names[p]);
        l.elements[p] = golden_count(start);
        assert_true(l.elements[p] <= MOST);
    }
    ok(clt_graph_status(graph));
    ok(clt_store_create(graph, l.devices, l.n, 1, &l.store));
    const clt_status status = clt_trainer_create(graph, l.store, options, &l.trainer);
    if (options->optimizer == CLT_MUON && unlike(&l))
        assert_int_equal(status, CLT_UNSUPPORTED);
    else
        ok(status);
    clt_graph_destroy(graph);
    for (int p = 0; p < PARAMETERS; p++) {
        const double *start = golden_f64(golden, prefix, names[p], l.elements[p]);
        float values[MOST];
        for (int64_t i = 0; i < l.elements[p]; i++)
            values[i] = (float)start[i];
        ok(clt_store_set(l.store, names[p], values, (size_t)l.elements[p] * sizeof *values));
    }
    return l;
}

static void lab_close(lab *l)
{
    clt_trainer_destroy(l->trainer);
    clt_store_destroy(l->store);
    clt_devices_close(l->devices, l->n);
}

/* Runs update number u. Each of n devices feeds an n-th of the gradient (n is a power of two). */
static void update(lab *l, const clt_tensors *golden, const char *prefix, int u)
{
    float gradients[PARAMETERS][MOST];
    clt_feed feeds[PARAMETERS];
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    for (int p = 0; p < PARAMETERS; p++) {
        const double *given =
            golden_f64(golden, prefix, gradient_names[p], UPDATES * l->elements[p]);
        for (int64_t i = 0; i < l->elements[p]; i++)
            gradients[p][i] = (float)(given[u * l->elements[p] + i] / l->n);
        feeds[p] = (clt_feed){gradient_names[p], -1, CLT_HOST(gradients[p])};
    }
    batch.count = l->n;
    batch.feeds = feeds;
    batch.n_feeds = PARAMETERS;
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    clt_step_result result;
    clt_step_result_init(&result);
    ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
    const double norm = golden_f64(golden, prefix, "norm", UPDATES)[u];
    if (!(fabs(result.norm - norm) <= 1e-6 * norm))
        fail_msg("%s: norm %.9g of update %d, PyTorch's is %.9g", prefix, result.norm, u, norm);
}

/* Returns the largest error of the parameters after update u, in units of the distance so far.
 * `more`: what rounding errors in f32 do to an orthogonal matrix. */
static double error_after(lab *l, const clt_tensors *golden, const char *prefix, int u, double more)
{
    double worst = 0;
    for (int p = 0; p < PARAMETERS; p++) {
        char after[16];
        float have[MOST];
        snprintf(after, sizeof after, "after%d", p);
        const double *want = golden_f64(golden, prefix, after, UPDATES * l->elements[p]);
        const double *start = golden_f64(golden, prefix, names[p], l->elements[p]);
        ok(clt_store_get(l->store, names[p], have, (size_t)l->elements[p] * sizeof *have));
        for (int64_t i = 0; i < l->elements[p]; i++) {
            const double expected = want[u * l->elements[p] + i];
            /* Rounding errors of the parameter and of the update. */
            const double allowed = 1.2e-7 * fabs(expected) * (u + 1) +
                                   4e-6 * fabs(expected - start[i]) + (p ? 0 : more * (u + 1)) +
                                   1e-9;
            const double error = fabs((double)have[i] - expected) / allowed;
            if (error > worst)
                worst = error;
        }
    }
    return worst;
}

static void check_on(const char *list)
{
    clt_tensors *golden = golden_open("ops/optimizers.safetensors");
    const int cases = atoi(clt_tensors_metadata(golden, "cases"));
    assert_true(cases > 0);
    double worst = 0;
    for (int c = 0; c < cases; c++) {
        char prefix[16];
        snprintf(prefix, sizeof prefix, "c%02d", c);
        json_t *attributes = json_loads(clt_tensors_metadata(golden, prefix), 0, NULL);
        assert_non_null(attributes);
        const clt_trainer_options options = options_of(attributes);
        json_decref(attributes);
        lab l = lab_open(list, golden, prefix, &options);
        for (int u = 0; u < UPDATES && l.trainer; u++) {
            update(&l, golden, prefix, u);
            const double more = options.optimizer == CLT_MUON ? 2e-6 * options.lr : 0;
            const double error = error_after(&l, golden, prefix, u, more);
            if (!(error <= 1))
                fail_msg("%s, %s, update %d: error %.3g of the allowed one", prefix,
                         clt_optimizer_name(options.optimizer), u, error);
            worst = fmax(worst, error);
        }
        ok(clt_store_check(l.store));
        lab_close(&l);
    }
    printf("    %s: %d cases, worst error %.2f of the allowed one\n", list, cases, worst);
    clt_tensors_close(golden);
}

static void test_one_device(void **state)
{
    (void)state;
    check_on(clt_test_devices("pocl"));
}

static void test_as_gpu(void **state)
{
    (void)state;
    as_gpu = true;
    check_on(clt_test_devices("pocl"));
    as_gpu = false;
}

static void test_two_devices(void **state)
{
    (void)state;
    check_on(clt_test_devices("pocl/2"));
}

/* Parameters, slots and step count move to another trainer after three updates. The bits stay the
 * same. */
static void test_slots_move(void **state)
{
    (void)state;
    static const char *const cases[] = {"c05", "c07", "c11", "c15", "c23", "c27", "c33", "c35"};
    static const char *const slots[][4] = {{"momentum_buffer", NULL},
                                           {"momentum_buffer", NULL},
                                           {"exp_avg", "exp_avg_sq", NULL},
                                           {"exp_avg", "exp_avg_sq", NULL},
                                           {"square_avg", "grad_avg", "momentum_buffer", NULL},
                                           {"sum", NULL},
                                           {"exp_avg", NULL},
                                           {"exp_avg", "exp_avg_sq", NULL}};
    clt_tensors *golden = golden_open("ops/optimizers.safetensors");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        json_t *attributes = json_loads(clt_tensors_metadata(golden, cases[c]), 0, NULL);
        const clt_trainer_options options = options_of(attributes);
        json_decref(attributes);
        lab a = lab_open(clt_test_devices("pocl"), golden, cases[c], &options);
        if (!a.trainer) {
            lab_close(&a);
            continue;
        }
        for (int u = 0; u < 3; u++)
            update(&a, golden, cases[c], u);
        lab b = lab_open(clt_test_devices("pocl"), golden, cases[c], &options);
        float x[MOST], y[MOST];
        int s = 0;
        for (; clt_trainer_slot_name(a.trainer, s); s++) {
            assert_string_equal(clt_trainer_slot_name(a.trainer, s), slots[c][s]);
            for (int p = 0; p < PARAMETERS; p++) {
                const size_t bytes = (size_t)a.elements[p] * sizeof *x;
                ok(clt_trainer_slot_get(a.trainer, s, names[p], x, bytes));
                ok(clt_trainer_slot_set(b.trainer, s, names[p], x, bytes));
            }
        }
        assert_null(slots[c][s]);
        for (int p = 0; p < PARAMETERS; p++) {
            const size_t bytes = (size_t)a.elements[p] * sizeof *x;
            ok(clt_store_get(a.store, names[p], x, bytes));
            ok(clt_store_set(b.store, names[p], x, bytes));
        }
        clt_trainer_set_steps(b.trainer, clt_trainer_steps(a.trainer));
        for (int u = 3; u < UPDATES; u++) {
            update(&a, golden, cases[c], u);
            update(&b, golden, cases[c], u);
        }
        for (int p = 0; p < PARAMETERS; p++) {
            const size_t bytes = (size_t)a.elements[p] * sizeof *x;
            ok(clt_store_get(a.store, names[p], x, bytes));
            ok(clt_store_get(b.store, names[p], y, bytes));
            assert_memory_equal(x, y, bytes);
        }
        lab_close(&a);
        lab_close(&b);
    }
    clt_tensors_close(golden);
}

/* The momentum that is not set is the optimizer's own. */
static void test_usual_momentum(void **state)
{
    static const struct {
        clt_optimizer optimizer;
        int slots;
        double momentum;
    } rows[] = {{CLT_MOMENTUM, 1, 0.9}, {CLT_NESTEROV, 1, 0.9}, {CLT_RMSPROP, 1, 0}};
    (void)state;
    clt_tensors *golden = golden_open("ops/optimizers.safetensors");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float after[2][MOST];
        for (int given = 0; given < 2; given++) {
            clt_trainer_options options;
            clt_trainer_options_init(&options);
            options.optimizer = rows[i].optimizer;
            options.lr = 0.01;
            options.batch = 2;
            if (given)
                options.momentum = rows[i].momentum;
            lab l = lab_open(clt_test_devices("pocl"), golden, "c00", &options);
            assert_non_null(clt_trainer_slot_name(l.trainer, rows[i].slots - 1));
            assert_null(clt_trainer_slot_name(l.trainer, rows[i].slots));
            for (int u = 0; u < 3; u++)
                update(&l, golden, "c00", u);
            ok(clt_store_get(l.store, "p0", after[given], (size_t)l.elements[0] * sizeof **after));
            lab_close(&l);
        }
        assert_memory_equal(after[0], after[1], 35 * sizeof **after);
    }
    clt_tensors_close(golden);
}

/* Decoupled decay of sgd shrinks the weight by lr * decay before the update. */
static void test_decoupled(void **state)
{
    (void)state;
    clt_tensors *golden = golden_open("ops/optimizers.safetensors");
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.lr = 0.25;
    options.weight_decay = 0.5;
    options.decoupled = 1;
    options.batch = 2;
    lab l = lab_open(clt_test_devices("pocl"), golden, "c00", &options);
    update(&l, golden, "c00", 0);
    const double *start = golden_f64(golden, "c00", "p1", l.elements[1]);
    const double *gradient = golden_f64(golden, "c00", "g1", UPDATES * l.elements[1]);
    float have[MOST];
    ok(clt_store_get(l.store, "p1", have, (size_t)l.elements[1] * sizeof *have));
    for (int64_t i = 0; i < l.elements[1]; i++) {
        const double want = start[i] * (1 - 0.25 * 0.5) - 0.25 * gradient[i];
        assert_true(fabs((double)have[i] - want) <= 3e-7 * (fabs(start[i]) + fabs(gradient[i])));
    }
    lab_close(&l);
    clt_tensors_close(golden);
}

/* The norm of a gradient that several work-groups of a GPU sum. */
static void test_long_norm(void **state)
{
    enum { LONG = 9001 };
    const char *list = clt_test_devices("pocl");
    lab l = {0};
    clt_graph *graph;
    clt_step_result result;
    clt_step_result_init(&result);
    clt_trainer_options options;
    (void)state;
    ok(clt_devices_open(runtime, list, NULL, &l.devices, &l.n));
    for (int d = 0; d < l.n; d++)
        l.devices[d]->caps.kind = CLT_KIND_GPU;
    ok(clt_graph_create(&graph));
    clt_value *p = clt_parameter(graph, "p", 1, (int64_t[]){LONG}, (clt_init){0});
    clt_output_gradient(clt_output(clt_copy(p), "copy"), "g");
    ok(clt_store_create(graph, l.devices, l.n, 1, &l.store));
    clt_trainer_options_init(&options);
    options.batch = l.n;
    ok(clt_trainer_create(graph, l.store, &options, &l.trainer));
    clt_graph_destroy(graph);
    static float gradient[LONG];
    double squares = 0;
    for (int i = 0; i < LONG; i++) {
        gradient[i] = (float)(i % 83 - 41) / 64 / (float)l.n;
        squares += (double)gradient[i] * gradient[i] * l.n * l.n;
    }
    const clt_feed feed = {"g", -1, CLT_HOST(gradient)};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = l.n;
    batch.feeds = &feed;
    batch.n_feeds = 1;
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_result(l.trainer, 0, &result));
    if (!(fabs(result.norm - sqrt(squares)) <= 1e-6 * sqrt(squares)))
        fail_msg("the norm is %.9g, not %.9g", result.norm, sqrt(squares));
    lab_close(&l);
}

static int open_runtime(void **state)
{
    (void)state;
    return clt_runtime_create(NULL, &runtime) != CLT_OK;
}

static int close_runtime(void **state)
{
    (void)state;
    clt_runtime_destroy(runtime);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_device),    cmocka_unit_test(test_as_gpu),
        cmocka_unit_test(test_long_norm),     cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_slots_move),    cmocka_unit_test(test_decoupled),
        cmocka_unit_test(test_usual_momentum)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
