/* clkernels/conv/batch_blocked/conv_data_grad.cl, conv_weight_grad.cl and
 * conv_weight_grad_gathered.cl against sums in double. */
#include "kernels/lab.h"
#include "kernels/reference_conv.h"

static lab l;

/* Build options of the gradients, which have other tiles. */
static const char *grad_options_of(const conv_case *c)
{
    static char text[512];
    snprintf(text, sizeof text,
             "-DKY=%d -DKX=%d -DSY=%d -DSX=%d -DPY=%d -DPX=%d -DDY=%d -DDX=%d -DTX=%d -DTC=%d "
             "-DTW=%d -DXTAIL=%d -DCTAIL=%d -DK_BLOCK=2",
             c->k[0], c->k[1], c->s[0], c->s[1], c->p[0], c->p[1], c->d[0], c->d[1], c->gx, c->gc,
             c->k[1] < 8 ? (c->k[1] + 1) / 2 : 4, conv_out(c, 1) % c->gx,
             c->ci / c->groups % c->gc);
    return text;
}

static void data_grad_case(const conv_case *c, int general)
{
    l.n = c->n;
    const int oh = conv_out(c, 0), ow = conv_out(c, 1), cig = c->ci / c->groups;
    const int cog = c->co / c->groups, taps = c->k[0] * c->k[1];
    const long in = (long)c->ci * c->ih * c->iw, full = (long)c->co * oh * ow;
    const long weights = (long)c->co * cig * taps;
    float *g = lab_randoms(c->n * full, 5), *w = lab_randoms(weights, 6);
    float *got = lab_randoms(c->n * in, 7);
    double *sum = calloc((size_t)(c->n * in), sizeof *sum);
    double *magnitude = calloc((size_t)(c->n * in), sizeof *magnitude);
    conv_each(c, conv_add, &(conv_sums){g, w, sum, magnitude, 1, NULL});
    lab_buffer dg = lab_put(&l, g, full), dw = lab_put_plain(&l, w, weights, 4);
    lab_buffer dx = lab_make(&l, lab_batch_blocked_count(&l, in), 4);
    cl_kernel k = lab_kernel(&l, "conv/batch_blocked/conv_data_grad.cl",
                             general ? "clt_batch_blocked_conv_data_grad_any"
                                     : "clt_batch_blocked_conv_data_grad",
                             "%s", grad_options_of(c));
    lab_run(&l, k, (size_t)c->groups * up(cig, c->gc), up(c->ih, c->rows), up(c->n, l.lanes),
            "bbbiiiiiiiii", &dg, &dw, &dx, c->n, c->groups, cig, c->ih, c->iw, cog, oh, ow,
            c->rows);
    lab_get(&l, &dx, got, in);
    const double worst =
        lab_compare("conv data gradient", got, sum, magnitude, c->n * in, (long)cog * taps);
    print_message("conv data gradient%s %dx%dx%d to %d: %.3f of the limit\n",
                  general ? " (any stride)" : "", c->ci, c->ih, c->iw, c->co, worst);
    lab_free(&dg), lab_free(&dw), lab_free(&dx);
    free(g), free(w), free(got), free(sum), free(magnitude);
}

/* Spreads the gradient of the pooled output over the windows, as `mask` says. */
static void spread(const conv_case *c, const float *pooled, const unsigned char *mask, float *g)
{
    const int oh = conv_out(c, 0), ow = conv_out(c, 1), ph = oh / 2, pw = ow / 2;
    memset(g, 0, (size_t)c->n * (size_t)(c->co * oh * ow) * sizeof *g);
    for (long i = 0; i < (long)c->n * c->co * ph * pw; i++) {
        const long plane = i / (ph * pw), y = i / pw % ph, x = i % pw;
        for (int e = 0; e < 4; e++) {
            if (mask[i] & 1 << e)
                g[(plane * oh + y * 2 + e / 2) * ow + x * 2 + e % 2] =
                    c->pool == 1 ? pooled[i] / 4.0f : pooled[i];
        }
    }
}

/* Tests the weight gradient with `chunk` blocks per chunk. Reads the pooled gradient if the case
 * pools. */
