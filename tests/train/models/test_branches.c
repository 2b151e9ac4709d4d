/* A network with two inputs, two heads and two weighted losses with labels of their own, some of
 * which are ignored. Losses, gradients, evaluation and prediction are compared with a reference in
 * double: on one device, on two, and in micro-batches. */
#include "train/lab.h"

enum { LEFT = 4, RIGHT = 3, WIDTH = 6, CLASSES = 5, TARGETS = 2, MOST = 13, IGNORED = -100 };
enum { A = WIDTH * LEFT, B = WIDTH * RIGHT, C = CLASSES * WIDTH, D = TARGETS * WIDTH };
enum { ALL = A + B + C + D };

static const double COEFFICIENTS[] = {0.7, 2.5};

static float left[MOST * LEFT], right[MOST * RIGHT], targets[MOST * TARGETS];
static int32_t labels[MOST];

static const struct {
    const char *name;
    int elements;
} parameters[] = {
    {"left.weight", A}, {"right.weight", B}, {"head.weight", C}, {"second.weight", D}};

static clt_value *weight_of(clt_graph *graph, const char *name, int64_t out, int64_t in)
{
    const clt_init init = {CLT_INIT_UNIFORM, 0.6, 0};
    return clt_parameter(graph, name, 2, (int64_t[]){out, in}, init);
}

static clt_graph *build(void)
{
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "left", CLT_F32, 2, (int64_t[]){CLT_BATCH, LEFT});
    clt_value *y = clt_input(graph, "right", CLT_F32, 2, (int64_t[]){CLT_BATCH, RIGHT});
    clt_value *label = clt_input(graph, "label", CLT_I32, 1, (int64_t[]){CLT_BATCH});
    clt_value *target = clt_input(graph, "target", CLT_F32, 2, (int64_t[]){CLT_BATCH, TARGETS});
    x = clt_tanh(clt_linear(x, weight_of(graph, "left.weight", WIDTH, LEFT), NULL));
    y = clt_tanh(clt_linear(y, weight_of(graph, "right.weight", WIDTH, RIGHT), NULL));
    clt_value *h = clt_add(x, y);
    clt_value *logits =
        clt_output(clt_linear(h, weight_of(graph, "head.weight", CLASSES, WIDTH), NULL), "logits");
    clt_value *values = clt_output(
        clt_linear(h, weight_of(graph, "second.weight", TARGETS, WIDTH), NULL), "values");
    clt_cross_entropy(logits, label, NULL, &sum, &weight);
    ok(clt_loss(graph, "classes", sum, weight, COEFFICIENTS[0]));
    clt_mse(values, target, &sum, &weight);
    ok(clt_loss(graph, "values", sum, weight, COEFFICIENTS[1]));
    clt_correct(logits, label, 1, IGNORED, &sum, &weight);
    ok(clt_metric(graph, "top1", sum, weight));
    clt_correct(logits, label, 2, IGNORED, &sum, &weight);
    ok(clt_metric(graph, "top2", sum, weight));
    ok(clt_graph_status(graph));
    return graph;
}

/* --- the reference ---------------------------------------------------------------------------- */

typedef struct outcome {
    double logits[MOST][CLASSES], values[MOST][TARGETS];
    double sums[4], weights[4]; /* of the losses, then of the metrics */
    double loss;
} outcome;

static void run_sample(const double *p, int s, double *logits, double *values)
{
    for (int c = 0; c < CLASSES; c++)
        logits[c] = 0;
    for (int t = 0; t < TARGETS; t++)
        values[t] = 0;
    for (int w = 0; w < WIDTH; w++) {
        double x = 0, y = 0;
        for (int i = 0; i < LEFT; i++)
            x += p[w * LEFT + i] * (double)left[s * LEFT + i];
        for (int i = 0; i < RIGHT; i++)
            y += p[A + w * RIGHT + i] * (double)right[s * RIGHT + i];
        const double h = tanh(x) + tanh(y);
        for (int c = 0; c < CLASSES; c++)
            logits[c] += p[A + B + c * WIDTH + w] * h;
        for (int t = 0; t < TARGETS; t++)
            values[t] += p[A + B + C + t * WIDTH + w] * h;
    }
}

