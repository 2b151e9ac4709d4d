#include "ops/harness/golden.h"
#include "ops/harness/in_batch_blocked.h"
#include "ops/loss/label_cases.h"

static double smoothing_of(const op_case *c)
{
    return *(const double *)c->attr;
}

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    clt_cross_entropy_options o;
    clt_cross_entropy_options_init(&o);
    o.label_smoothing = smoothing_of(c);
    clt_cross_entropy(in[0], in[1], &o, &out[0], &out[1]);
}

/* Returns the weight of a class' log-probability at a position. */
static double share(const op_case *c, const ref_vectors *v, double label, int64_t j)
{
    const double smoothing = smoothing_of(c);
    if (label == -100)
        return 0;
    return (j == (int64_t)label ? 1 - smoothing : 0) + smoothing / (double)v->classes;
}

static bool is_class(const ref_vectors *v, double label)
{
    return label == -100 || (label >= 0 && label < (double)v->classes);
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const ref_vectors v = ref_vectors_of(c, 1, n);
    const int64_t positions = v.outer * v.inner;
    double sum = 0, terms = 0, weight = 0;
    for (int64_t i = 0; i < positions; i++) {
        const int64_t first = ref_first(&v, i);
        const double log_sum = ref_log_sum(x[0] + first, &v), label = x[1][i];
        if (!is_class(&v, label))
            sum = NAN;
        else
            weight += label != -100;
        for (int64_t j = 0; j < v.classes; j++) {
            const double at = x[0][first + j * v.inner], s = share(c, &v, label, j);
            sum += s * (log_sum - at);
            terms += s * (2 * fabs(log_sum) + 2 * fabs(at) + sqrt((double)v.classes));
        }
    }
    y[0][0] = sum;
    y[1][0] = weight;
    if (bound)
        bound[0][0] = terms * sqrt((double)positions);
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const ref_vectors v = ref_vectors_of(c, 1, n);
    for (int64_t i = 0; i < v.outer * v.inner; i++) {
        const int64_t first = ref_first(&v, i);
        const double log_sum = ref_log_sum(x[0] + first, &v), label = x[1][i];
        for (int64_t j = 0; j < v.classes; j++) {
            const int64_t at = first + j * v.inner;
            const double p = exp(x[0][at] - log_sum), s = share(c, &v, label, j);
            dx[0][at] = !is_class(&v, label) ? NAN : label == -100 ? 0 : dy[0][0] * (p - s);
            bound[0][at] = fabs(dy[0][0]) *
                           (s + p * (8 + fabs(x[0][at]) + fabs(log_sum) + sqrt((double)v.classes)));
        }
    }
}

static op_test test = {"cross_entropy", 2, 2, build, forward, backward, 0};

static const struct shape {
    int rank;
    int64_t dims[4], batch;
    double smoothing;
    int ignored;
} shapes[] = {
    {2, {CLT_BATCH, 10}, 7, 0, 0},     {2, {CLT_BATCH, 10}, 257, 0, 1},
    {2, {CLT_BATCH, 1}, 1, 0, 0},      {2, {CLT_BATCH, 7}, 13, 0.1, 1},
    {3, {CLT_BATCH, 5, 3}, 5, 0.3, 1}, {4, {CLT_BATCH, 3, 2, 5}, 3, 0, 1},
    {2, {CLT_BATCH, 3}, 5, 1, 0},      {3, {CLT_BATCH, 2, 97}, 53, 0, 1},
    {2, {CLT_BATCH, 16}, 3, 0, 0},     {2, {CLT_BATCH, 37}, 11, 0.2, 1},
    {2, {CLT_BATCH, 67}, 17, 0, 1},    {2, {CLT_BATCH, 2113}, 5, 0.1, 1},
};

static op_case case_of(const struct shape *s, char *text)
{
    op_case c = label_case(s->rank, s->dims, s->batch, s->ignored);
    snprintf(text, OP_TEXT, "batch %lld, %lld classes, rank %d, smoothing %g", (long long)s->batch,
             (long long)s->dims[1], s->rank, s->smoothing);
    c.text = text;
    c.attr = &s->smoothing;
    c.in[0].gradient = true;
    return c;
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char text[OP_TEXT];
        const op_case c = case_of(&shapes[i], text);
        if (!clt_test_oclgrind() || shapes[i].batch < 20)
            op_check(&test, &c, shapes[i].batch < 20);
    }
    op_report(&test);
}

