/* clkernels/conv/batch_blocked/conv.cl against sums in double. */
#include "kernels/lab.h"
#include "kernels/reference_conv.h"

static lab l;

/* Build options of the forward kernel. */
static const char *options_of(const conv_case *c)
{
    static char text[512];
    const int columns = c->pool ? conv_out(c, 1) / 2 * 2 : conv_out(c, 1);
    snprintf(text, sizeof text,
             "-DKY=%d -DKX=%d -DSY=%d -DSX=%d -DPY=%d -DPX=%d -DDY=%d -DDX=%d -DTX=%d -DTC=%d "
             "-DXTAIL=%d -DCTAIL=%d -DBIAS=%d -DACT=%d -DPOOL=%d -DEDGES=%d",
             c->k[0], c->k[1], c->s[0], c->s[1], c->p[0], c->p[1], c->d[0], c->d[1], c->tx, c->tc,
             columns % c->tx, c->co / c->groups % c->tc, c->bias, c->act, c->pool, c->edges);
    return text;
}

/* Applies activation and pooling to the sums in place, and fills the mask. An element of the mask
 * is 255 if its value is too near a kink. */
static void epilogue(const conv_case *c, double *sum, double *magnitude, unsigned char *mask)
{
    const int oh = conv_out(c, 0), ow = conv_out(c, 1), ph = oh / 2, pw = ow / 2;
    for (long i = 0; c->act && i < (long)c->n * c->co * oh * ow; i++)
        sum[i] = sum[i] > 0.0 ? sum[i] : sum[i] > -1e-5 ? -1e-30 : -1.0;
    for (long plane = 0; c->pool && plane < (long)c->n * c->co; plane++) {
        for (long at = 0; at < ph * pw; at++) {
            double total = 0.0, sums = 0.0, best = -1e30;
            int bits = 0, best_bit = 0, unsure = 0;
            for (int e = 0; e < 4; e++) {
                const long from = (plane * oh + at / pw * 2 + e / 2) * ow + at % pw * 2 + e % 2;
                const double v = c->act ? fmax(sum[from], 0.0) : sum[from];
                unsure |= c->act && sum[from] > -0.5 && fabs(sum[from]) < 1e-5;
                total += v / 4.0;
                sums = fmax(sums, magnitude[from]);
                bits |= (!c->act || sum[from] > 0.0) << e;
                unsure |= c->pool == 2 && fabs(v - best) < 1e-5 && v > 0.0;
                if (v > best) {
                    best = v;
                    best_bit = (!c->act || sum[from] > 0.0) << e;
                }
            }
            const long to = plane * ph * pw + at;
            sum[to] = c->pool == 1 ? total : best;
            magnitude[to] = sums;
            mask[to] = unsure ? 255 : (unsigned char)(c->pool == 1 ? bits : best_bit);
        }
    }
    for (long i = 0; c->act && !c->pool && i < (long)c->n * c->co * oh * ow; i++)
        sum[i] = fmax(sum[i], 0.0);
}

static void forward_case(const conv_case *c)
{
    l.n = c->n;
    const int oh = conv_out(c, 0), ow = conv_out(c, 1), cig = c->ci / c->groups;
    const int cog = c->co / c->groups, taps = c->k[0] * c->k[1];
    const long in = (long)c->ci * c->ih * c->iw, full = (long)c->co * oh * ow;
    const long weights = (long)c->co * cig * taps;
    const long each = c->pool ? (long)c->co * (oh / 2) * (ow / 2) : full;
    float *x = lab_randoms(c->n * in, 1), *w = lab_randoms(weights, 2);
    float *bias = lab_randoms(c->co, 3), *got = lab_randoms(c->n * full, 4);
    double *sum = calloc((size_t)(c->n * full), sizeof *sum);
    double *magnitude = calloc((size_t)(c->n * full), sizeof *magnitude);
    unsigned char *mask = calloc((size_t)(c->n * full), 1),
                  *bits = calloc((size_t)(c->n * full), 1);
    for (long i = 0; c->bias && i < c->n * full; i++) {
        sum[i] = (double)bias[i / (oh * ow) % c->co];
        magnitude[i] = fabs(sum[i]);
    }
    conv_each(c, conv_add, &(conv_sums){x, w, sum, magnitude, 0, NULL});
    epilogue(c, sum, magnitude, mask);
    lab_buffer dx = lab_put(&l, x, in), dw = lab_put_plain(&l, w, weights, 4);
    lab_buffer db = lab_put_plain(&l, bias, c->co, 4);
    lab_buffer dy = lab_make(&l, lab_batch_blocked_count(&l, each), 4);
    lab_buffer dm = lab_make(&l, lab_batch_blocked_count(&l, each), 1);
    cl_kernel k =
        lab_kernel(&l, "conv/batch_blocked/conv.cl", "clt_batch_blocked_conv", "%s", options_of(c));
    lab_run(&l, k, (size_t)c->groups * up(cog, c->tc), up(c->pool ? oh / 2 : oh, c->rows),
            up(c->n, l.lanes), "bbbbbiiiiiiiii", &dx, &dw, &db, &dy, &dm, c->n, c->groups, cig,
            c->ih, c->iw, cog, oh, ow, c->rows);
    lab_get(&l, &dy, got, each);
    const double worst =
        lab_compare("conv forward", got, sum, magnitude, c->n * each, (long)cig * taps + 1);
    print_message("conv forward %dx%dx%d to %d: %.3f of the limit\n", c->ci, c->ih, c->iw, c->co,
                  worst);
    if (c->pool) {
        lab_get_bytes(&l, &dm, bits, each);
        long compared = 0;
        for (long i = 0; i < c->n * each; i++) {
            if (mask[i] != 255) {
                assert_int_equal(bits[i], mask[i]);
                compared++;
            }
        }
        assert_true(compared * 10 > c->n * each * 9);
    }
    lab_free(&dx), lab_free(&dw), lab_free(&db), lab_free(&dy), lab_free(&dm);
    free(x), free(w), free(bias), free(got), free(sum), free(magnitude), free(mask), free(bits);
}

static void test_forward(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++)
        forward_case(&conv_cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
    };
    lab_open(&l);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_close(&l);
    return failed;
}