static void weight_grad_case(const conv_case *c, int chunk)
{
    l.n = c->n;
    const int oh = conv_out(c, 0), ow = conv_out(c, 1), cig = c->ci / c->groups;
    const int cog = c->co / c->groups, taps = c->k[0] * c->k[1];
    const long in = (long)c->ci * c->ih * c->iw, full = (long)c->co * oh * ow;
    const long part = (long)c->co * (oh / 2) * (ow / 2), weights = (long)c->co * cig * taps;
    const int chunks = c->n ? (int)up((int)up(c->n, l.lanes), chunk) : 1;
    float *x = lab_randoms(c->n * in, 8), *g = lab_randoms(c->n * full, 9);
    float *pooled = lab_randoms(c->n * part, 10), *got = lab_randoms(weights + c->co, 11);
    unsigned char *mask = calloc((size_t)(c->n * part) + 1, 1);
    double *sum = calloc((size_t)(weights + c->co), sizeof *sum);
    double *magnitude = calloc((size_t)(weights + c->co), sizeof *magnitude);
    for (long i = 0; i < c->n * part; i++)
        mask[i] = (unsigned char)(c->pool == 2 ? 1 << i * 7 % 4 : i * 5 % 16);
    if (c->pool)
        spread(c, pooled, mask, g);
    conv_each(c, conv_add, &(conv_sums){x, g, sum, magnitude, 2, NULL});
    for (long i = 0; i < c->n * full; i++) {
        sum[weights + i / (oh * ow) % c->co] += (double)g[i];
        magnitude[weights + i / (oh * ow) % c->co] += fabs((double)g[i]);
    }
    lab_buffer dx = lab_put(&l, x, in);
    lab_buffer dg = c->pool ? lab_put(&l, pooled, part) : lab_put(&l, g, full);
    lab_buffer dm = lab_put_bytes(&l, mask, part);
    lab_buffer dw = lab_make(&l, weights * chunks, 4), db = lab_make(&l, c->co * chunks, 4);
    lab_buffer rw = lab_make(&l, weights, 4), rb = lab_make(&l, c->co, 4);
    const char *file = "conv/batch_blocked/conv_weight_grad.cl";
    cl_kernel k = lab_kernel(&l, file, "clt_batch_blocked_conv_weight_grad",
                             "-DKY=%d -DKX=%d -DSY=%d -DSX=%d -DPY=%d -DPX=%d -DDY=%d -DDX=%d "
                             "-DTO=%d -DTI=%d -DTR=%d -DTK=%d -DCI_BLOCK=%d -DUNPOOL=%d -DBAND=%d "
                             "-DCOLUMNS=%d -DUNROLL=2 -DTOGETHER=%d -DBIAS=1",
                             c->k[0], c->k[1], c->s[0], c->s[1], c->p[0], c->p[1], c->d[0], c->d[1],
                             c->to, c->ti, c->tr ? c->tr : 1, c->tk, c->ci_block, c->pool, c->band,
                             ow / 2 * 2, c->pool ? 1 : 3);
    lab_run(&l, k, up(cig, c->ci_block), (size_t)c->groups * up(cog, c->to), (size_t)chunks,
            "bbbbbiiiiiiiii", &dx, &dg, &dm, &dw, &db, c->n, c->groups, cig, c->ih, c->iw, cog, oh,
            ow, chunk);
    cl_kernel reduce = lab_kernel(&l, file, "clt_batch_blocked_sum_chunks", "-DSPREAD=32");
    lab_run(&l, reduce, up((int)weights, 32), 1, 1, "bbiii", &dw, &rw, (int)weights, chunk, c->n);
    lab_run(&l, reduce, up(c->co, 32), 1, 1, "bbiii", &db, &rb, c->co, chunk, c->n);
    lab_read(&l, &rw, got);
    lab_read(&l, &rb, got + weights);
    const double worst = lab_compare("conv weight gradient", got, sum, magnitude, weights + c->co,
                                     (long)c->n * oh * ow);
    print_message("conv weight gradient %dx%dx%d to %d, chunks %d: %.3f of the limit\n", c->ci,
                  c->ih, c->iw, c->co, chunks, worst);
    lab_free(&dx), lab_free(&dg), lab_free(&dm), lab_free(&dw), lab_free(&db), lab_free(&rw);
    lab_free(&rb);
    free(x), free(g), free(pooled), free(got), free(mask), free(sum), free(magnitude);
}

/* Tests the weight gradient of gathered inputs: `pixels` is the room of a strip, `groups` the
 * number of work-groups. */
