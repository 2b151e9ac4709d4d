/* Batch norm in training: forward pass and gradients with the batch's statistics, in all
 * layouts. */
#include "ops/norm/batch_norm.h"
#include "ops/harness/golden.h"
#include <cltrain/ops/norm.h>

/* Operands: x, weight, bias, and the addend of the result before the ReLU. */
enum { X, WEIGHT, BIAS, ADDEND };

typedef struct norm_attr {
    bool relu, batch_blocked;
    double eps;
} norm_attr;

/* Returns the same numbers, in batch-blocked layout if the device has it. */
static clt_value *in_batch_blocked(clt_value *x)
{
    const int64_t c = x->type.dims[1], kernel[] = {c, c, 1, 1};
    float *identity = calloc((size_t)(c * c), sizeof *identity);
    assert_non_null(identity);
    for (int64_t i = 0; i < c; i++)
        identity[i * c + i] = 1;
    clt_value *one = clt_constant(x->graph, CLT_F32, 4, kernel, identity);
    free(identity);
    return clt_conv2d(x, one, NULL, NULL);
}

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const norm_attr *a = c->attr;
    clt_batch_norm_options options;
    clt_batch_norm_options_init(&options);
    assert_true(options.eps == 1e-5 && options.momentum == 0.1);
    options.eps = a->eps;
    clt_value *y = clt_batch_norm(a->batch_blocked ? in_batch_blocked(in[X]) : in[X], in[WEIGHT],
                                  in[BIAS], NULL, NULL, NULL, &options);
    if (in[ADDEND])
        y = clt_add(y, in[ADDEND]);
    out[0] = a->relu ? clt_relu(y) : y;
}

/* What batch norm sees of its input: n images, their channels, and the pixels of a channel. */
typedef struct extents {
    int64_t images, channels, pixels;
} extents;

static extents extents_of(const op_case *c, int64_t n)
{
    extents g = {op_dim(c, X, 0, n), c->in[X].dims[1], 1};
    for (int k = 2; k < c->in[X].rank; k++)
        g.pixels *= c->in[X].dims[k];
    return g;
}

/* Returns element j of channel k. j counts images and pixels. */
static int64_t at(const extents *g, int64_t k, int64_t j)
{
    return (j / g->pixels * g->channels + k) * g->pixels + j % g->pixels;
}

typedef struct channel {
    double mean, rstd, root, largest, w, b;
} channel;

static channel channel_of(const op_case *c, const extents *g, int64_t k, double *const *x)
{
    const norm_attr *a = c->attr;
    const int64_t n = g->images * g->pixels;
    channel s = {.root = sqrt((double)n)};
    double squares = 0;
    for (int64_t j = 0; j < n; j++) {
        s.mean += x[X][at(g, k, j)] / (double)n;
        s.largest = fmax(s.largest, fabs(x[X][at(g, k, j)]));
    }
    for (int64_t j = 0; j < n; j++)
        squares += pow(x[X][at(g, k, j)] - s.mean, 2) / (double)n;
    s.rstd = 1 / sqrt(squares + a->eps);
    s.w = x[WEIGHT] ? x[WEIGHT][k] : 1;
    s.b = x[BIAS] ? x[BIAS][k] : 0;
    return s;
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const norm_attr *a = c->attr;
    const extents g = extents_of(c, n);
    for (int64_t k = 0; k < g.channels; k++) {
        const channel s = channel_of(c, &g, k, x);
        for (int64_t j = 0; j < g.images * g.pixels; j++) {
            const int64_t i = at(&g, k, j);
            const double h = (x[X][i] - s.mean) * s.rstd, more = x[ADDEND] ? x[ADDEND][i] : 0;
            y[0][i] = h * s.w + s.b + more;
            if (a->relu && y[0][i] < 0)
                y[0][i] = 0;
            if (bound)
                bound[0][i] =
                    fabs(s.w) * (s.largest * s.rstd + s.root * fabs(h)) + fabs(s.b) + fabs(more);
        }
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const norm_attr *a = c->attr;
    const extents g = extents_of(c, n);
    const int64_t count = g.images * g.pixels;
    for (int64_t k = 0; k < g.channels; k++) {
        const channel s = channel_of(c, &g, k, x);
        const double slack = s.root + 1 + s.largest * s.rstd;
        double sum = 0, product = 0, terms = 0, products = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t j = 0; j < count; j++) {
                const int64_t i = at(&g, k, j);
                const double h = (x[X][i] - s.mean) * s.rstd;
                const double y = h * s.w + s.b + (x[ADDEND] ? x[ADDEND][i] : 0);
                const double d = a->relu && y <= 0 ? 0 : dy[0][i];
                if (!pass) {
                    sum += d;
                    terms += fabs(d);
                    product += d * h;
                    products += fabs(d) * (fabs(h) * s.root + s.largest * s.rstd);
                    continue;
                }
                const double m = (double)count;
                dx[X][i] = s.w * s.rstd * (d - sum / m - h * product / m);
                bound[X][i] = fabs(s.w) * s.rstd * slack *
                              (fabs(d) + terms / m + (fabs(h) + 1) * products / m);
                if (x[ADDEND]) {
                    dx[ADDEND][i] = d;
                    bound[ADDEND][i] = fabs(d);
                }
            }
        if (x[WEIGHT]) {
            dx[WEIGHT][k] = product;
            bound[WEIGHT][k] = s.root * products;
        }
        if (x[BIAS]) {
            dx[BIAS][k] = sum;
            bound[BIAS][k] = s.root * terms;
        }
    }
}

