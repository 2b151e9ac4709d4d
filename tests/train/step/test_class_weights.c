/* Weights of classes in cross entropy against PyTorch's CrossEntropyLoss(weight=), with ignored
 * labels and label smoothing (tests/goldens/class_weights.json): losses and gradients, on one and
 * on two devices, through a loader, and by finite differences of double. With values in 16 bits,
 * losses and gradients are compared with double. */
#include "train/lab.h"

#include <jansson.h>

#include "goldens/goldens.h"
#include <cltrain/fit.h>
#include <cltrain/models.h>

enum { MOST = 32, IGNORED = -100 };

typedef struct golden {
    int64_t classes, count;
    float logits[MOST * MOST];
    int32_t labels[MOST];
    double weights[MOST], smoothing, loss, gradient[MOST * MOST];
} golden;

static double at(const json_t *list, int64_t i)
{
    return json_number_value(json_array_get(list, (size_t)i));
}

static golden read_golden(const json_t *json)
{
    golden g = {.count = (int64_t)json_array_size(json_object_get(json, "labels")),
                .classes = (int64_t)json_array_size(json_object_get(json, "weights")),
                .smoothing = json_number_value(json_object_get(json, "smoothing")),
                .loss = json_number_value(json_object_get(json, "loss"))};
    for (int64_t i = 0; i < g.count; i++) {
        g.labels[i] = (int32_t)at(json_object_get(json, "labels"), i);
        const json_t *logits = json_array_get(json_object_get(json, "logits"), (size_t)i);
        const json_t *gradient = json_array_get(json_object_get(json, "gradient"), (size_t)i);
        for (int64_t c = 0; c < g.classes; c++) {
            g.logits[i * g.classes + c] = (float)at(logits, c);
            g.gradient[i * g.classes + c] = at(gradient, c);
        }
    }
    for (int64_t c = 0; c < g.classes; c++)
        g.weights[c] = at(json_object_get(json, "weights"), c);
    return g;
}

/* Logits are x times the identity, so that gradients of weight and bias are sums of theirs. */
static lab lab_of(const golden *g, const char *devices, clt_dtype precision)
{
    const int64_t dims[] = {CLT_BATCH, g->classes};
    float identity[MOST * MOST] = {0}, zeros[MOST] = {0};
    clt_value *sum, *weight;
    clt_graph *graph;
    clt_cross_entropy_options o;
    clt_trainer_options t;
    lab l = lab_on_kept(clt_test_devices(devices));
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, dims);
    clt_value *label = clt_input(graph, "label", CLT_I32, 1, dims);
    clt_cross_entropy_options_init(&o);
    o.class_weights = g->weights;
    o.label_smoothing = g->smoothing;
    ok(clt_cross_entropy(layer(graph, x, "w", "b", g->classes, g->classes), label, &o, &sum,
                         &weight));
    ok(clt_loss(graph, "loss", sum, weight, 1));
    lab_store(&l, graph, 1);
    for (int64_t c = 0; c < g->classes; c++)
        identity[c * g->classes + c] = 1;
    ok(clt_store_set(l.store, "w", identity, (size_t)(g->classes * g->classes) * sizeof *identity));
    ok(clt_store_set(l.store, "b", zeros, (size_t)g->classes * sizeof *zeros));
    clt_trainer_options_init(&t);
    t.batch = g->count;
    t.lr = 0;
    t.precision = precision;
    lab_trainer(&l, &t);
    return l;
}

static void near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-5 * fmax(1, fabs(expected))))
        fail_msg("%.9g instead of %.9g", value, expected);
}

static void check_step(const golden *g, const char *devices)
{
    lab l = lab_of(g, devices, CLT_F32);
    const clt_feed feeds[] = {{.name = "x", .device = -1, .array = CLT_HOST(g->logits)},
                              {.name = "label", .device = -1, .array = CLT_HOST(g->labels)}};
    const clt_step_batch batch = lab_batch(feeds, g->count);
    float w[MOST * MOST], b[MOST];
    clt_step_result result;
    clt_step_result_init(&result);
    ok(clt_trainer_forward(l.trainer, &batch));
    ok(clt_trainer_backward(l.trainer));
    ok(clt_trainer_reduce(l.trainer));
    ok(clt_trainer_gradient(l.trainer, 0, "w", w, (size_t)(g->classes * g->classes) * sizeof *w));
    ok(clt_trainer_gradient(l.trainer, 0, "b", b, (size_t)g->classes * sizeof *b));
    ok(clt_trainer_apply(l.trainer, NULL));
    ok(clt_trainer_result(l.trainer, 0, &result));
    near(result.loss, g->loss);
    for (int64_t r = 0; r < g->classes; r++) {
        double sum = 0;
        for (int64_t i = 0; i < g->count; i++)
            sum += g->gradient[i * g->classes + r];
        near((double)b[r], sum);
        for (int64_t c = 0; c < g->classes; c++) {
            sum = 0;
            for (int64_t i = 0; i < g->count; i++)
                sum += g->gradient[i * g->classes + r] * (double)g->logits[i * g->classes + c];
            near((double)w[r * g->classes + c], sum);
        }
    }
    lab_close(&l);
}

