/* Metrics against scikit-learn's (tests/goldens/metrics.json): all at once, in batches of uneven
 * sizes, and by four ranks, of which some have no samples. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include <jansson.h>

#include "goldens/goldens.h"
#include <cltrain/cltrain.h>

enum { DIVISOR = 20, IGNORED = -1, RANKS = 4 };
static const double TOLERANCE = 1e-9;

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

static void fails(clt_status status, clt_status expected, const char *part)
{
    assert_int_equal(status, expected);
    if (!strstr(clt_error_message(), part))
        fail_msg("'%s' is not in: %s", part, clt_error_message());
}

/* A case: samples as arrays, and the expected results. */
typedef struct test_case {
    const json_t *json;
    int64_t classes, width, count;
    double *predictions, *targets, *weights; /* weights may be NULL */
    int64_t *labels;
} test_case;

static json_t *read_cases(void)
{
    char path[4096];
    json_error_t error;
    golden_path("metrics.json", path, sizeof path);
    json_t *cases = json_load_file(path, 0, &error);
    if (!cases)
        fail_msg("%s: %s", path, error.text);
    assert_true(json_array_size(cases) >= 100);
    return cases;
}

static double *rows_of(const json_t *rows, int64_t count, int64_t width, double divisor)
{
    double *out = calloc((size_t)(count * width), sizeof *out);
    assert_int_equal(json_array_size(rows), count);
    for (int64_t i = 0; i < count * width; i++)
        out[i] = json_number_value(json_array_get(json_array_get(rows, (size_t)(i / width)),
                                                  (size_t)(i % width))) /
                 divisor;
    return out;
}

static test_case open_case(const json_t *json)
{
    test_case c = {.json = json, .classes = json_integer_value(json_object_get(json, "classes"))};
    const json_t *weights = json_object_get(json, "weights");
    const json_t *labels = json_object_get(json, "labels");
    const json_t *rows = json_object_get(json, c.classes ? "scores" : "predictions");
    c.width = c.classes ? c.classes : json_integer_value(json_object_get(json, "outputs"));
    c.count = (int64_t)json_array_size(rows);
    c.predictions = rows_of(rows, c.count, c.width, c.classes ? DIVISOR : 1);
    if (!c.classes)
        c.targets = rows_of(json_object_get(json, "targets"), c.count, c.width, 1);
    c.labels = calloc((size_t)c.count, sizeof *c.labels);
    for (int64_t i = 0; c.classes && i < c.count; i++)
        c.labels[i] = json_integer_value(json_array_get(labels, (size_t)i));
    if (!json_is_null(weights)) {
        c.weights = calloc((size_t)c.count, sizeof *c.weights);
        for (int64_t i = 0; i < c.count; i++)
            c.weights[i] = json_number_value(json_array_get(weights, (size_t)i));
    }
    return c;
}

static void close_case(test_case *c)
{
    free(c->predictions);
    free(c->targets);
    free(c->weights);
    free(c->labels);
}

static clt_metrics *create(const test_case *c)
{
    clt_metrics *m;
    clt_metrics_options o;
    clt_metrics_options_init(&o);
    o.classes = c->classes;
    o.outputs = c->classes ? 1 : c->width;
    o.ignore_index = IGNORED;
    o.top = json_integer_value(json_object_get(c->json, "top"));
    o.auc = c->classes > 0;
    ok(clt_metrics_create(&o, &m));
    return m;
}

static void add(clt_metrics *m, const test_case *c, int64_t begin, int64_t count)
{
    clt_array predictions, targets, weights;
    const int64_t shape[] = {count, c->width};
    if (!count) {
        ok(clt_metrics_add(m, NULL, NULL, NULL, 0));
        return;
    }
    ok(clt_array_of(&predictions, c->predictions + begin * c->width, CLT_F64, 2, shape));
    if (c->classes)
        ok(clt_array_of(&targets, c->labels + begin, CLT_I64, 1, shape));
    else
        ok(clt_array_of(&targets, c->targets + begin * c->width, CLT_F64, 2, shape));
    if (c->weights)
        ok(clt_array_of(&weights, c->weights + begin, CLT_F64, 1, shape));
    ok(clt_metrics_add(m, &predictions, &targets, c->weights ? &weights : NULL, count));
}

static int near(const json_t *expected, double value)
{
    if (json_is_null(expected))
        return isnan(value);
    const double e = json_number_value(expected);
    return fabs(value - e) <= TOLERANCE * fmax(1, fabs(e));
}

