#include <limits.h>

#include "ops/pool/pool_cases.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const clt_pool2d_options o = pool_options(c->attr);
    out[0] = clt_max_pool2d(in[0], &o);
}

/* One pass over all windows: forward if y is set, otherwise backward. */
typedef struct pass {
    int64_t plane; /* elements of the operand's planes */
    const double *x, *dy;
    double *y, *dx, *bound;
    double scale;
} pass;

static void visit(void *user, const ref_window *r, int64_t plane, int64_t out)
{
    const pass *p = user;
    const int64_t at = plane * p->plane + r->at;
    if (p->y) {
        p->y[out] = p->x[at];
    } else {
        p->dx[at] += p->dy[out];
        p->bound[at] += p->scale * fabs(p->dy[out]);
    }
}

static int64_t plane_of(const op_case *c, int64_t n)
{
    return op_dim(c, 0, 2, n) * op_dim(c, 0, 3, n);
}

static int64_t outputs_of(const op_case *c, int64_t n)
{
    return ref_pool_size(c->attr, 0, op_dim(c, 0, 2, n)) *
           ref_pool_size(c->attr, 1, op_dim(c, 0, 3, n));
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    pass p = {plane_of(c, n), x[0], NULL, y[0], NULL, NULL, 0};
    pool_windows(c, n, x[0], visit, &p);
    /* Results are copies, but a golden's numbers may be rounded when they are read. */
    for (int64_t i = 0; bound && i < n * c->in[0].dims[1] * outputs_of(c, n); i++)
        bound[0][i] = fabs(y[0][i]) / 8;
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const ref_pool *a = c->attr;
    pass p = {plane_of(c, n),
              x[0],
              dy[0],
              NULL,
              dx[0],
              bound[0],
              sqrt((double)(a->kernel[0] * a->kernel[1]))};
    pool_windows(c, n, x[0], visit, &p);
}

static op_test test = {"max_pool2d", 1, 0, build, forward, backward, 0};

static const pool_shape dilated[] = {
    {2, 2, 7, 9, {{2, 3}, {1, 2}, {1, 1}, {2, 3}, 0, 1}},
    {2, 1, 9, 8, {{3, 2}, {2, 3}, {0, 1}, {3, 2}, 1, 1}},
    {1, 1, 12, 37, {{3, 3}, {2, 2}, {1, 1}, {2, 3}, 0, 1}},
    {1, 1, 12, 37, {{3, 3}, {1, 4}, {1, 1}, {3, 2}, 1, 1}},
};

static void test_shapes(void **state)
{
    (void)state;
    pool_check(&test, pool_shapes, sizeof pool_shapes / sizeof *pool_shapes);
    pool_check(&test, dilated, sizeof dilated / sizeof *dilated);
    op_report(&test);
}

/* Of equal maxima the first gets the gradient. NaN is the largest; of several NaN the last one
 * wins. In a window of minus infinities, the first element is the maximum. */
static void test_special(void **state)
{
    static const double numbers[] = {
        1,         1,         0,
        2,         2,         2, /* ties */
        NAN,       5,         1,
        1,         NAN,       -1, /* NaN first, between, two in one window */
        -INFINITY, -INFINITY, -INFINITY,
        -INFINITY, -INFINITY, -INFINITY, /* nothing larger */
        NAN,       NAN,       3,
        0,         0,         NAN,
    };
    const ref_pool a = {{1, 3}, {1, 1}, {0, 1}, {1, 1}, 0, 1};
    const op_case c = {.text = "ties, NaN and infinities",
                       .n_in = 1,
                       .in = {{CLT_F32, 4, {CLT_BATCH, 2, 1, 6}, OP_RANDOM, true, numbers}},
                       .batch = 2,
                       .attr = &a};
    (void)state;
    op_check(&test, &c, false);
}

/* Each element is NaN in one image. In every third image another element is NaN too. Zeros of both
 * signs and equal numbers surround it. */
static void test_nan(void **state)
{
    enum { H = 5, W = 9, COUNT = H * W };
    static const ref_pool attrs[] = {
        {{3, 3}, {2, 2}, {1, 1}, {1, 1}, 0, 1},
        {{2, 2}, {2, 2}, {0, 0}, {1, 1}, 0, 1},
        {{3, 3}, {1, 1}, {1, 1}, {1, 1}, 0, 1},
        {{4, 5}, {1, 2}, {0, 2}, {1, 1}, 0, 1},
    };
    double *numbers = op_array(COUNT * COUNT);
    (void)state;
    for (int i = 0; i < COUNT * COUNT; i++)
        numbers[i] = i % 5 == 0 ? -0.0 : (double)(i * 31 % 7) - 4;
    for (int i = 0; i < COUNT; i++) {
        numbers[i * COUNT + i] = NAN;
        if (i % 3 == 0)
            numbers[i * COUNT + (i + W + 1) % COUNT] = NAN;
    }
    for (size_t i = 0; i < sizeof attrs / sizeof *attrs; i++) {
        const op_case c = {.text = "NaN at each element",
                           .n_in = 1,
                           .in = {{CLT_F32, 4, {CLT_BATCH, 1, H, W}, OP_RANDOM, true, numbers}},
                           .batch = COUNT,
                           .attr = &attrs[i]};
        op_check(&test, &c, false);
    }
    free(numbers);
}

static void golden(op_golden *g)
{
    ref_pool a;
    pool_golden(g, &a);
    op_check(&test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("max_pool2d", golden);
}

static void test_errors(void **state)
{
    clt_pool2d_options o;
    (void)state;
    clt_pool2d_options_init(&o);
    o.padding[1] = 2;
    pool_refuse(clt_max_pool2d, o, "padding 0x2");
    clt_pool2d_options_init(&o);
    o.dilation[0] = 5;
    pool_refuse(clt_max_pool2d, o, "dilation 5x1");
    clt_pool2d_options_init(&o);
    o.kernel[0] = 0;
    pool_refuse(clt_max_pool2d, o, "kernel 0x2");
    clt_pool2d_options_init(&o);
    o.kernel[0] = o.kernel[1] = 1 << 16;
    o.padding[0] = o.padding[1] = 1 << 15;
    pool_refuse(clt_max_pool2d, o, "window 65536x65536 has more than");
    clt_pool2d_options_init(&o);
    o.kernel[1] = INT_MAX;
    o.padding[1] = INT_MAX / 2;
    o.stride[1] = 1;
    o.ceil_mode = 1;
    pool_refuse(clt_max_pool2d, o, "stride 2x1 is larger than");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_special), cmocka_unit_test(test_nan),
        cmocka_unit_test(test_goldens), cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
