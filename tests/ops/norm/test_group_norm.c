/* Group norm and instance norm. */
#include "ops/harness/golden.h"
#include <cltrain/ops/norm.h>

/* 0 groups: instance norm. */
typedef struct norm_attr {
    int groups;
    double eps;
} norm_attr;

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const norm_attr *a = c->attr;
    out[0] = a->groups ? clt_group_norm(in[0], a->groups, in[1], in[2], a->eps)
                       : clt_instance_norm(in[0], in[1], in[2], a->eps);
}

typedef struct group {
    int64_t first, length, pixels; /* in x, where the elements are contiguous */
    int64_t channel;               /* channel of the first element */
    double mean, rstd, root, largest;
} group;

/* Finds group i of all images. Returns false if there are no more. */
static bool group_at(const op_case *c, int64_t n, const double *x, int64_t i, group *g)
{
    const norm_attr *a = c->attr;
    const int64_t channels = c->in[0].dims[1], groups = a->groups ? a->groups : channels;
    int64_t image = 1;
    for (int k = 1; k < c->in[0].rank; k++)
        image *= c->in[0].dims[k];
    if (i >= op_dim(c, 0, 0, n) * groups)
        return false;
    *g = (group){.length = image / groups, .pixels = image / channels};
    g->first = i * g->length;
    g->channel = i % groups * (channels / groups);
    g->root = sqrt((double)g->length);
    double squares = 0;
    for (int64_t j = g->first; j < g->first + g->length; j++) {
        g->mean += x[j] / (double)g->length;
        g->largest = fmax(g->largest, fabs(x[j]));
    }
    for (int64_t j = g->first; j < g->first + g->length; j++)
        squares += (x[j] - g->mean) * (x[j] - g->mean) / (double)g->length;
    g->rstd = 1 / sqrt(squares + a->eps);
    return true;
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    group g;
    for (int64_t i = 0; group_at(c, n, x[0], i, &g); i++)
        for (int64_t j = 0; j < g.length; j++) {
            const int64_t k = g.channel + j / g.pixels, at = g.first + j;
            const double h = (x[0][at] - g.mean) * g.rstd;
            const double w = x[1] ? x[1][k] : 1, b = x[2] ? x[2][k] : 0;
            y[0][at] = h * w + b;
            if (bound)
                bound[0][at] = fabs(w) * (g.largest * g.rstd + g.root * fabs(h)) + fabs(b);
        }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const double images = sqrt((double)op_dim(c, 0, 0, n) + 1);
    group g;
    for (int64_t i = 0; group_at(c, n, x[0], i, &g); i++) {
        const double m = (double)g.length, slack = g.root + 1 + g.largest * g.rstd;
        double sum = 0, product = 0, terms = 0, products = 0;
        for (int64_t j = 0; j < g.length; j++) {
            const int64_t k = g.channel + j / g.pixels, at = g.first + j;
            const double h = (x[0][at] - g.mean) * g.rstd, d = dy[0][at];
            const double v = d * (x[1] ? x[1][k] : 1);
            sum += v / m;
            terms += fabs(v) / m;
            product += v * h / m;
            products += fabs(v) * (fabs(h) + 1) / m;
            if (x[1]) {
                dx[1][k] += d * h;
                bound[1][k] += images * g.root * fabs(d) * (fabs(h) * g.root + g.largest * g.rstd);
            }
            if (x[2]) {
                dx[2][k] += d;
                bound[2][k] += images * g.root * fabs(d);
            }
        }
        for (int64_t j = 0; j < g.length; j++) {
            const int64_t k = g.channel + j / g.pixels, at = g.first + j;
            const double h = (x[0][at] - g.mean) * g.rstd;
            const double v = dy[0][at] * (x[1] ? x[1][k] : 1);
            dx[0][at] = g.rstd * (v - sum - h * product);
            bound[0][at] = g.rstd * slack * (fabs(v) + terms + (fabs(h) + 1) * products);
        }
    }
}

static op_test test = {"group_norm", 1, 0, build, forward, backward, 0};

static void test_shapes(void **state)
{
    static const struct shape {
        int rank, groups;
        int64_t dims[4], batch;
        bool affine;
    } shapes[] = {
        {4, 2, {CLT_BATCH, 6, 3, 5}, 3, true},
        {3, 0, {CLT_BATCH, 3, 16}, 4, true},
        {2, 3, {CLT_BATCH, 12}, 3, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        const norm_attr attr = {s->groups, CLT_NORM_EPS};
        char text[OP_TEXT];
        op_case c = {.text = text, .n_in = 3, .batch = s->batch, .attr = &attr};
        snprintf(text, sizeof text, "shape %d", (int)i);
        c.in[0] = (op_operand){.dtype = CLT_F32, .rank = s->rank, .gradient = true};
        memcpy(c.in[0].dims, s->dims, sizeof s->dims);
        for (int k = 1; k < 3 && s->affine; k++)
            c.in[k] =
                (op_operand){.dtype = CLT_F32, .rank = 1, .dims = {s->dims[1]}, .gradient = true};
        op_check(&test, &c, true);
    }
    op_report(&test);
}

static void golden(op_golden *g)
{
    const norm_attr attr = {(int)op_golden_number(g, "groups"), op_golden_number(g, "eps")};
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
    op_goldens("group_norm", golden);
}

static void refuse(int rank, int groups, int64_t channels, double eps, clt_status want,
                   const char *part)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, rank, (int64_t[]){CLT_BATCH, 6, 4});
    clt_value *w = clt_input(g, "w", CLT_F32, 1, &channels);
    assert_null(groups ? clt_group_norm(x, groups, NULL, w, eps)
                       : clt_instance_norm(x, w, NULL, eps));
    assert_int_equal(clt_graph_status(g), want);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not name \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    (void)state;
    refuse(3, 4, 6, 1e-5, CLT_INVALID_ARGUMENT,
           "4 groups do not divide the channels of f32[Bx6x4]");
    refuse(3, -1, 6, 1e-5, CLT_INVALID_ARGUMENT, "-1 groups");
    refuse(3, 2, 5, 1e-5, CLT_SHAPE, "group_norm: the bias f32[5] does not have the 6 channels");
    refuse(3, 0, 5, 1e-5, CLT_SHAPE, "instance_norm: the weight f32[5]");
    refuse(1, 0, 6, 1e-5, CLT_SHAPE, "f32[B] must be [B, C, d..]");
    refuse(3, 2, 6, -1, CLT_INVALID_ARGUMENT, "eps is -1; it must be a number of at least 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