static outcome reference(const double *p, int count)
{
    outcome o = {.loss = 0};
    for (int s = 0; s < count; s++) {
        double sum = 0;
        int larger = 0;
        run_sample(p, s, o.logits[s], o.values[s]);
        for (int t = 0; t < TARGETS; t++)
            o.sums[1] += pow(o.values[s][t] - (double)targets[s * TARGETS + t], 2);
        o.weights[1] += TARGETS;
        if (labels[s] == IGNORED)
            continue;
        for (int c = 0; c < CLASSES; c++) {
            sum += exp(o.logits[s][c]);
            larger += o.logits[s][c] > o.logits[s][labels[s]];
        }
        o.sums[0] += log(sum) - o.logits[s][labels[s]];
        o.sums[2] += larger < 1;
        o.sums[3] += larger < 2;
        o.weights[0]++;
    }
    o.weights[2] = o.weights[3] = o.weights[0];
    for (int k = 0; k < 2; k++)
        o.loss += o.weights[k] > 0 ? COEFFICIENTS[k] * o.sums[k] / o.weights[k] : 0;
    return o;
}

/* --- */

static void near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
        fail_msg("%s is %.9g, not %.9g", what, got, want);
}

static void make_data(bool ignored)
{
    make_samples(left, labels, MOST, LEFT, CLASSES);
    for (int i = 0; i < MOST * RIGHT; i++)
        right[i] = (float)((i * 53) % 97 - 48) / 50;
    for (int i = 0; i < MOST * TARGETS; i++)
        targets[i] = (float)((i * 29) % 31 - 15) / 10;
    for (int i = 0; ignored && i < MOST; i += 3)
        labels[i] = IGNORED;
}

static const clt_feed feeds[] = {{"left", -1, CLT_HOST(left)},
                                 {"right", -1, CLT_HOST(right)},
                                 {"label", -1, CLT_HOST(labels)},
                                 {"target", -1, CLT_HOST(targets)}};

static clt_step_batch batch_of(int count, int n_feeds)
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = count;
    batch.feeds = feeds;
    batch.n_feeds = n_feeds;
    return batch;
}

static lab lab_of(const char *list, int accumulate, double *p)
{
    float got[ALL];
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = MOST;
    options.accumulate = accumulate;
    options.lr = 0.1;
    options.poison = 1;
    lab l = lab_on_kept(clt_test_devices(list));
    lab_store(&l, build(), 9);
    lab_trainer(&l, &options);
    for (int k = 0, at = 0; k < 4; at += parameters[k++].elements) {
        ok(clt_store_get(l.store, parameters[k].name, got,
                         (size_t)parameters[k].elements * sizeof *got));
        for (int i = 0; i < parameters[k].elements; i++)
            p[at + i] = got[i];
    }
    return l;
}

/* Computes gradients by central differences of the reference. */
static void gradient_of(double *p, int count, double *gradient)
{
    const double step = 1e-5;
    for (int i = 0; i < ALL; i++) {
        const double at = p[i];
        p[i] = at + step;
        const double up = reference(p, count).loss;
        p[i] = at - step;
        gradient[i] = (up - reference(p, count).loss) / (2 * step);
        p[i] = at;
    }
}

static void step_on(const char *list, int accumulate, int count)
{
    double p[ALL], gradient[ALL], sum, weight;
    float got[ALL];
    clt_step_result result;
    clt_step_result_init(&result);
    lab l = lab_of(list, accumulate, p);
    const clt_step_batch batch = batch_of(count, 4);
    const outcome want = reference(p, count);
    gradient_of(p, count, gradient);
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_result(l.trainer, 0, &result));
    near(result.loss, want.loss, 1e-5, "the loss");
    for (int m = 0; m < 2; m++) {
        ok(clt_trainer_metric(l.trainer, 0, m, &sum, &weight));
        near(sum, want.sums[2 + m], 0, "a metric's sum");
        near(weight, want.weights[2 + m], 0, "a metric's weight");
    }
    for (int k = 0, at = 0; k < 4; at += parameters[k++].elements) {
        ok(clt_store_get(l.store, parameters[k].name, got,
                         (size_t)parameters[k].elements * sizeof *got));
        for (int i = 0; i < parameters[k].elements; i++)
            near((double)got[i], p[at + i] - 0.1 * gradient[at + i], 2e-6, parameters[k].name);
    }
    ok(clt_store_check(l.store));
    lab_close(&l);
}

static void test_steps(void **state)
{
    (void)state;
    for (int ignored = 0; ignored < 2; ignored++) {
        make_data(ignored);
        step_on("pocl", 1, MOST);
        step_on("pocl", 3, MOST);
        step_on("pocl/2", 1, MOST);
        step_on("pocl/2", 2, MOST - 2);
        step_on("pocl/2", 1, 1); /* the only label is ignored, and a device has no samples */
    }
}