static void check_number(const char *what, size_t number, const json_t *expected, double value)
{
    if (expected && !near(expected, value))
        fail_msg("case %zu: %s is %.17g, scikit-learn has %.17g", number, what, value,
                 json_is_null(expected) ? NAN : json_number_value(expected));
}

static void check_classes(const test_case *c, size_t number, const clt_metrics *m)
{
    double *matrix = calloc((size_t)(c->classes * c->classes), sizeof *matrix);
    ok(clt_metrics_confusion(m, matrix, c->classes * c->classes));
    for (int64_t i = 0; i < c->classes; i++) {
        const json_t *row = json_array_get(json_object_get(c->json, "confusion"), (size_t)i);
        const json_t *e = json_array_get(json_object_get(c->json, "by_class"), (size_t)i);
        clt_metrics_class k;
        clt_metrics_class_init(&k);
        ok(clt_metrics_read_class(m, i, &k));
        check_number("precision of a class", number, json_object_get(e, "precision"), k.precision);
        check_number("recall of a class", number, json_object_get(e, "recall"), k.recall);
        check_number("F1 of a class", number, json_object_get(e, "f1"), k.f1);
        check_number("support", number, json_object_get(e, "support"), k.support);
        if (c->classes > 2 || i == 1)
            check_number("AUC of a class", number, json_object_get(e, "auc"), k.auc);
        for (int64_t p = 0; p < c->classes; p++)
            check_number("confusion", number, json_array_get(row, (size_t)p),
                         matrix[i * c->classes + p]);
    }
    free(matrix);
}

static void check_case(const test_case *c, size_t number, const clt_metrics *m)
{
    clt_metrics_result r;
    clt_metrics_result_init(&r);
    ok(clt_metrics_read(m, &r));
    const json_t *e = json_object_get(c->json, "result");
#define CHECK(name) check_number(#name, number, json_object_get(e, #name), r.name)
    CHECK(accuracy);
    CHECK(top_accuracy);
    CHECK(precision_macro);
    CHECK(recall_macro);
    CHECK(f1_macro);
    CHECK(precision_micro);
    CHECK(recall_micro);
    CHECK(f1_micro);
    CHECK(precision_weighted);
    CHECK(recall_weighted);
    CHECK(f1_weighted);
    CHECK(auc);
    CHECK(mae);
    CHECK(mse);
    CHECK(rmse);
    CHECK(r2);
    if (c->classes)
        check_classes(c, number, m);
}

static void test_scikit_learn(void **state)
{
    (void)state;
    json_t *cases = read_cases();
    for (size_t i = 0; i < json_array_size(cases); i++) {
        test_case c = open_case(json_array_get(cases, i));
        clt_metrics *whole = create(&c), *batches = create(&c);
        add(whole, &c, 0, c.count);
        check_case(&c, i, whole);
        for (int64_t begin = 0, size = 1; begin < c.count; begin += size++)
            add(batches, &c, begin, size < c.count - begin ? size : c.count - begin);
        check_case(&c, i, batches);
        clt_metrics_destroy(whole);
        clt_metrics_destroy(batches);
        close_case(&c);
    }
    json_decref(cases);
}

/* --- ranks: threads that gather through shared memory ----------------------------------------- */

typedef struct ranks {
    pthread_barrier_t barrier;
    const void *mine[RANKS];
    const test_case *c;
    size_t number;
} ranks;

typedef struct rank {
    ranks *all;
    clt_world world;
    clt_metrics *metrics;
    clt_status status;
} rank;

static clt_status gather(void *user, const void *mine, int64_t bytes, void *all)
{
    rank *r = user;
    r->all->mine[r->world.rank] = mine;
    pthread_barrier_wait(&r->all->barrier);
    for (int i = 0; i < RANKS; i++)
        memcpy((char *)all + i * bytes, r->all->mine[i], (size_t)bytes);
    pthread_barrier_wait(&r->all->barrier);
    return CLT_OK;
}

static void *gather_metrics(void *user)
{
    rank *r = user;
    r->status = clt_metrics_gather(r->metrics, &r->world);
    return NULL;
}

