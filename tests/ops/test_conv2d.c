#include "ops/golden.h"
#include "ops/reference_nn.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const ref_conv *a = c->attr;
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    for (int i = 0; i < 2; i++) {
        o.stride[i] = a->stride[i];
        o.padding[i] = a->padding[i];
        o.dilation[i] = a->dilation[i];
    }
    o.groups = a->groups;
    out[0] = clt_conv2d(in[0], in[1], in[2], &o);
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const ref_conv_sizes s = ref_conv_sizes_of(c, n);
    const int64_t k = s.c_group * s.kh * s.kw, plane = s.oh * s.ow;
    ref_sums sums = {x[0], x[1], y[0], bound ? bound[0] : NULL, sqrt((double)(k + 1))};
    memset(y[0], 0, sizeof(double) * (size_t)(s.n * s.o * plane));
    ref_conv_visit(c, &s, ref_conv_y, &sums);
    for (int64_t i = 0; x[2] && i < s.n * s.o * plane; i++) {
        const double b = x[2][i / plane % s.o];
        y[0][i] += b;
        if (bound)
            bound[0][i] += sums.scale * fabs(b);
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const ref_conv_sizes s = ref_conv_sizes_of(c, n);
    const int64_t plane = s.oh * s.ow;
    ref_sums of_x = {x[1], dy[0], dx[0], bound[0], sqrt((double)(s.o_group * s.kh * s.kw))};
    ref_sums of_w = {x[0], dy[0], dx[1], bound[1], sqrt((double)(s.n * plane))};
    ref_conv_visit(c, &s, ref_conv_dx, &of_x);
    ref_conv_visit(c, &s, ref_conv_dw, &of_w);
    for (int64_t i = 0; dx[2] && i < s.n * s.o * plane; i++) {
        dx[2][i / plane % s.o] += dy[0][i];
        bound[2][i / plane % s.o] += of_w.scale * fabs(dy[0][i]);
    }
}

static op_test test = {"conv2d", 1, 0, build, forward, backward, 0};

/* Batch, channels, height, width, output channels, kernel; attributes; bias. */
typedef struct shape {
    int64_t n, c, h, w, o, kh, kw;
    ref_conv attr;
    bool bias, large;
} shape;

static const shape shapes[] = {
    {3, 1, 5, 5, 2, 3, 3, {{1, 1}, {0, 0}, {1, 1}, 1}, true, false},
    {1, 1, 1, 1, 1, 1, 1, {{1, 1}, {0, 0}, {1, 1}, 1}, true, false},
    {3, 2, 7, 5, 3, 3, 2, {{2, 1}, {1, 1}, {1, 1}, 1}, false, false},
    {2, 3, 6, 7, 5, 2, 3, {{1, 2}, {0, 2}, {2, 1}, 1}, true, false},
    {3, 4, 5, 5, 6, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 2}, true, false},
    {2, 3, 5, 4, 3, 3, 3, {{2, 2}, {1, 1}, {1, 1}, 3}, false, false},
    {2, 3, 4, 4, 6, 2, 2, {{1, 1}, {0, 0}, {1, 1}, 3}, true, false},
    {2, 1, 3, 3, 2, 5, 5, {{4, 4}, {3, 3}, {1, 1}, 1}, true, false},
    {2, 2, 9, 9, 1, 3, 3, {{3, 3}, {2, 2}, {3, 3}, 1}, true, false},
    {5, 1, 28, 28, 20, 3, 3, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
    {5, 20, 13, 13, 50, 5, 5, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
    {3, 13, 17, 19, 11, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
    {2, 4, 6, 7, 8, 3, 3, {{2, 3}, {1, 2}, {2, 3}, 2}, true, false},
    {2, 2, 7, 7, 4, 2, 2, {{3, 4}, {0, 1}, {1, 1}, 1}, true, false},
    {3, 64, 9, 9, 33, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
};

/* For every tile of the kernels for GPUs. */
static const shape tiled[] = {
    {3, 6, 11, 9, 70, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 2}, true, true},
    {2, 5, 12, 16, 20, 3, 2, {{2, 1}, {1, 0}, {1, 2}, 1}, false, true},
    {2, 8, 8, 8, 132, 1, 1, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
};

/* With a tile that cuts all three sums into four slices. */
static const shape sliced[] = {
    {1, 30, 4, 4, 29, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
    {2, 30, 7, 5, 90, 3, 3, {{2, 2}, {1, 1}, {1, 1}, 1}, true, true},
};
enum { SLICED_TILE = 20 };

static void check_shape(const shape *s, bool wanted_x, int first_tile)
{
    char text[OP_TEXT];
    snprintf(text, sizeof text, "%lldx%lldx%lldx%lld, %lld of %lldx%lld", (long long)s->n,
             (long long)s->c, (long long)s->h, (long long)s->w, (long long)s->o, (long long)s->kh,
             (long long)s->kw);
    const op_case c = {
        text,
        3,
        {{CLT_F32, 4, {CLT_BATCH, s->c, s->h, s->w}, OP_RANDOM, wanted_x, NULL},
         {CLT_F32, 4, {s->o, s->c / s->attr.groups, s->kh, s->kw}, OP_RANDOM, true, NULL},
         {CLT_F32, s->bias ? 1 : 0, {s->o}, OP_RANDOM, true, NULL}},
        s->n,
        .attr = &s->attr};
    if (first_tile)
        op_check_tiles(&test, &c, first_tile, first_tile == SLICED_TILE ? 1000 : 3);
    else
        op_check(&test, &c, !s->large);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!shapes[i].large || !clt_test_oclgrind())
            check_shape(&shapes[i], true, 0);
    check_shape(&shapes[0], false, 0);
    for (int i = 0; i < (clt_test_oclgrind() ? 1 : 2); i++)
        check_shape(&sliced[i], true, SLICED_TILE);
    for (int i = 0; !clt_test_oclgrind() && i < 3; i++)
        check_shape(&tiled[i], true, 1 + i);
    op_report(&test);
}

static void golden(op_golden *g)
{
    ref_conv a;
    op_golden_pair(g, "stride", a.stride);
    op_golden_pair(g, "padding", a.padding);
    op_golden_pair(g, "dilation", a.dilation);
    a.groups = (int)op_golden_number(g, "groups");
    op_golden_operand(g, "x", true);
    op_golden_operand(g, "w", false);
    if (op_golden_has(g, "b"))
        op_golden_operand(g, "b", false);
    op_golden_results(g);
    g->c.attr = &a;
    op_check(&test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("conv2d", golden);
}

static void refuse(const int64_t *w_dims, int stride, int groups, const char *part)
{
    clt_graph *g;
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    o.stride[1] = stride;
    o.groups = groups;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 4, (int64_t[]){CLT_BATCH, 4, 5, 5});
    clt_value *w = clt_input(g, "w", CLT_F32, 4, w_dims);
    assert_null(clt_conv2d(x, w, NULL, &o));
    assert_int_not_equal(clt_graph_status(g), CLT_OK);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    (void)state;
    refuse((int64_t[]){2, 3, 3, 3}, 1, 1, "f32[2x3x3x3] does not fit the operand f32[Bx4x5x5]");
    refuse((int64_t[]){3, 2, 3, 3}, 1, 2, "2 groups");
    refuse((int64_t[]){2, 4, 6, 3}, 1, 1, "is larger than f32[Bx4x5x5]");
    refuse((int64_t[]){2, 4, 3, 3}, 0, 1, "stride 1x0");
    refuse((int64_t[]){2, 4, 3, 3}, 1, 0, "groups is 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
