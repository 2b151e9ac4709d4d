/* clkernels/pool/batch_blocked/pool.cl and layout.cl against double and plain copies. */
#include "kernels/lab.h"

static lab l;

typedef struct pool_case {
    int n, channels, ih, iw, oh, ow, k[2], s[2], p[2], d[2], count_pad;
} pool_case;

static const pool_case cases[] = {
    {10, 3, 8, 8, 4, 4, {2, 2}, {2, 2}, {0, 0}, {1, 1}, 1},
    {3, 2, 7, 9, 4, 5, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 0},
    {9, 1, 6, 5, 4, 3, {3, 2}, {2, 2}, {1, 0}, {1, 1}, 1}, /* like ceil mode */
    {1, 1, 1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},
};

/* Returns the factor of the window's sum in its mean; the window begins at (y0, x0). */
static double factor(const pool_case *c, int y0, int x0)
{
    const int y1 = y0 + c->k[0] < c->ih + c->p[0] ? y0 + c->k[0] : c->ih + c->p[0];
    const int x1 = x0 + c->k[1] < c->iw + c->p[1] ? x0 + c->k[1] : c->iw + c->p[1];
    int inside = 0;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++)
            inside += y >= 0 && y < c->ih && x >= 0 && x < c->iw;
    return 1.0 / (c->count_pad ? (y1 - y0) * (x1 - x0) : inside);
}

/* Computes the pooled values, and dx for their gradient g. */
static void reference(const pool_case *c, int max, const float *x, const float *g, double *y,
                      double *dx)
{
    for (long i = 0; i < (long)c->n * c->channels * c->oh * c->ow; i++) {
        const long plane = i / (c->oh * c->ow) * c->ih * c->iw;
        const int y0 = (int)(i / c->ow % c->oh) * c->s[0] - c->p[0];
        const int x0 = (int)(i % c->ow) * c->s[1] - c->p[1];
        const double f = factor(c, y0, x0);
        long best = -1;
        for (int ky = 0; ky < c->k[0]; ky++) {
            for (int kx = 0; kx < c->k[1]; kx++) {
                const int iy = y0 + ky * c->d[0], ix = x0 + kx * c->d[1];
                if (iy < 0 || iy >= c->ih || ix < 0 || ix >= c->iw)
                    continue;
                const long at = plane + (long)iy * c->iw + ix;
                if (best < 0 || x[at] > x[best])
                    best = at;
                if (!max) {
                    y[i] += (double)x[at] * f;
                    dx[at] += (double)g[i] * f;
                }
            }
        }
        if (max) {
            y[i] = (double)x[best];
            dx[best] += (double)g[i];
        }
    }
}

static void pool(const pool_case *c, int max)
{
    l.n = c->n;
    const long in = (long)c->channels * c->ih * c->iw, out = (long)c->channels * c->oh * c->ow;
    const int planes = (c->n + l.lanes - 1) / l.lanes * c->channels;
    float *x = lab_randoms(c->n * in, 1), *g = lab_randoms(c->n * out, 2);
    float *got = lab_randoms(c->n * (in + out), 3);
    double *y = calloc((size_t)(c->n * out), sizeof *y), *dx = calloc((size_t)(c->n * in), 8);
    reference(c, max, x, g, y, dx);
    lab_buffer bx = lab_put(&l, x, in), bg = lab_put(&l, g, out);
    lab_buffer by = lab_make(&l, lab_batch_blocked_count(&l, out), 4);
    lab_buffer bdx = lab_make(&l, lab_batch_blocked_count(&l, in), 4);
    const char *file = "pool/batch_blocked/pool.cl";
#define SHAPE                                                                                      \
    c->ih, c->iw, c->oh, c->ow, c->k[0], c->k[1], c->s[0], c->s[1], c->p[0], c->p[1], c->d[0],     \
        c->d[1], c->count_pad
    lab_run(
        &l,
        lab_kernel(&l, file, max ? "clt_batch_blocked_max_pool" : "clt_batch_blocked_avg_pool", ""),
        (size_t)planes, 1, 1, "bbiiiiiiiiiiiii", &bx, &by, SHAPE);
    cl_kernel k = lab_kernel(
        &l, file, max ? "clt_batch_blocked_max_pool_grad" : "clt_batch_blocked_avg_pool_grad", "");
    if (max)
        lab_run(&l, k, (size_t)planes, 1, 1, "bbbiiiiiiiiiiiii", &bx, &bg, &bdx, SHAPE);
    else
        lab_run(&l, k, (size_t)planes, 1, 1, "bbiiiiiiiiiiiii", &bg, &bdx, SHAPE);
    lab_get(&l, &by, got, out);
    for (long i = 0; i < c->n * out; i++)
        assert_true(fabs((double)got[i] - y[i]) <= (max ? 0.0 : 1e-6));
    lab_get(&l, &bdx, got, in);
    for (long i = 0; i < c->n * in; i++)
        assert_true(fabs((double)got[i] - dx[i]) <= 1e-6);
    lab_free(&bx), lab_free(&bg), lab_free(&by), lab_free(&bdx);
    free(x), free(g), free(got), free(y), free(dx);
}

