/* clkernels/conv/batch_blocked/conv_gathered.cl against sums in double, forward and data gradient.
 */
#include "kernels/lab.h"
#include "kernels/reference_conv.h"

static lab l;

/* A register tile of `tx` pixels x `tc` channels in `strips` strips. `parts` work-groups' worth of
 * channels are computed apart, by `groups` work-groups. */
static void check(const conv_case *c, bool grad, int tx, int tc, int strips, int parts, int groups)
{
    l.n = c->n;
    const int oh = conv_out(c, 0), ow = conv_out(c, 1), taps = c->k[0] * c->k[1];
    const int from = grad ? c->co : c->ci, to = grad ? c->ci : c->co;
    const int share = (int)up((int)up(to, parts), tc) * tc;
    const long in = (long)c->ci * c->ih * c->iw, out = (long)c->co * oh * ow;
    const long read = grad ? out : in, written = grad ? in : out;
    const long weights = (long)c->co * c->ci * taps;
    const int most = taps <= 16 ? 16 : 128;
    const long area = ((most > 64 ? most : 64) + share) * (long)strips * tx * l.lanes;
    const bool bias = c->bias && !grad;
    float *x = lab_randoms(c->n * read, 1), *w = lab_randoms(weights, 2);
    float *b = lab_randoms(c->co, 3), *got = lab_randoms(c->n * written, 4);
    double *sum = calloc((size_t)(c->n * written), sizeof *sum);
    double *magnitude = calloc((size_t)(c->n * written), sizeof *magnitude);
    for (long i = 0; bias && i < c->n * written; i++) {
        sum[i] = (double)b[i / (oh * ow) % c->co];
        magnitude[i] = fabs(sum[i]);
    }
    conv_each(c, conv_add, &(conv_sums){x, w, sum, magnitude, grad, NULL});
    lab_buffer dx = lab_put(&l, x, read), dw = lab_put_plain(&l, w, weights, 4);
    lab_buffer db = lab_put_plain(&l, b, c->co, 4);
    lab_buffer dy = lab_make(&l, lab_batch_blocked_count(&l, written), 4);
    lab_buffer u = lab_make(&l, weights, 4), areas = lab_make(&l, groups * area, 4);
    char options[256];
    snprintf(options, sizeof options, "-DMOST_TAPS=%d -DGRAD=%d", most, grad);
    const char *file = "conv/batch_blocked/conv_gathered.cl";
    if (grad) {
        cl_kernel k =
            lab_kernel(&l, file, "clt_batch_blocked_conv_gathered_weights", "%s", options);
        lab_run(&l, k, (size_t)c->ci, 1, 1, "bbiiiiiiiiii", &dw, &u, c->ci, c->co, CONV_WINDOW(c));
    }
    cl_kernel k =
        lab_kernel(&l, file, "clt_batch_blocked_conv_gathered",
                   "%s -DBIAS=%d -DTX=%d -DTC=%d -DSTRIPS=%d", options, bias, tx, tc, strips);
    lab_run(&l, k, (size_t)groups, 1, 1, "bbbbbiiiiiiiiiiiiiiii", &dx, grad ? &u : &dw, &db, &dy,
            &areas, c->n, from, grad ? oh : c->ih, grad ? ow : c->iw, to, grad ? c->ih : oh,
            grad ? c->iw : ow, share, CONV_WINDOW(c));
    lab_get(&l, &dy, got, written);
    const char *what = grad ? "gathered data gradient" : "gathered forward";
    const double worst =
        lab_compare(what, got, sum, magnitude, c->n * written, (long)from * taps + 1);
    print_message("%s %dx%dx%d to %d: %.3f of the limit\n", what, c->ci, c->ih, c->iw, c->co,
                  worst);
    /* Check the guards. */
    float *all = malloc((size_t)(areas.count + u.count) * sizeof *all);
    lab_read(&l, &areas, all);
    lab_read(&l, &u, all);
    lab_free(&dx), lab_free(&dw), lab_free(&db), lab_free(&dy), lab_free(&u), lab_free(&areas);
    free(x), free(w), free(b), free(got), free(sum), free(magnitude), free(all);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++) {
        if (conv_cases[i].groups != 1)
            continue;
        check(&conv_cases[i], false, 3, 2, 2, 2, 3);
        check(&conv_cases[i], true, 3, 2, 2, 2, 3);
    }
}

/* ResNet-18's strides, with odd sizes and several chunks of channels. */
static void test_strides(void **state)
{
    static const conv_case list[] = {
        {.n = 9, .ci = 20, .ih = 8, .iw = 7, .co = 17, .k = {3, 3}, .s = {2, 2}, .p = {1, 1}},
        {.n = 3, .ci = 70, .ih = 5, .iw = 6, .co = 66, .k = {1, 1}, .s = {2, 2}},
        {.n = 2, .ci = 3, .ih = 19, .iw = 20, .co = 9, .k = {9, 9}, .s = {4, 3}, .p = {4, 2}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        conv_case c = list[i];
        c.groups = c.d[0] = c.d[1] = 1;
        check(&c, false, 4, 3, 4, 1, 8);
        check(&c, true, 4, 3, 4, 1, 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_strides),
    };
    lab_open(&l);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_close(&l);
    return failed;
}
