#include "ops/pool/pool_cases.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const clt_pool2d_options o = pool_options(c->attr);
    out[0] = clt_avg_pool2d(in[0], &o);
}

/* One pass over all windows: forward if y is set, otherwise backward. */
typedef struct pass {
    const op_case *c;
    int64_t n;
    const double *x, *dy;
    double *y, *dx, *bound;
} pass;

static void visit(void *user, const ref_window *r, int64_t plane, int64_t out)
{
    const pass *p = user;
    const ref_pool *a = p->c->attr;
    const int64_t h = op_dim(p->c, 0, 2, p->n), w = op_dim(p->c, 0, 3, p->n);
    double sum = 0, terms = 0;
    for (int64_t iy = r->y < 0 ? 0 : r->y; iy < h && iy < r->y + a->kernel[0]; iy++)
        for (int64_t ix = r->x < 0 ? 0 : r->x; ix < w && ix < r->x + a->kernel[1]; ix++) {
            const int64_t at = (plane * h + iy) * w + ix;
            const double scale = sqrt((double)(a->kernel[0] * a->kernel[1]));
            if (p->y) {
                sum += p->x[at] / r->divisor;
                terms += scale * fabs(p->x[at]) / r->divisor;
            } else {
                p->dx[at] += p->dy[out] / r->divisor;
                p->bound[at] += scale * fabs(p->dy[out]) / r->divisor;
            }
        }
    if (p->y) {
        p->y[out] = sum;
        if (p->bound)
            p->bound[out] = terms;
    }
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    pass p = {c, n, x[0], NULL, y[0], NULL, bound ? bound[0] : NULL};
    pool_windows(c, n, x[0], visit, &p);
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    pass p = {c, n, x[0], dy[0], NULL, dx[0], bound[0]};
    pool_windows(c, n, x[0], visit, &p);
}

static op_test test = {"avg_pool2d", 1, 0, build, forward, backward, 0};

static void test_shapes(void **state)
{
    (void)state;
    pool_check(&test, pool_shapes, sizeof pool_shapes / sizeof *pool_shapes);
    op_report(&test);
}

static void golden(op_golden *g)
{
    ref_pool a;
    pool_golden(g, &a);
    a.count_include_pad = (int)op_golden_number(g, "count_include_pad");
    op_check(&test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("avg_pool2d", golden);
}

static void test_errors(void **state)
{
    clt_pool2d_options o;
    (void)state;
    clt_pool2d_options_init(&o);
    o.padding[0] = 2;
    pool_refuse(clt_avg_pool2d, o, "padding 2x0");
    clt_pool2d_options_init(&o);
    o.kernel[1] = 6;
    pool_refuse(clt_avg_pool2d, o, "window 2x6");
    clt_pool2d_options_init(&o);
    o.dilation[1] = 2;
    pool_refuse(clt_avg_pool2d, o, "dilation 1x2");
    clt_pool2d_options_init(&o);
    o.struct_size = 3;
    pool_refuse(clt_avg_pool2d, o, "struct_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