static void gathered_case(const conv_case *c, int tc, int to, int pixels, int groups)
{
    l.n = c->n;
    const int oh = conv_out(c, 0), ow = conv_out(c, 1), taps = c->k[0] * c->k[1];
    const int rows = pixels / ow < oh ? pixels / ow : oh;
    const int together = rows < oh ? 1 : pixels / (oh * ow);
    const int ci_block = tc, co_block = to * l.lanes, vectors = (int)up(c->co, l.lanes);
    const long in = (long)c->ci * c->ih * c->iw, full = (long)c->co * oh * ow;
    const long weights = (long)c->co * c->ci * taps;
    const long area = (long)co_block * pixels * l.lanes + (long)taps * tc * (pixels | 1) * l.lanes +
                      (long)co_block * ci_block * taps + co_block;
    float *x = lab_randoms(c->n * in, 8), *g = lab_randoms(c->n * full, 9);
    float *got = lab_randoms(weights + c->co, 11);
    double *sum = calloc((size_t)(weights + c->co), sizeof *sum);
    double *magnitude = calloc((size_t)(weights + c->co), sizeof *magnitude);
    conv_each(c, conv_add, &(conv_sums){x, g, sum, magnitude, 2, NULL});
    for (long i = 0; i < c->n * full; i++) {
        sum[weights + i / (oh * ow) % c->co] += (double)g[i];
        magnitude[weights + i / (oh * ow) % c->co] += fabs((double)g[i]);
    }
    lab_buffer dx = lab_put(&l, x, in), dg = lab_put(&l, g, full);
    lab_buffer areas = lab_make(&l, groups * area, 4);
    lab_buffer dw = lab_make(&l, weights, 4), db = lab_make(&l, c->co, 4);
    cl_kernel k =
        lab_kernel(&l, "conv/batch_blocked/conv_weight_grad_gathered.cl",
                   "clt_batch_blocked_conv_weight_grad_gathered",
                   "-DTC=%d -DTO=%d -DOTAIL=%d -DPIXELS=%d -DBIAS=1", tc, to, vectors % to, pixels);
    lab_run(&l, k, (size_t)groups, 1, 1, "bbbbbiiiiiiiiiiiiiiiiiii", &dx, &dg, &areas, &dw, &db,
            c->n, c->ci, c->ih, c->iw, c->co, oh, ow, rows, together, ci_block, co_block,
            CONV_WINDOW(c));
    lab_read(&l, &dw, got);
    lab_read(&l, &db, got + weights);
    const double worst = lab_compare("gathered weight gradient", got, sum, magnitude,
                                     weights + c->co, (long)c->n * oh * ow);
    print_message("gathered weight gradient %dx%dx%d to %d: %.3f of the limit\n", c->ci, c->ih,
                  c->iw, c->co, worst);
    float *all = malloc((size_t)areas.count * sizeof *all);
    lab_read(&l, &areas, all); /* checks the guards */
    lab_free(&dx), lab_free(&dg), lab_free(&areas), lab_free(&dw), lab_free(&db);
    free(x), free(g), free(got), free(sum), free(magnitude), free(all);
}

static void test_data_grad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++) {
        if (conv_cases[i].s[1] == 1 && conv_cases[i].d[1] == 1)
            data_grad_case(&conv_cases[i], 0);
        data_grad_case(&conv_cases[i], 1);
    }
}

static void test_weight_grad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++) {
        weight_grad_case(&conv_cases[i], 100);
        weight_grad_case(&conv_cases[i], 1);
    }
    conv_case other = conv_cases[0];
    other.n = 0;
    weight_grad_case(&other, 3);
    /* Several blocks of a pass, some passes with fewer, and a block that is not full. */
    other.n = 7 * l.lanes + 3;
    weight_grad_case(&other, 100);
    weight_grad_case(&other, 2);
}

static void test_gathered(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++) {
        const conv_case *c = &conv_cases[i];
        const int ow = conv_out(c, 1), all = ow * conv_out(c, 0);
        if (c->groups != 1)
            continue;
        gathered_case(c, 3, 2, ow, 2);
        gathered_case(c, 8, 1, ow, 2); /* the last channels in pieces */
        if (i % 3 == 0)
            gathered_case(c, 2, 1, 2 * all, 100);
    }
    conv_case other = conv_cases[0];
    other.n = 0;
    gathered_case(&other, 3, 2, 2 * conv_out(&other, 1), 1);
    /* Several strips of several blocks, and a block that is not full. */
    other.n = 7 * l.lanes + 3;
    gathered_case(&other, 3, 2, 3 * conv_out(&other, 1) * conv_out(&other, 0), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_grad),
        cmocka_unit_test(test_weight_grad),
        cmocka_unit_test(test_gathered),
    };
    lab_open(&l);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_close(&l);
    return failed;
}
