/* Cross entropy of classes that are divided over places. One graph computes the parts of all places
 * and adds them up; the results must be those of all classes in double. */
#include "graph/sharding.h"
#include "ops/harness/harness.h"
#include "ops/loss/cross_entropy_parts.h"
#include "ops/loss/label_cases.h"

enum { MOST_PLACES = 3, UPSTREAM = 2 };

typedef struct parts_case {
    double smoothing;
    int places;
    bool exact; /* results are rounded to f32, and kernels must give these bits */
} parts_case;

static void make_exact(const op_case *c, int64_t count, double *y, double *bound)
{
    for (int64_t i = 0; ((const parts_case *)c->attr)->exact && i < count; i++) {
        y[i] = (double)(float)y[i];
        if (bound)
            bound[i] = 0;
    }
}

static clt_value *slice_of(clt_value *x, int64_t first, int64_t size)
{
    int64_t start[CLT_MAX_RANK] = {0}, stop[CLT_MAX_RANK];
    for (int k = 0; k < CLT_MAX_RANK; k++)
        stop[k] = CLT_TO_END;
    start[1] = first;
    stop[1] = first + size;
    return clt_slice(x, start, stop, NULL);
}

/* The places' logits and attributes, and what they compute together. */
typedef struct places {
    int count;
    clt_value *logits[MOST_PLACES], *largest, *parts;
    clt_cross_entropy_parts_attr attrs[MOST_PLACES];
} places;

static places divide(const op_case *c, clt_value *const *in)
{
    const parts_case *k = c->attr;
    const int64_t classes = in[0]->type.dims[1];
    places p = {.count = k->places};
    const int axis = 1;
    for (int i = 0; i < p.count; i++) {
        const int64_t first = clt_part_begin(classes, p.count, i);
        p.logits[i] = slice_of(in[0], first, clt_part_size(classes, p.count, i));
        p.attrs[i] = (clt_cross_entropy_parts_attr){
            {.label_smoothing = k->smoothing, .ignore_index = -100}, (int)first, (int)classes};
    }
    p.largest = clt_reduce_max(in[0], &axis, 1, 0);
    for (int i = 0; i < p.count; i++) {
        clt_value *own =
            clt_emit1(&clt_op_cross_entropy_parts, &p.attrs[i], 3, p.logits[i], in[1], p.largest);
        p.parts = p.parts ? clt_add(p.parts, own) : own;
    }
    return p;
}

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const places p = divide(c, in);
    clt_value *const of[] = {p.parts, in[1]};
    const clt_node *sum =
        clt_graph_add(in[0]->graph, &clt_op_cross_entropy_of_parts, of, 2, &p.attrs[0]);
    out[0] = sum->out[0];
    out[1] = sum->out[1];
}

static void build_gradient(const op_case *c, clt_value *const *in, clt_value **out)
{
    const places p = divide(c, in);
    clt_value *dlogits[MOST_PLACES];
    for (int i = 0; i < p.count; i++)
        dlogits[i] = clt_emit1(&clt_op_cross_entropy_parts_grad, &p.attrs[i], 5, p.logits[i], in[1],
                               p.largest, p.parts, in[UPSTREAM]);
    out[0] = clt_concat(dlogits, p.count, 1);
}

/* The weight of a class' log-probability. */
static double share(const op_case *c, const ref_vectors *v, double label, int64_t j)
{
    const double smoothing = ((const parts_case *)c->attr)->smoothing;
    return label == -100
               ? 0
               : (j == (int64_t)label ? 1 - smoothing : 0) + smoothing / (double)v->classes;
}

static bool is_class(const ref_vectors *v, double label)
{
    return label == -100 || (label >= 0 && label < (double)v->classes);
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const ref_vectors v = ref_vectors_of(c, 1, n);
    double sum = 0, terms = 0, weight = 0;
    for (int64_t i = 0; i < v.outer * v.inner; i++) {
        const int64_t first = ref_first(&v, i);
        const double log_sum = ref_log_sum(x[0] + first, &v), label = x[1][i];
        sum = is_class(&v, label) ? sum : NAN;
        weight += is_class(&v, label) && label != -100;
        for (int64_t j = 0; j < v.classes; j++) {
            const double at = x[0][first + j * v.inner], s = share(c, &v, label, j);
            sum += s * (log_sum - at);
            terms += s * (2 * fabs(log_sum) + 2 * fabs(at) + sqrt((double)v.classes));
        }
    }
    y[0][0] = sum;
    y[1][0] = weight;
    if (bound)
        bound[0][0] = terms * sqrt((double)(v.outer * v.inner));
    make_exact(c, 1, y[0], bound ? bound[0] : NULL);
}