static void test_pool(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pool(&cases[i], 0);
        pool(&cases[i], 1);
    }
}

static void test_unpool(void **state)
{
    (void)state;
    enum { CHANNELS = 2, OH = 5, OW = 7, PH = 2, PW = 3, PART = CHANNELS * PH * PW };
    l.n = 11;
    float *g = lab_randoms(l.n * PART, 4), *got = lab_randoms(l.n * CHANNELS * OH * OW, 5);
    unsigned char *mask = calloc((size_t)(l.n * PART), 1);
    for (int i = 0; i < l.n * PART; i++)
        mask[i] = (unsigned char)(i * 7 % 16);
    lab_buffer bg = lab_put(&l, g, PART), bm = lab_put_bytes(&l, mask, PART);
    lab_buffer bz = lab_make(&l, lab_batch_blocked_count(&l, CHANNELS * OH * OW), 4);
    const size_t planes = (size_t)((l.n + l.lanes - 1) / l.lanes * CHANNELS);
    lab_run(&l, lab_kernel(&l, "pool/batch_blocked/pool.cl", "clt_batch_blocked_unpool", ""),
            planes, 1, 1, "bbbiif", &bg, &bm, &bz, OH, OW, 0.25);
    lab_get(&l, &bz, got, CHANNELS * OH * OW);
    for (int i = 0; i < l.n * CHANNELS * OH * OW; i++) {
        const int y = i / OW % OH, x = i % OW, from = (i / (OH * OW) * PH + y / 2) * PW + x / 2;
        const int inside = y < 2 * PH && x < 2 * PW;
        const int flows = inside && mask[from] & 1 << (y % 2 * 2 + x % 2);
        assert_true(got[i] == (flows ? 0.25f * g[from] : 0.0f));
    }
    lab_free(&bg), lab_free(&bm), lab_free(&bz);
    free(g), free(got), free(mask);
}

static void test_layout(void **state)
{
    (void)state;
    const int rests[] = {1, 63, 130};
    for (int r = 0; r < 3; r++) {
        const int rest = rests[r];
        l.n = 13;
        const size_t chunks = (size_t)(rest + 63) / 64;
        const size_t blocks = (size_t)((l.n + l.lanes - 1) / l.lanes);
        float *x = lab_randoms(l.n * rest, 6), *got = lab_randoms(l.n * rest, 7);
        unsigned char *bytes = calloc((size_t)(l.n * rest), 1);
        for (int i = 0; i < l.n * rest; i++)
            bytes[i] = (unsigned char)(i * 31);
        lab_buffer bx = lab_put_plain(&l, x, l.n * rest, 4);
        lab_buffer bb = lab_put_plain(&l, bytes, l.n * rest, 1);
        lab_buffer packed = lab_make(&l, lab_batch_blocked_count(&l, rest), 4);
        lab_buffer back = lab_make(&l, l.n * rest, 4);
        const char *file = "shape/batch_blocked/layout.cl";
        lab_run(&l, lab_kernel(&l, file, "plain_to_batch_blocked", ""), chunks, blocks, 1, "bbii",
                &bx, &packed, rest, l.n);
        lab_get(&l, &packed, got, rest);
        assert_memory_equal(got, x, (size_t)l.n * (size_t)rest * sizeof *x);
        lab_run(&l, lab_kernel(&l, file, "batch_blocked_to_plain", ""), chunks, blocks, 1, "bbii",
                &packed, &back, rest, l.n);
        lab_read(&l, &back, got);
        assert_memory_equal(got, x, (size_t)l.n * (size_t)rest * sizeof *x);
        lab_run(&l, lab_kernel(&l, file, "bytes_to_batch_blocked", ""), chunks, blocks, 1, "bbiiff",
                &bb, &packed, rest, l.n, 1.0 / 255.0, -0.5);
        lab_get(&l, &packed, got, rest);
        for (int i = 0; i < l.n * rest; i++)
            assert_true(fabs((double)got[i] - (bytes[i] / 255.0 - 0.5)) <= 1e-7);
        lab_free(&bx), lab_free(&bb), lab_free(&packed), lab_free(&back);
        free(x), free(got), free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_unpool),
        cmocka_unit_test(test_layout),
    };
    lab_open(&l);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_close(&l);
    return failed;
}
