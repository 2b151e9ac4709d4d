/* Convolutions and pooling of [B, C, L]. */
#include "ops/conv/link_cases.h"

static void build_conv(const op_case *c, clt_value *const *in, clt_value **out)
{
    const link_shape *s = c->attr;
    clt_conv1d_options o;
    clt_conv1d_options_init(&o);
    o.stride = s->stride[2];
    o.padding = s->padding[2];
    o.dilation = s->dilation[2];
    o.groups = s->groups;
    out[0] = clt_conv1d(in[0], in[1], in[2], &o);
}

static void build_transposed(const op_case *c, clt_value *const *in, clt_value **out)
{
    const link_shape *s = c->attr;
    clt_conv_transpose1d_options o;
    clt_conv_transpose1d_options_init(&o);
    o.stride = s->stride[2];
    o.padding = s->padding[2];
    o.output_padding = s->more[2];
    o.dilation = s->dilation[2];
    o.groups = s->groups;
    out[0] = clt_conv_transpose1d(in[0], in[1], in[2], &o);
}

static op_test conv = {"conv1d", 1, 0, build_conv, link_forward, link_backward, 0};
static op_test transposed = {"conv_transpose1d", 1, 0, build_transposed, link_forward,
                             link_backward,      0};

static const link_shape convs[] = {
    {1, false, true, 3, 3, {1, 1, 19}, 5, {1, 1, 3}, {1, 1, 1}, {0, 0, 1}, {0}, {1, 1, 1}, 1},
    {1, false, false, 17, 4, {1, 1, 9}, 6, {1, 1, 2}, {1, 1, 3}, {0, 0, 2}, {0}, {1, 1, 4}, 2},
};
static const link_shape transposed_convs[] = {
    {1, true, true, 3, 3, {1, 1, 10}, 5, {1, 1, 4}, {1, 1, 2}, {0, 0, 1}, {0}, {1, 1, 1}, 1},
    {1, true, true, 2, 4, {1, 1, 7}, 6, {1, 1, 3}, {1, 1, 3}, {0, 0, 1}, {0, 0, 2}, {1, 1, 2}, 2},
};

static void test_convolutions(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        link_check(&conv, &convs[i]);
        link_check(&transposed, &transposed_convs[i]);
    }
    op_report(&conv);
    op_report(&transposed);
}

/* --- pooling: attributes are options ------------------------------------------------------------
 */

typedef struct pool_shape {
    int64_t n, c, l;
    int kernel, stride, padding, dilation, ceil, counted; /* stride 0: the kernel's size */
    bool max;
} pool_shape;

static int64_t pooled(const pool_shape *s)
{
    const int stride = s->stride ? s->stride : s->kernel;
    const double room = (double)(s->l + 2 * s->padding - s->dilation * (s->kernel - 1) - 1);
    int64_t out = (int64_t)(s->ceil ? ceil(room / stride) : floor(room / stride)) + 1;
    return s->ceil && (out - 1) * stride >= s->l + s->padding ? out - 1 : out;
}

static void build_pool(const op_case *c, clt_value *const *in, clt_value **out)
{
    const pool_shape *s = c->attr;
    clt_pool1d_options o;
    clt_pool1d_options_init(&o);
    o.kernel = s->kernel;
    o.stride = s->stride;
    o.padding = s->padding;
    o.dilation = s->dilation;
    o.ceil_mode = s->ceil;
    o.count_include_pad = s->counted;
    out[0] = (s->max ? clt_max_pool1d : clt_avg_pool1d)(in[0], &o);
}

/* Does one window: writes its mean or maximum to y, or spreads dy to dx. */
static void pool_window(const pool_shape *s, const double *x, int64_t o, double *y, double *bound,
                        const double *dy, double *dx)
{
    const int64_t from = o * (s->stride ? s->stride : s->kernel) - s->padding;
    double sum = 0, terms = 0, divisor = 0;
    int64_t best = -1;
    for (int k = 0; k < s->kernel; k++) {
        const int64_t at = from + k * s->dilation;
        const bool inside = at >= 0 && at < s->l;
        divisor += inside || (s->counted && at < s->l + s->padding);
        if (!inside)
            continue;
        sum += x[at];
        terms += fabs(x[at]);
        best = best < 0 || x[at] > x[best] ? at : best;
    }
    for (int k = 0; k < s->kernel && dx; k++) {
        const int64_t at = from + k * s->dilation;
        if (at < 0 || at >= s->l || (s->max && at != best))
            continue;
        dx[at] += s->max ? dy[o] : dy[o] / divisor;
        bound[at] += s->kernel * fabs(dy[o]);
    }
    if (y)
        y[o] = s->max ? x[best] : sum / divisor;
    if (y && bound)
        bound[o] = s->max ? fabs(x[best]) : s->kernel * terms / divisor;
}