static void test_ranks(void **state)
{
    (void)state;
    json_t *cases = read_cases();
    for (size_t i = 0; i < json_array_size(cases); i += 3) {
        test_case c = open_case(json_array_get(cases, i));
        ranks all = {.c = &c, .number = i};
        rank list[RANKS];
        pthread_t threads[RANKS];
        pthread_barrier_init(&all.barrier, NULL, RANKS);
        for (int k = 0; k < RANKS; k++) {
            list[k] = (rank){.all = &all, .metrics = create(&c)};
            clt_world_init(&list[k].world);
            list[k].world.rank = k;
            list[k].world.ranks = RANKS;
            list[k].world.gather = gather;
        }
        for (int k = 0; k < RANKS; k++) {
            list[k].world.user = &list[k];
            /* rank 1 has most samples, rank 2 none */
            const int64_t bounds[] = {0, c.count / 4, c.count - 1, c.count - 1, c.count};
            add(list[k].metrics, &c, bounds[k], bounds[k + 1] - bounds[k]);
        }
        for (int k = 0; k < RANKS; k++)
            assert_int_equal(pthread_create(&threads[k], NULL, gather_metrics, &list[k]), 0);
        for (int k = 0; k < RANKS; k++) {
            pthread_join(threads[k], NULL);
            ok(list[k].status);
            check_case(&c, i, list[k].metrics);
            clt_metrics_destroy(list[k].metrics);
        }
        pthread_barrier_destroy(&all.barrier);
        close_case(&c);
    }
    json_decref(cases);
}

/* --- the rest --------------------------------------------------------------------------------- */

/* Logits give the AUC of their softmax. Arrays of f32 with strides are read as they lie. */
static void test_logits(void **state)
{
    (void)state;
    const float logits[] = {1, 9, 0, 2, 9, 4, -1, 9, 3, 0, 9, 0}; /* every third one is a gap */
    const int32_t labels[] = {0, 1, 1, 0};
    clt_metrics *m;
    clt_metrics_options o;
    clt_metrics_options_init(&o);
    o.classes = 2;
    o.logits = o.auc = 1;
    ok(clt_metrics_create(&o, &m));
    clt_array scores = {.host = (void *)(uintptr_t)logits,
                        .dtype = CLT_F32,
                        .rank = 2,
                        .shape = {4, 2},
                        .strides = {3 * sizeof(float), 2 * sizeof(float)}};
    clt_array targets = CLT_HOST(labels);
    ok(clt_metrics_add(m, &scores, &targets, NULL, 4));
    clt_metrics_result r;
    clt_metrics_result_init(&r);
    ok(clt_metrics_read(m, &r));
    /* Class 1 leads by -1, 2, 4 and 0, so both of its samples are in front. */
    assert_true(r.auc == 1 && r.accuracy == 1 && r.samples == 4);
    clt_metrics_destroy(m);
}

static void test_errors(void **state)
{
    (void)state;
    clt_metrics *m = NULL;
    clt_metrics_options o;
    clt_metrics_result r;
    double matrix[9];
    clt_metrics_result_init(&r);
    clt_metrics_options_init(&o);
    o.classes = 1;
    fails(clt_metrics_create(&o, &m), CLT_INVALID_ARGUMENT, "classes 1");
    o.classes = 3;
    o.top = 4;
    fails(clt_metrics_create(&o, &m), CLT_INVALID_ARGUMENT, "top 4");
    o.top = 0;
    ok(clt_metrics_create(&o, &m));
    fails(clt_metrics_read(m, &r), CLT_STATE, "no samples");
    float scores[] = {1, 2, 3, 4, 5, 6};
    int32_t labels[] = {0, 3};
    clt_array p = CLT_HOST(scores), t = CLT_HOST(labels), weights;
    fails(clt_metrics_add(m, &p, &t, NULL, 2), CLT_INVALID_ARGUMENT, "label of sample 1 is 3");
    labels[1] = 2;
    scores[4] = NAN;
    fails(clt_metrics_add(m, &p, &t, NULL, 2), CLT_INVALID_ARGUMENT, "class 1 of sample 1 is");
    scores[4] = 5;
    const double negative[] = {1, -1};
    const int64_t shape[] = {2, 4};
    ok(clt_array_of(&weights, negative, CLT_F64, 1, shape));
    fails(clt_metrics_add(m, &p, &t, &weights, 2), CLT_INVALID_ARGUMENT, "weight of sample 1");
    ok(clt_array_of(&p, scores, CLT_F32, 2, shape));
    fails(clt_metrics_add(m, &p, &t, NULL, 2), CLT_INVALID_ARGUMENT, "samples of 3 numbers");
    fails(clt_metrics_confusion(m, matrix, 8), CLT_INVALID_ARGUMENT, "room for 8");
    fails(clt_metrics_read(m, &r), CLT_STATE, "no samples"); /* nothing was added */
    clt_metrics_destroy(m);
    clt_metrics_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scikit_learn),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
