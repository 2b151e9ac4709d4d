/* clkernels/conv/batch_blocked/winograd.cl against sums in double, forward and data gradient. */
#include "kernels/lab.h"
#include "kernels/reference_conv.h"

static lab l;

typedef struct winograd_case {
    int n, ci, ih, iw, co, p[2];
    int tx, tc, groups;  /* register tile, work-groups */
    int parts, together; /* of the channels of y; strips at a time; 0: 1 */
    int count;           /* channels of y of a pass; 0: all */
    int bias, act;
} winograd_case;

/* Cases: whole tiles and tails in both directions, one tile per strip and strips of several images,
 * more work-groups than strips, several strips at a time, shares of the channels, channels beyond a
 * block and beyond the first-level cache. */
static const winograd_case cases[] = {
    {.n = 5,
     .ci = 16,
     .ih = 8,
     .iw = 8,
     .co = 12,
     .p = {1, 1},
     .tx = 4,
     .tc = 6,
     .groups = 1,
     .bias = 1},
    {.n = 9,
     .ci = 19,
     .ih = 9,
     .iw = 7,
     .co = 17,
     .p = {0, 1},
     .tx = 6,
     .tc = 4,
     .groups = 3,
     .parts = 2,
     .together = 2,
     .count = 8,
     .bias = 1,
     .act = 1},
    {.n = 17,
     .ci = 24,
     .ih = 5,
     .iw = 10,
     .co = 16,
     .p = {2, 0},
     .tx = 3,
     .tc = 8,
     .groups = 2,
     .act = 1},
    {.n = 3,
     .ci = 133,
     .ih = 4,
     .iw = 3,
     .co = 130,
     .p = {1, 2},
     .tx = 8,
     .tc = 3,
     .groups = 1,
     .parts = 3,
     .together = 3,
     .count = 54,
     .bias = 1},
    {.n = 1, .ci = 16, .ih = 1, .iw = 1, .co = 16, .p = {1, 1}, .tx = 2, .tc = 2, .groups = 5},
    {.n = 8,
     .ci = 17,
     .ih = 13,
     .iw = 14,
     .co = 18,
     .p = {2, 2},
     .tx = 1,
     .tc = 5,
     .groups = 4,
     .together = 3,
     .bias = 1,
     .act = 1},
    {.n = 2, .ci = 18, .ih = 7, .iw = 6, .co = 16, .p = {0, 0}, .tx = 5, .tc = 5, .groups = 1},
};

/* PyTorch's errors of output and input's gradient in the layers below, in the unit of
 * conv_error_ratio (tools/peers/torch_conv_error.py). */
static const double torch_errors[][2] = {{1.00, 0.51}, {0.99, 0.37}, {1.00, 0.36}, {1.01, 0.26}};

/* The layers of ResNet-18 for images of 32 x 32. */
static const winograd_case resnet18[] = {
    {.n = 2, .ci = 64, .ih = 32, .iw = 32, .co = 64, .p = {1, 1}, .tx = 3, .tc = 4, .groups = 2},
    {.n = 2, .ci = 128, .ih = 16, .iw = 16, .co = 128, .p = {1, 1}, .tx = 3, .tc = 4, .groups = 2},
    {.n = 2, .ci = 256, .ih = 8, .iw = 8, .co = 256, .p = {1, 1}, .tx = 3, .tc = 4, .groups = 2},
    {.n = 2, .ci = 512, .ih = 4, .iw = 4, .co = 512, .p = {1, 1}, .tx = 2, .tc = 6, .groups = 1},
};

/* Returns the floats of a work-group's scratch memory: AREA in the kernel file. */
static long area_of(int from, int to, int tx, int tc)
{
    const long in = (long)up(from, 8) * ((8 * tx) | 1), out = (long)up(to, tc) * ((tc * tx) | 1);
    return 36 * (in + out) * l.lanes;
}