static void evaluate_on(const char *list)
{
    double p[ALL], sums[4] = {0}, weights[4] = {0};
    lab l = lab_of(list, 1, p);
    const clt_step_batch batch = batch_of(MOST, 4);
    const outcome want = reference(p, MOST);
    ok(clt_trainer_evaluate(l.trainer, &batch, sums, weights));
    for (int k = 0; k < 4; k++) {
        near(sums[k], want.sums[k], 1e-5, "a sum");
        near(weights[k], want.weights[k], 0, "a weight");
    }
    lab_close(&l);
}

/* Predicts both outputs without labels, then one of them. */
static void predict_on(const char *list)
{
    double p[ALL];
    float logits[MOST][CLASSES], values[MOST][TARGETS];
    const clt_fetch fetches[] = {{"logits", -1, CLT_HOST(logits)},
                                 {"values", -1, CLT_HOST(values)}};
    lab l = lab_of(list, 1, p);
    const outcome want = reference(p, MOST);
    for (int n = 2; n > 0; n--) {
        clt_step_batch batch = batch_of(MOST, 2);
        batch.fetches = fetches;
        batch.n_fetches = n;
        memset(logits, 0, sizeof logits);
        ok(clt_trainer_predict(l.trainer, &batch, NULL));
        ok(clt_trainer_wait(l.trainer));
        for (int s = 0; s < MOST; s++) {
            for (int c = 0; c < CLASSES; c++)
                near((double)logits[s][c], want.logits[s][c], 1e-6, "a logit");
            for (int t = 0; t < TARGETS; t++)
                near((double)values[s][t], want.values[s][t], 1e-6, "a value");
        }
    }
    lab_close(&l);
}

static void test_without_training(void **state)
{
    (void)state;
    make_data(true);
    evaluate_on("pocl");
    evaluate_on("pocl/2");
    predict_on("pocl");
    predict_on("pocl/2");
}

/* A weight that the caller passes applies to its own loss only. */
static void test_given_weights(void **state)
{
    const double given[] = {4, 50};
    double p[ALL];
    float before[C], after[C];
    (void)state;
    make_data(true);
    double change[2];
    for (int run = 0; run < 2; run++) {
        lab l = lab_of("pocl", 1, p);
        clt_step_batch batch = batch_of(MOST, 4);
        const outcome want = reference(p, MOST);
        const double natural[] = {want.weights[0], want.weights[1]};
        batch.loss_weights = run ? given : natural;
        ok(clt_store_get(l.store, "head.weight", before, sizeof before));
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_wait(l.trainer));
        ok(clt_store_get(l.store, "head.weight", after, sizeof after));
        change[run] = (double)after[3] - (double)before[3];
        if (run) /* parameters of the first loss */
            near(change[1], change[0] * natural[0] / given[0], 1e-6, "the change");
        assert_true(change[run] != 0);
        lab_close(&l);
    }
}

/* Messages name missing feeds. */
static void test_missing(void **state)
{
    double p[ALL];
    (void)state;
    make_data(false);
    lab l = lab_of("pocl", 1, p);
    clt_step_batch batch = batch_of(MOST, 3);
    assert_int_equal(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT);
    if (!strstr(clt_error_message(), "target"))
        fail_msg("'%s' does not name the input", clt_error_message());
    lab_close(&l);
}

/* Losses and constants that no training could use are refused when they are declared. */
static void test_refused(void **state)
{
    const double bad[] = {NAN, INFINITY};
    (void)state;
    for (int i = 0; i < 3; i++) {
        clt_graph *graph;
        ok(clt_graph_create(&graph));
        const float one = 1;
        clt_value *x = clt_constant(graph, CLT_F32, 1, (int64_t[]){1}, i < 2 ? &one : NULL);
        if (i < 2)
            assert_int_equal(clt_loss(graph, "mean", x, x, bad[i]), CLT_INVALID_ARGUMENT);
        else
            assert_null(x);
        assert_int_equal(clt_graph_status(graph), CLT_INVALID_ARGUMENT);
        assert_non_null(strstr(clt_error_message(), i < 2 ? "mean" : "constant"));
        clt_graph_destroy(graph);
    }
}

/* A constant has no name, so the message cannot name it. */
static void test_constant_of_the_batch(void **state)
{
    (void)state;
    const float one = 1;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    assert_null(clt_constant(graph, CLT_F32, 1, (int64_t[]){CLT_BATCH}, &one));
    assert_int_equal(clt_graph_status(graph), CLT_SHAPE);
    assert_non_null(strstr(clt_error_message(), "a constant: dimension 0 depends on the batch"));
    clt_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_steps),
        cmocka_unit_test(test_without_training), cmocka_unit_test(test_given_weights),
        cmocka_unit_test(test_missing),          cmocka_unit_test(test_constant_of_the_batch)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
