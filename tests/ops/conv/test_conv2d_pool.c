/* Convolution, ReLU and 2 x 2 pooling, which become one kernel in batch-blocked layout
 * (conv2d_pool), and their backward pass (unpool2d, conv2d_pool_weight_grad). The parts' own tests
 * compare gradients with differences. Here, the ReLU has kinks. */
#include "ops/harness/reference_nn.h"

typedef struct chain {
    ref_conv conv; /* first, where the convolution's reference expects it */
    bool max;
} chain;

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const chain *a = c->attr;
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    for (int i = 0; i < 2; i++)
        o.padding[i] = a->conv.padding[i];
    clt_value *r = clt_relu(clt_conv2d(in[0], in[1], in[2], &o));
    out[0] = a->max ? clt_max_pool2d(r, NULL) : clt_avg_pool2d(r, NULL);
}

/* Returns the convolution's result before the ReLU, and its bounds. */
static double *convolved(const op_case *c, int64_t n, double *const *x, double *bound)
{
    const ref_conv_sizes s = ref_conv_sizes_of(c, n);
    const int64_t count = s.n * s.o * s.oh * s.ow;
    double *z = op_array(count);
    ref_sums sums = {x[0], x[1], z, bound, sqrt((double)(s.c_group * s.kh * s.kw + 1))};
    ref_conv_visit(c, &s, ref_conv_y, &sums);
    for (int64_t i = 0; i < count; i++) {
        z[i] += x[2][i / (s.oh * s.ow) % s.o];
        bound[i] += sums.scale * fabs(x[2][i / (s.oh * s.ow) % s.o]);
    }
    return z;
}

/* Finds the four elements of window i. Returns the first of the largest. */
static int window(const ref_conv_sizes *s, const double *z, int64_t i, int64_t at[4])
{
    const int64_t pw = s->ow / 2, ph = s->oh / 2, plane = i / (ph * pw);
    int best = 0;
    for (int k = 0; k < 4; k++) {
        at[k] = (plane * s->oh + i / pw % ph * 2 + k / 2) * s->ow + i % pw * 2 + k % 2;
        if (fmax(z[at[k]], 0) > fmax(z[at[best]], 0))
            best = k;
    }
    return best;
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const bool max = ((const chain *)c->attr)->max;
    const ref_conv_sizes s = ref_conv_sizes_of(c, n);
    double *bounds = op_array(s.n * s.o * s.oh * s.ow), *z = convolved(c, n, x, bounds);
    for (int64_t i = 0; i < s.n * s.o * (s.oh / 2) * (s.ow / 2); i++) {
        int64_t at[4];
        const int best = window(&s, z, i, at);
        y[0][i] = max ? fmax(z[at[best]], 0) : 0;
        for (int k = 0; k < 4; k++) {
            y[0][i] += max ? 0 : fmax(z[at[k]], 0) / 4;
            if (bound)
                bound[0][i] += bounds[at[k]];
        }
    }
    free(bounds);
    free(z);
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const bool max = ((const chain *)c->attr)->max;
    const ref_conv_sizes s = ref_conv_sizes_of(c, n);
    const int64_t count = s.n * s.o * s.oh * s.ow;
    double *bounds = op_array(count), *z = convolved(c, n, x, bounds), *dz = op_array(count);
    for (int64_t i = 0; i < s.n * s.o * (s.oh / 2) * (s.ow / 2); i++) {
        int64_t at[4];
        const int best = window(&s, z, i, at);
        for (int k = 0; k < 4; k++)
            if (z[at[k]] > 0 && (!max || k == best))
                dz[at[k]] = dy[0][i] / (max ? 1 : 4);
    }
    ref_sums of_x = {x[1], dz, dx[0], bound[0], sqrt((double)(s.o_group * s.kh * s.kw))};
    ref_sums of_w = {x[0], dz, dx[1], bound[1], sqrt((double)(s.n * s.oh * s.ow))};
    ref_conv_visit(c, &s, ref_conv_dx, &of_x);
    ref_conv_visit(c, &s, ref_conv_dw, &of_w);
    for (int64_t i = 0; i < count; i++) {
        dx[2][i / (s.oh * s.ow) % s.o] += dz[i];
        bound[2][i / (s.oh * s.ow) % s.o] += of_w.scale * fabs(dz[i]);
    }
    free(bounds);
    free(z);
    free(dz);
}

static op_test test = {
    .op = "conv2d_pool", .n_out = 1, .build = build, .forward = forward, .backward = backward};

/* Batch, channels, height, width, output channels, kernel, padding. */
static const int64_t shapes[][7] = {
    {3, 1, 6, 6, 2, 3, 0},
    {17, 2, 7, 9, 5, 3, 1},
    {1, 3, 8, 8, 4, 5, 0},
    {20, 4, 5, 6, 7, 2, 0},
};

static void test_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < (clt_test_oclgrind() ? 4 : 16); i++) {
        const int64_t *s = shapes[i / 4];
        const chain a = {{{1, 1}, {(int)s[6], (int)s[6]}, {1, 1}, 1}, i % 2 != 0};
        const op_case c = {
            .text = a.max ? "max" : "avg",
            .kinks = a.max,
            .n_in = 3,
            .in = {{CLT_F32, 4, {CLT_BATCH, s[1], s[2], s[3]}, OP_RANDOM, i / 2 % 2 != 0, NULL},
                   {CLT_F32, 4, {s[4], s[1], s[5], s[5]}, OP_RANDOM, true, NULL},
                   {CLT_F32, 1, {s[4]}, OP_RANDOM, true, NULL}},
            .batch = s[0],
            .attr = &a};
        op_check(&test, &c, false);
    }
    op_report(&test);
}

/* Without the gradient of x. The rows of wide images have no place on a stack, so they are unpooled
 * first. */
static void test_wide(void **state)
{
    static const int64_t widths[] = {40, 20001};
    (void)state;
    for (int i = 0; i < (clt_test_oclgrind() ? 1 : 2); i++) {
        const chain a = {{{1, 1}, {0, 0}, {1, 1}, 1}, false};
        const op_case c = {
            .text = "wide",
            .n_in = 3,
            .in = {{CLT_F32, 4, {CLT_BATCH, 1, 3, widths[i]}, OP_RANDOM, false, NULL},
                   {CLT_F32, 4, {5, 1, 2, 2}, OP_RANDOM, true, NULL},
                   {CLT_F32, 1, {5}, OP_RANDOM, true, NULL}},
            .batch = 2,
            .attr = &a};
        op_bound b;
        int one = 0, apart = 0;
        op_bind(&test, &c, &op_as_device, &b);
        for (int n = 0; n < b.plan->n_nodes; n++) {
            one += !strcmp(b.plan->nodes[n].node->op->name, "conv2d_pool_weight_grad");
            apart += !strcmp(b.plan->nodes[n].node->op->name, "unpool2d");
        }
        if (clt_caps_is_cpu(&op_devices[0]->caps)) {
            assert_int_equal(one, !i);
            assert_int_equal(apart, i);
        }
        op_check_bound(&test, &c, &b);
        op_unbind(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_wide)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