static op_test test = {"batch_norm", 1, 0, build, forward, backward, 0};

static const struct shape {
    int rank;
    int64_t dims[5], batch;
    bool affine, add, relu, batch_blocked;
    double mean;
} shapes[] = {
    {4, {CLT_BATCH, 3, 4, 5}, 19, true, false, true, true, 0},
    {4, {CLT_BATCH, 3, 4, 5}, 5, true, true, true, true, 0},
    {4, {CLT_BATCH, 2, 13, 13}, 17, true, false, true, true, 0},
    {4, {CLT_BATCH, 2, 12, 12}, 18, true, false, false, true, 1000},
    {3, {CLT_BATCH, 3, 37}, 7, true, false, true, false, 0},
    {2, {CLT_BATCH, 37}, 9, true, false, false, false, 1000},
    {5, {CLT_BATCH, 2, 3, 2, 2}, 3, false, false, false, false, 0},
    {3, {6, 1, 4}, 1, true, true, true, false, 0},
};

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        const norm_attr attr = {s->relu, s->batch_blocked, CLT_NORM_EPS};
        char text[OP_TEXT];
        op_case c = {.text = text, .n_in = 4, .batch = s->batch, .attr = &attr};
        snprintf(text, sizeof text, "shape %d", (int)i);
        if (clt_test_oclgrind() && s->rank == 4 && s->dims[2] > 4)
            continue; /* takes minutes there */
        if (clt_test_oclgrind() && c.batch > 7)
            c.batch = 7;
        c.in[X] = (op_operand){.dtype = CLT_F32, .rank = s->rank, .gradient = true};
        memcpy(c.in[X].dims, s->dims, sizeof s->dims);
        for (int k = WEIGHT; k <= BIAS && s->affine; k++)
            c.in[k] =
                (op_operand){.dtype = CLT_F32, .rank = 1, .dims = {s->dims[1]}, .gradient = true};
        if (s->add)
            c.in[ADDEND] = c.in[X];
        double *shifted = op_array(op_count(&c, X, s->batch));
        op_fill_operand(&c, X, s->batch, shifted);
        for (int64_t j = 0; j < op_count(&c, X, s->batch) && s->mean != 0; j++)
            shifted[j] = (double)(float)(shifted[j] + s->mean);
        c.in[X].set = shifted;
        op_check(&test, &c, s->mean == 0);
        free(shifted);
    }
    op_report(&test);
}

static void golden(op_golden *g)
{
    const norm_attr attr = {.eps = op_golden_number(g, "eps")};
    op_golden_operand(g, "x", true);
    op_golden_operand(g, "w", false);
    op_golden_operand(g, "b", false);
    op_golden_results(g);
    g->c.attr = &attr;
    op_check(&test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("batch_norm", golden);
}

/* Counts the operators that are left in a plan: a later ReLU is part of the nodes, forward and
 * backward. */
static void test_absorbs(void **state)
{
    const norm_attr attr = {.relu = true, .eps = CLT_NORM_EPS};
    op_case c = {.text = "absorb", .n_in = 4, .batch = 3, .attr = &attr};
    op_bound b;
    (void)state;
    c.in[X] =
        (op_operand){.dtype = CLT_F32, .rank = 3, .dims = {CLT_BATCH, 2, 3}, .gradient = true};
    for (int add = 0; add < 2; add++) {
        c.in[ADDEND] = add ? c.in[X] : (op_operand){.dtype = CLT_F32};
        op_bind(&test, &c, &op_as_device, &b);
        int relu = 0, relu_grad = 0, adds = 0;
        for (int i = 0; i < b.plan->n_nodes; i++) {
            const char *name = b.plan->nodes[i].node->op->name;
            relu += !strcmp(name, "relu");
            relu_grad += !strcmp(name, "relu_grad");
            adds += !strcmp(name, "add") || !strcmp(name, "fused_elementwise");
        }
        /* With an addend, dy through the ReLU is the addend's gradient, so it must exist. */
        assert_int_equal(relu + adds, 0);
        assert_int_equal(relu_grad, add);
        op_unbind(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_absorbs)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