static void keep_loss(void *user, const clt_progress *progress)
{
    *(double *)user = progress->loss;
}

/* Loaders count labels for plain cross entropy. Here the devices must find the weight. */
static void check_fit(const golden *g)
{
    lab l = lab_of(g, "0", CLT_F32);
    clt_dataset *set;
    clt_fit_options o;
    double loss = 0, sums[1], weights[1];
    ok(lab_samples(g->count, g->classes, g->logits, g->labels, 0, &set));
    clt_fit_options_init(&o);
    o.ignore_index = IGNORED;
    o.on_step = keep_loss;
    o.user = &loss;
    ok(clt_fit(l.trainer, set, NULL, &o));
    near(loss, g->loss);
    ok(clt_evaluate(l.trainer, set, &o, sums, weights));
    near(sums[0] / weights[0], g->loss);
    double weight = 0;
    for (int64_t i = 0; i < g->count; i++)
        weight += g->labels[i] == IGNORED ? 0 : g->weights[g->labels[i]];
    near(weights[0], weight);
    clt_dataset_free(set);
    lab_close(&l);
}

/* The loss in double, as PyTorch's page defines it. */
static double reference(const golden *g, const double *logits)
{
    double sum = 0, weight = 0;
    for (int64_t i = 0; i < g->count; i++) {
        double all = 0;
        const double *x = logits + i * g->classes;
        if (g->labels[i] == IGNORED)
            continue;
        for (int64_t c = 0; c < g->classes; c++)
            all += exp(x[c]);
        for (int64_t c = 0; c < g->classes; c++)
            sum -= g->weights[c] * (x[c] - log(all)) *
                   ((c == g->labels[i] ? 1 - g->smoothing : 0) + g->smoothing / (double)g->classes);
        weight += g->weights[g->labels[i]];
    }
    return sum / weight;
}

static void check_differences(const golden *g)
{
    double x[MOST * MOST];
    const double h = 1e-5;
    for (int64_t i = 0; i < g->count * g->classes; i++)
        x[i] = (double)g->logits[i];
    assert_true(fabs(reference(g, x) - g->loss) < 1e-12);
    for (int64_t i = 0; i < g->count * g->classes; i++) {
        x[i] += h;
        const double above = reference(g, x);
        x[i] -= 2 * h;
        const double below = reference(g, x);
        x[i] += h;
        assert_true(fabs((above - below) / (2 * h) - g->gradient[i]) < 1e-8);
    }
}

/* --- model files ------------------------------------------------------------------------------ */

static clt_status build_file(const golden *g, const char *loss, int64_t classes, clt_graph *graph)
{
    char path[] = "/tmp/cltrain-weights-XXXXXX.json";
    const clt_model_field fields[] = {{"x", CLT_F32, 1, {g->classes}, 0},
                                      {"label", CLT_I32, 0, {0}, classes}};
    const clt_model_input in = {
        .fields = fields, .n_fields = 2, .ignore_index = IGNORED, .class_weights = g->weights};
    FILE *file = fdopen(mkstemps(path, 5), "w");
    assert_non_null(file);
    fprintf(file,
            "{\"nodes\": [{\"name\": \"top\", \"op\": \"linear\", \"in\": \"x\", \"out\": %d}],"
            "\"losses\": [{%s}]}",
            (int)g->classes, loss);
    fclose(file);
    const clt_status status = clt_model_build(path, &in, graph);
    remove(path);
    return status;
}