static void pool_all(const op_case *c, int64_t n, const double *x, double *y, double *bound,
                     const double *dy, double *dx)
{
    const pool_shape *s = c->attr;
    const int64_t out = pooled(s);
    for (int64_t row = 0; row < n * s->c; row++)
        for (int64_t o = 0; o < out; o++)
            pool_window(s, x + row * s->l, o, y ? y + row * out : NULL,
                        bound ? bound + row * (y ? out : s->l) : NULL, dy ? dy + row * out : NULL,
                        dx ? dx + row * s->l : NULL);
}

static void pool_forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                         double *const *bound)
{
    pool_all(c, n, x[0], y[0], bound ? bound[0] : NULL, NULL, NULL);
}

static void pool_backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                          double *const *dx, double *const *bound)
{
    pool_all(c, n, x[0], NULL, bound[0], dy[0], dx[0]);
}

static void test_pooling(void **state)
{
    static const pool_shape shapes[] = {
        {3, 2, 9, 2, 0, 0, 1, 0, 1, false},
        {2, 3, 19, 3, 2, 1, 1, 1, 0, false},
        {3, 2, 9, 2, 0, 0, 1, 1, 1, true},
        {2, 3, 19, 3, 2, 1, 2, 0, 1, true},
    };
    op_test test = {"pool1d", 1, 0, build_pool, pool_forward, pool_backward, 0};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const pool_shape *s = &shapes[i];
        const op_case c = {.text = s->max ? "max" : "mean",
                           .n_in = 1,
                           .in = {{CLT_F32, 3, {CLT_BATCH, s->c, s->l}, OP_DISTINCT, true, NULL}},
                           .batch = s->n,
                           .attr = s};
        op_check(&test, &c, true);
    }
    op_report(&test);
}

/* Checks shapes, and that only views surround the 2-D operators. */
static void test_views(void **state)
{
    clt_graph *g;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 3, (int64_t[]){CLT_BATCH, 4, 10});
    clt_value *w = clt_parameter(g, "w", 3, (int64_t[]){6, 4, 3}, (clt_init){0});
    clt_value *y = clt_conv1d(x, w, NULL, NULL);
    assert_int_equal(clt_value_rank(y), 3);
    assert_int_equal(clt_value_dim(y, 1), 6);
    assert_int_equal(clt_value_dim(y, 2), 8);
    y = clt_adaptive_avg_pool1d(y, 3);
    assert_int_equal(clt_value_rank(y), 3);
    assert_int_equal(clt_value_dim(y, 2), 3);
    int kernels = 0;
    for (int i = 0; i < g->n_nodes; i++)
        kernels += !g->nodes[i]->op->view;
    assert_int_equal(kernels, 2);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    static const int64_t image[4] = {CLT_BATCH, 4, 10, 2}, kernel[3] = {6, 3, 3};
    (void)state;
    for (int i = 0; i < 6; i++) {
        clt_graph *g;
        OP_OK(clt_graph_create(&g));
        clt_value *x = clt_input(g, "x", CLT_F32, i == 5 ? 3 : 4, image);
        clt_value *w = clt_parameter(g, "w", 3, kernel, (clt_init){0});
        const char *const parts[] = {"conv1d: the operand",
                                     "conv_transpose1d: the operand",
                                     "avg_pool1d: the operand",
                                     "max_pool1d: the operand",
                                     "adaptive_avg_pool1d: the operand",
                                     "does not fit"};
        clt_value *y = i == 0   ? clt_conv1d(x, w, NULL, NULL)
                       : i == 1 ? clt_conv_transpose1d(x, w, NULL, NULL)
                       : i == 2 ? clt_avg_pool1d(x, NULL)
                       : i == 3 ? clt_max_pool1d(x, NULL)
                       : i == 4 ? clt_adaptive_avg_pool1d(x, 3)
                                : clt_conv1d(x, w, NULL, NULL);
        link_refused(g, y, parts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_convolutions),
                                       cmocka_unit_test(test_pooling), cmocka_unit_test(test_views),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