static void forward_gradient(const op_case *c, int64_t n, double *const *x, double *const *y,
                             double *const *bound)
{
    const ref_vectors v = ref_vectors_of(c, 1, n);
    const double upstream = x[UPSTREAM][0];
    for (int64_t i = 0; i < v.outer * v.inner; i++) {
        const int64_t first = ref_first(&v, i);
        const double log_sum = ref_log_sum(x[0] + first, &v), label = x[1][i];
        for (int64_t j = 0; j < v.classes; j++) {
            const int64_t at = first + j * v.inner;
            const double p = exp(x[0][at] - log_sum), s = share(c, &v, label, j);
            y[0][at] = !is_class(&v, label) ? NAN : label == -100 ? 0 : upstream * (p - s);
            if (bound)
                bound[0][at] =
                    fabs(upstream) *
                    (s + p * (8 + fabs(x[0][at]) + fabs(log_sum) + sqrt((double)v.classes)));
        }
    }
    make_exact(c, op_count(c, 0, n), y[0], bound ? bound[0] : NULL);
}

static op_test sums = {"cross_entropy_of_parts", 2, 3, build, forward, NULL, 0},
               gradients = {"cross_entropy_parts_grad", 1,    1, build_gradient,
                            forward_gradient,           NULL, 0};

static void check(op_case *c)
{
    c->n_in = 2;
    op_check(&sums, c, false);
    c->n_in = 3;
    c->in[UPSTREAM] = (op_operand){.dtype = CLT_F32, .rank = 1, .dims = {1}};
    op_check(&gradients, c, false);
}

/* Uneven parts, classes at other strides, long rows, ignored labels. */
static void test_shapes(void **state)
{
    static const struct shape {
        int rank;
        int64_t dims[4], batch;
        int ignored;
        parts_case own;
    } shapes[] = {
        {2, {CLT_BATCH, 11}, 7, 1, {0, 2, false}},
        {2, {CLT_BATCH, 11}, 7, 0, {0.1, 3, false}},
        {3, {CLT_BATCH, 5, 3}, 5, 1, {0.3, 2, false}},
        {2, {CLT_BATCH, 3}, 13, 0, {0, 3, false}},
        {2, {2 * CLT_BATCH, 131}, 9, 1, {0, 3, false}},
        {2, {CLT_BATCH, 4226}, 3, 0, {0.1, 2, false}},
        {3, {CLT_BATCH, 12, 1}, 33, 1, {0, 3, false}},
        {2, {CLT_BATCH, 10}, 4, 0, {1, 1, false}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        char text[OP_TEXT];
        op_case c = label_case(s->rank, s->dims, s->batch, s->ignored);
        snprintf(text, OP_TEXT, "shape %d, %d places, smoothing %g", (int)i, s->own.places,
                 s->own.smoothing);
        c.text = text;
        c.attr = &s->own;
        if (!clt_test_oclgrind() || i < 3)
            check(&c);
    }
    op_report(&sums);
    op_report(&gradients);
}

/* A label that is no class is none at any place. */
static void test_no_class(void **state)
{
    static const double labels[2][5] = {{1, 11, 0, 10, -100}, {1, 2, -1, 3, 2147483647}};
    static const parts_case own = {0, 2, false};
    (void)state;
    for (int i = 0; i < 2; i++) {
        op_case c = label_case(2, (int64_t[]){CLT_BATCH, 11}, 5, 0);
        c.text = "no class";
        c.attr = &own;
        c.in[1].set = labels[i];
        check(&c);
    }
}

/* Gaps of 128 or more: probabilities are 0 or 1, and everything is exact. */
static void test_saturated(void **state)
{
    enum { ROWS = 3, CLASSES = 5 };
    static const double logits[ROWS * CLASSES] = {0,    256, 128, -128, 0,    -512, -256, -384,
                                                  -128, 64,  512, 0,    -128, 128,  256};
    static const double labels[ROWS] = {1, 0, 4};
    static const parts_case own = {0, 2, true};
    op_case c = label_case(2, (int64_t[]){CLT_BATCH, CLASSES}, ROWS, 0);
    (void)state;
    c.text = "saturated";
    c.attr = &own;
    c.in[0].set = logits;
    c.in[1].set = labels;
    check(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_no_class),
                                       cmocka_unit_test(test_saturated)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