/* A model file with the layer of lab_of. */
static void check_file(const golden *g)
{
    char loss[200];
    float identity[MOST * MOST] = {0}, zeros[MOST] = {0}, b[MOST];
    clt_trainer_options t;
    clt_step_result result;
    lab l = lab_on_kept(clt_test_devices("0"));
    snprintf(loss, sizeof loss,
             "\"op\": \"cross_entropy\", \"in\": [\"top\", \"label\"], \"label_smoothing\": %.17g",
             g->smoothing);
    ok(clt_graph_create(&l.graph));
    ok(build_file(g, loss, g->classes, l.graph));
    ok(clt_store_create(l.graph, l.devices, l.n, 1, &l.store));
    for (int64_t c = 0; c < g->classes; c++)
        identity[c * g->classes + c] = 1;
    ok(clt_store_set(l.store, "top.weight", identity,
                     (size_t)(g->classes * g->classes) * sizeof *identity));
    ok(clt_store_set(l.store, "top.bias", zeros, (size_t)g->classes * sizeof *zeros));
    clt_trainer_options_init(&t);
    t.batch = g->count;
    t.lr = 0;
    lab_trainer(&l, &t);
    const clt_feed feeds[] = {{.name = "x", .device = -1, .array = CLT_HOST(g->logits)},
                              {.name = "label", .device = -1, .array = CLT_HOST(g->labels)}};
    const clt_step_batch batch = lab_batch(feeds, g->count);
    clt_step_result_init(&result);
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_result(l.trainer, 0, &result));
    near(result.loss, g->loss);
    ok(clt_trainer_gradient(l.trainer, 0, "top.bias", b, (size_t)g->classes * sizeof *b));
    for (int64_t r = 0; r < g->classes; r++) {
        double sum = 0;
        for (int64_t i = 0; i < g->count; i++)
            sum += g->gradient[i * g->classes + r];
        near((double)b[r], sum);
    }
    lab_close(&l);
}

static void refuse_file(const char *loss, int64_t classes, const char *text)
{
    golden g = {.classes = 3, .weights = {1, 2, 3}};
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    assert_int_equal(build_file(&g, loss, classes, graph), CLT_FORMAT);
    if (!strstr(clt_error_message(), text))
        fail_msg("%s", clt_error_message());
    clt_graph_destroy(graph);
}

static void test_bad_files(void **state)
{
    (void)state;
    refuse_file("\"op\": \"mse\", \"in\": [\"top\", \"top\"]", 3,
                "weights of classes need a loss cross_entropy");
    /* There are as many weights as labels, and more logits. */
    refuse_file("\"op\": \"cross_entropy\", \"in\": [\"top\", \"label\"]", 2,
                "weights of 2 classes need logits [batch, 2]");
}

static void test_goldens(void **state)
{
    (void)state;
    char path[4096];
    golden_path("class_weights.json", path, sizeof path);
    json_t *all = json_load_file(path, 0, NULL);
    assert_true(json_array_size(all) >= 5);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const golden g = read_golden(json_array_get(all, i));
        check_differences(&g);
        check_step(&g, "0");
        if (i % 2)
            check_step(&g, "pocl/2");
        check_fit(&g);
        check_file(&g);
    }
    json_decref(all);
}

/* --- values in 16 bits ------------------------------------------------------------------------ */

/* Logits that both types of 16 bits hold, and weights that neither does. f16 has no 1e5. */
static golden many_classes(void)
{
    golden g = {.classes = 24, .count = 16, .smoothing = 0.1};
    for (int64_t i = 0; i < g.count * g.classes; i++)
        g.logits[i] = (float)((i * 37 + i / 5) % 41 - 20) / 8;
    for (int64_t i = 0; i < g.count; i++)
        g.labels[i] = i % 7 == 3 ? IGNORED : (int32_t)(i * 5 % 12);
    for (int64_t c = 0; c < g.classes; c++)
        g.weights[c] = 1 / (3.0 + (double)c);
    g.weights[0] = g.weights[5] = 1e5;
    g.weights[10] = 0;
    return g;
}

/* Adds up the gradient of the bias, and the sizes of its terms, from softmax in double. */
static void bias_gradient(const golden *g, double *sum, double *size)
{
    double weight = 0;
    for (int64_t i = 0; i < g->count; i++)
        weight += g->labels[i] == IGNORED ? 0 : g->weights[g->labels[i]];
    for (int64_t i = 0; i < g->count; i++) {
        double target[MOST], all = 0, total = 0;
        const float *x = g->logits + i * g->classes;
        if (g->labels[i] == IGNORED)
            continue;
        for (int64_t c = 0; c < g->classes; c++) {
            all += exp((double)x[c]);
            target[c] = g->weights[c] * ((c == g->labels[i] ? 1 - g->smoothing : 0) +
                                         g->smoothing / (double)g->classes);
            total += target[c];
        }
        for (int64_t c = 0; c < g->classes; c++) {
            sum[c] += (exp((double)x[c]) / all * total - target[c]) / weight;
            size[c] += (exp((double)x[c]) / all * total + target[c]) / weight;
        }
    }
}