/* Computes `to` channels of oh x ow from the `from` channels `x` of ih x iw. */
static void run(const winograd_case *c, int flip, const lab_buffer *x, const lab_buffer *w,
                const lab_buffer *bias, const lab_buffer *y, int oh, int ow)
{
    const int from = flip ? c->co : c->ci, to = flip ? c->ci : c->co;
    const long row = (long)up(from, l.lanes) * l.lanes;
    const int together = c->together ? c->together : 1;
    const int count = c->count ? c->count : to;
    const int share = (int)up((int)up(count, c->tc), c->parts ? c->parts : 1) * c->tc;
    const long parts = (long)up(count, share);
    lab_buffer u = lab_make(&l, 36 * count * row, 4);
    lab_buffer area =
        lab_make(&l, c->groups * parts * together * area_of(from, share, c->tx, c->tc), 4);
    float *all = malloc((size_t)(u.count > area.count ? u.count : area.count) * sizeof *all);
    for (int first = 0; first < to; first += count) {
        const int now = first + count < to ? count : to - first;
        cl_kernel k = lab_kernel(&l, "conv/batch_blocked/winograd.cl",
                                 "clt_batch_blocked_winograd_weights", "-DWEIGHTS -DFLIP=%d", flip);
        lab_run(&l, k, up(from, l.lanes), (size_t)now, 1, "bbiii", w, &u, c->ci, c->co, first);
        k = lab_kernel(&l, "conv/batch_blocked/winograd.cl", "clt_batch_blocked_winograd",
                       "-DPY=%d -DPX=%d -DBIAS=%d -DACT=%d -DTX=%d -DTC=%d -DCTAIL=%d",
                       flip ? 2 - c->p[0] : c->p[0], flip ? 2 - c->p[1] : c->p[1], !flip && c->bias,
                       !flip && c->act, c->tx, c->tc, to % c->tc);
        lab_run(&l, k, (size_t)c->groups, up(now, share), 1, "bbbbbiiiiiiiiiii", x, &u, bias, y,
                &area, c->n, from, flip ? oh : c->ih, flip ? ow : c->iw, to, flip ? c->ih : oh,
                flip ? c->iw : ow, first, now, share, together);
    }
    /* Check the guards. */
    lab_read(&l, &u, all);
    lab_read(&l, &area, all);
    lab_free(&u), lab_free(&area);
    free(all);
}

/* With `most` > 0, the error is at most so many times that of a plain sequence of f32 sums. */
static void check(const winograd_case *c, int flip, double most)
{
    const conv_case shape = {.n = c->n,
                             .groups = 1,
                             .ci = c->ci,
                             .ih = c->ih,
                             .iw = c->iw,
                             .co = c->co,
                             .k = {3, 3},
                             .s = {1, 1},
                             .p = {c->p[0], c->p[1]},
                             .d = {1, 1}};
    l.n = c->n;
    const int oh = conv_out(&shape, 0), ow = conv_out(&shape, 1);
    const long in = (long)c->ci * c->ih * c->iw, out = (long)c->co * oh * ow;
    const long weights = (long)c->co * c->ci * 9, each = flip ? in : out;
    float *x = lab_randoms(c->n * (flip ? out : in), 1), *w = lab_randoms(weights, 2);
    float *bias = lab_randoms(c->co, 3), *got = lab_randoms(c->n * each, 4);
    double *sum = calloc((size_t)(c->n * each), sizeof *sum);
    double *magnitude = calloc((size_t)(c->n * each), sizeof *magnitude);
    for (long i = 0; !flip && c->bias && i < c->n * each; i++) {
        sum[i] = (double)bias[i / (oh * ow) % c->co];
        magnitude[i] = fabs(sum[i]);
    }
    float *plain = most > 0 ? calloc((size_t)(c->n * each), sizeof *plain) : NULL;
    conv_each(&shape, conv_add, &(conv_sums){x, w, sum, magnitude, flip, plain});
    for (long i = 0; !flip && c->act && i < c->n * each; i++)
        sum[i] = fmax(sum[i], 0.0);
    lab_buffer dx = lab_put(&l, x, flip ? out : in), dw = lab_put_plain(&l, w, weights, 4);
    lab_buffer db = lab_put_plain(&l, bias, c->co, 4);
    lab_buffer dy = lab_make(&l, lab_batch_blocked_count(&l, each), 4);
    run(c, flip, &dx, &dw, &db, &dy, oh, ow);
    lab_get(&l, &dy, got, each);
    const char *what = flip ? "Winograd data gradient" : "Winograd forward";
    const double worst =
        lab_compare(what, got, sum, magnitude, c->n * each, (flip ? c->co : c->ci) * 9L + 1);
    print_message("%s %dx%dx%d to %d: %.3f of the limit\n", what, c->ci, c->ih, c->iw, c->co,
                  worst);
    if (plain) {
        const double ratio = conv_error_ratio(got, plain, sum, c->n * each);
        print_message("error: %.2f times that of plain f32 sums\n", ratio);
        assert_true(ratio <= most);
    }
    free(plain);
    lab_free(&dx), lab_free(&dw), lab_free(&db), lab_free(&dy);
    free(x), free(w), free(bias), free(got), free(sum), free(magnitude);
}

static void test_forward(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(&cases[i], 0, 0.0);
}

static void test_data_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(&cases[i], 1, 0.0);
}

static void test_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof resnet18 / sizeof *resnet18; i++)
        for (int flip = 0; flip < 2; flip++)
            check(&resnet18[i], flip, 4.0 * torch_errors[i][flip]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_data_gradient),
        cmocka_unit_test(test_errors),
    };
    lab_open(&l);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_close(&l);
    return failed;
}