static void build_batch_blocked(const op_case *c, clt_value *const *in, clt_value **out)
{
    clt_value *const images[] = {op_in_batch_blocked(in[0]), in[1]};
    build(c, images, out);
}

static void test_batch_blocked(void **state)
{
    static const struct shape some[] = {{2, {CLT_BATCH, 10}, 37, 0, 1},
                                        {2, {CLT_BATCH, 7}, 13, 0.1, 1},
                                        {2, {CLT_BATCH, 1}, 1, 0, 0}};
    op_test t = {"cross_entropy", 2, 2, build_batch_blocked, forward, backward, 0};
    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        char text[OP_TEXT];
        const op_case c = case_of(&some[i], text);
        if (!clt_test_oclgrind() || i == 1)
            op_check(&t, &c, true);
    }
    op_report(&t);
}

/* A label that is no class makes the sum and the gradient of its own position NaN. It does not
 * count in the weight. */
static void test_no_class(void **state)
{
    static const struct shape few = {2, {CLT_BATCH, 4}, 5, 0, 0},
                              many = {2, {CLT_BATCH, 33}, 5, 0, 0};
    static const double labels[4][5] = {
        {1, 4, 0, 3, -100}, {1, 2, -1, 3, 0}, {1, 33, 32, 3, -100}, {1, 2, -1, 3, 0}};
    char text[OP_TEXT];
    (void)state;
    for (int i = 0; i < 4; i++) {
        op_case c = case_of(i < 2 ? &few : &many, text);
        c.in[1].set = labels[i];
        op_check(&test, &c, false);
    }
}

static void golden(op_golden *g)
{
    const double smoothing = op_golden_number(g, "label_smoothing");
    const char *reduction = json_string_value(json_object_get(g->attributes, "reduction"));
    if (strcmp(reduction, "sum") != 0)
        return; /* the trainer divides the sum by the weight */
    op_golden_operand(g, "x", true);
    op_golden_operand(g, "labels", true);
    op_golden_results(g);
    g->c.attr = &smoothing;
    op_check(&test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("cross_entropy", golden);
}

static void refuse(clt_dtype dtype, int rank, const int64_t *dims, double smoothing,
                   const char *part)
{
    clt_graph *g;
    clt_value *sum = NULL, *weight = NULL;
    clt_cross_entropy_options o;
    clt_cross_entropy_options_init(&o);
    o.label_smoothing = smoothing;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 3, (int64_t[]){CLT_BATCH, 4, 3});
    clt_value *labels = clt_input(g, "labels", dtype, rank, dims);
    assert_int_not_equal(clt_cross_entropy(x, labels, &o, &sum, &weight), CLT_OK);
    assert_null(sum);
    assert_null(weight);
    assert_int_not_equal(clt_graph_status(g), CLT_OK);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    (void)state;
    refuse(CLT_F32, 2, (int64_t[]){CLT_BATCH, 3}, 0, "must be i32, not f32[Bx3]");
    refuse(CLT_I32, 2, (int64_t[]){CLT_BATCH, 4}, 0, "i32[Bx4] do not fit the logits f32[Bx4x3]");
    refuse(CLT_I32, 1, (int64_t[]){CLT_BATCH}, 0,
           ": a flatten is missing before the last linear layer, or before this loss");
    refuse(CLT_I32, 1, (int64_t[]){CLT_BATCH}, 0, "do not fit");
    refuse(CLT_I32, 2, (int64_t[]){CLT_BATCH, 3}, 1.5, "label_smoothing is 1.5");
    refuse(CLT_I32, 2, (int64_t[]){CLT_BATCH, 3}, NAN, "label_smoothing");
    clt_value *sum, *weight;
    assert_int_equal(clt_cross_entropy(NULL, NULL, NULL, &sum, &weight), CLT_INVALID_ARGUMENT);
    assert_null(sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_batch_blocked),
        cmocka_unit_test(test_no_class), cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