/* Logits are exact here, so the loss is. Gradients are rounded twice: those of the logarithms and
 * those of the logits. */
static void test_16_bits(void **state)
{
    (void)state;
    static const clt_dtype precisions[] = {CLT_BF16, CLT_F16};
    static const double steps[] = {0x1p-8, 0x1p-11}; /* half the distance of numbers near 1 */
    const golden g = many_classes();
    const clt_feed feeds[] = {{.name = "x", .device = -1, .array = CLT_HOST(g.logits)},
                              {.name = "label", .device = -1, .array = CLT_HOST(g.labels)}};
    const clt_step_batch batch = lab_batch(feeds, g.count);
    double x[MOST * MOST], sum[MOST] = {0}, size[MOST] = {0};
    for (int64_t i = 0; i < g.count * g.classes; i++)
        x[i] = (double)g.logits[i];
    bias_gradient(&g, sum, size);
    for (int k = 0; k < 4; k++) {
        lab l = lab_of(&g, k < 2 ? "0" : "pocl/2", precisions[k % 2]);
        float b[MOST];
        clt_step_result result;
        clt_step_result_init(&result);
        ok(clt_trainer_gradients(l.trainer, &batch));
        ok(clt_trainer_gradient(l.trainer, 0, "b", b, (size_t)g.classes * sizeof *b));
        ok(clt_trainer_apply(l.trainer, NULL));
        ok(clt_trainer_result(l.trainer, 0, &result));
        near(result.loss, reference(&g, x));
        for (int64_t c = 0; c < g.classes; c++)
            if (!(fabs((double)b[c] - sum[c]) <= 4 * steps[k % 2] * size[c]))
                fail_msg("class %d: %.9g instead of %.9g", (int)c, (double)b[c], sum[c]);
        lab_close(&l);
    }
}

static void test_stray_label(void **state)
{
    (void)state;
    golden g = {.classes = 3, .count = 2, .labels = {1, 3}, .weights = {1, 2, 3}};
    lab l = lab_of(&g, "0", CLT_F32);
    const clt_feed feeds[] = {{.name = "x", .device = -1, .array = CLT_HOST(g.logits)},
                              {.name = "label", .device = -1, .array = CLT_HOST(g.labels)}};
    const clt_step_batch batch = lab_batch(feeds, g.count);
    clt_step_result result;
    clt_step_result_init(&result);
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    assert_int_equal(clt_trainer_result(l.trainer, 0, &result), CLT_NONFINITE);
    /* The loss has a constant NaN for such labels. It has no name, and is not the cause. */
    if (!strstr(clt_error_message(), "step 1: the output of node ") ||
        !strstr(clt_error_message(), " is not finite in sample 1 of the batch"))
        fail_msg("%s", clt_error_message());
    lab_close(&l);
}

static void test_errors(void **state)
{
    (void)state;
    const double bad[][2] = {{1, -1},      {0, 0},     {1e39, 1}, {1, 1e-60},
                             {3e38, 3e38}, {1, 2e-19}, {1, NAN},  {0, 0}};
    enum { BAD = sizeof bad / sizeof *bad };
    const int64_t dims[] = {CLT_BATCH, 2, 3};
    for (int i = 0; i < BAD; i++) {
        clt_graph *graph;
        clt_value *sum, *weight;
        clt_cross_entropy_options o;
        clt_cross_entropy_options_init(&o);
        ok(clt_graph_create(&graph));
        o.class_weights = bad[i];
        clt_value *x = clt_input(graph, "x", CLT_F32, i < BAD - 1 ? 2 : 3, dims);
        const int64_t label_dims[] = {CLT_BATCH, 3};
        clt_value *y = clt_input(graph, "y", CLT_I32, i < BAD - 1 ? 1 : 2, label_dims);
        assert_int_equal(clt_cross_entropy(x, y, &o, &sum, &weight),
                         i < BAD - 1 ? CLT_INVALID_ARGUMENT : CLT_SHAPE);
        assert_true(!sum && !weight);
        clt_graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),   cmocka_unit_test(test_16_bits),
        cmocka_unit_test(test_bad_files), cmocka_unit_test(test_stray_label),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
