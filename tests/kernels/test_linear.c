/* clkernels/matmul/batch_blocked/linear.cl against sums in double. */
#include "kernels/lab.h"

static lab l;

typedef struct linear_case {
    int n, in, out, tc, tb, relu, chunk; /* relu: 1 after the layer, 2 before it (backward only) */
} linear_case;

static const linear_case cases[] = {
    {.n = 20, .in = 37, .out = 13, .tc = 4, .tb = 3, .relu = 1, .chunk = 100},
    {.n = 1, .in = 1, .out = 1, .tc = 4, .tb = 3, .chunk = 1},
    {.n = 64, .in = 24, .out = 16, .tc = 4, .tb = 3, .relu = 2, .chunk = 3},
    {.n = 35, .in = 101, .out = 40, .tc = 6, .tb = 2, .relu = 1, .chunk = 2},
};

static size_t up(int value, int by)
{
    return (size_t)((value + by - 1) / by);
}

static double *zeros(long count)
{
    return calloc((size_t)(count ? count : 1), sizeof(double));
}

static void forward_case(const linear_case *c)
{
    l.n = c->n;
    const long ys = (long)c->n * c->out;
    float *x = lab_randoms((long)c->n * c->in, 1), *w = lab_randoms((long)c->in * c->out, 2);
    float *bias = lab_randoms(c->out, 3), *got = lab_randoms(ys, 4);
    double *sum = zeros(ys), *magnitude = zeros(ys);
    for (long i = 0; i < ys; i++) {
        const long b = i / c->out, o = i % c->out;
        sum[i] = (double)bias[o];
        magnitude[i] = fabs(sum[i]);
        for (int k = 0; k < c->in; k++) {
            const double term = (double)x[b * c->in + k] * (double)w[o * c->in + k];
            sum[i] += term;
            magnitude[i] += fabs(term);
        }
        if (c->relu == 1)
            sum[i] = fmax(sum[i], 0.0);
    }
    lab_buffer dx = lab_put(&l, x, c->in), dw = lab_put_plain(&l, w, (long)c->in * c->out, 4);
    lab_buffer db = lab_put_plain(&l, bias, c->out, 4);
    lab_buffer dy = lab_make(&l, lab_batch_blocked_count(&l, c->out), 4);
    cl_kernel k = lab_kernel(&l, "matmul/batch_blocked/linear.cl", "clt_batch_blocked_linear",
                             "-DTC=%d -DTB=%d -DBIAS=1 -DACT=%d", c->tc, c->tb, c->relu);
    lab_run(&l, k, up(c->out, c->tc), up(c->n, l.lanes * c->tb), 1, "bbbbiii", &dx, &dw, &db, &dy,
            c->n, c->in, c->out);
    lab_get(&l, &dy, got, c->out);
    const double worst = lab_compare("linear", got, sum, magnitude, ys, c->in + 1);
    print_message("linear %d to %d: %.3f of the limit\n", c->in, c->out, worst);
    lab_free(&dx), lab_free(&dw), lab_free(&db), lab_free(&dy);
    free(x), free(w), free(bias), free(got), free(sum), free(magnitude);
}

/* Tests both gradients. With relu, also the gradient of the ReLU whose output is y. */
static void gradients_case(const linear_case *c)
{
    l.n = c->n;
    const long xs = (long)c->n * c->in, ys = (long)c->n * c->out, ws = (long)c->in * c->out;
    float *x = lab_randoms(xs, 5), *w = lab_randoms(ws, 6), *g = lab_randoms(ys, 7);
    float *y = lab_randoms(ys, 8), *got = lab_randoms(xs + ws + c->out, 9);
    double *sum = zeros(xs), *magnitude = zeros(xs);
    double *wsum = zeros(ws + c->out), *wmagnitude = zeros(ws + c->out);
    for (long i = 0; i < ys; i++) {
        const long b = i / c->out, o = i % c->out;
        const double gi = c->relu == 1 && y[i] <= 0.0f ? 0.0 : (double)g[i];
        wsum[ws + o] += gi;
        wmagnitude[ws + o] += fabs(gi);
        for (int k = 0; k < c->in; k++) {
            const double to_x = gi * (double)w[o * c->in + k];
            const double to_w = gi * (double)x[b * c->in + k];
            sum[b * c->in + k] += to_x;
            magnitude[b * c->in + k] += fabs(to_x);
            wsum[o * c->in + k] += to_w;
            wmagnitude[o * c->in + k] += fabs(to_w);
        }
    }
    for (long i = 0; i < xs && c->relu == 2; i++)
        sum[i] = x[i] <= 0.0f ? 0.0 : sum[i];
    const int chunks = c->n ? (int)up((int)up(c->n, l.lanes), c->chunk) : 1;
    lab_buffer bx = lab_put(&l, x, c->in), bw = lab_put_plain(&l, w, ws, 4);
    lab_buffer bg = lab_put(&l, g, c->out), by = lab_put(&l, y, c->out);
    lab_buffer dx = lab_make(&l, lab_batch_blocked_count(&l, c->in), 4);
    lab_buffer dw = lab_make(&l, ws * chunks, 4), db = lab_make(&l, c->out * chunks, 4);
    lab_buffer rw = lab_make(&l, ws, 4), rb = lab_make(&l, c->out, 4);
    const char *options = "-DTC=%d -DTB=%d -DBIAS=1 -DACT=%d -DIN_BLOCK=10 -DOUT_BLOCK=5";
    cl_kernel k = lab_kernel(&l, "matmul/batch_blocked/linear.cl",
                             "clt_batch_blocked_linear_data_grad", options, c->tc, c->tb, c->relu);
    lab_run(&l, k, up(c->in, c->tc), up(c->n, l.lanes * c->tb), 1, "bbbbiii", &bg,
            c->relu == 2 ? &bx : &by, &bw, &dx, c->n, c->in, c->out);
    k = lab_kernel(&l, "matmul/batch_blocked/linear.cl", "clt_batch_blocked_linear_weight_grad",
                   options, c->tc, c->tb, c->relu);
    lab_run(&l, k, up(c->in, 10), up(c->out, 5), (size_t)chunks, "bbbbbiiii", &bx, &bg, &by, &dw,
            &db, c->n, c->in, c->out, c->chunk);
    k = lab_kernel(&l, "conv/batch_blocked/conv_weight_grad.cl", "clt_batch_blocked_sum_chunks",
                   "-DSPREAD=32");
    lab_run(&l, k, up((int)ws, 32), 1, 1, "bbiii", &dw, &rw, (int)ws, c->chunk, c->n);
    lab_run(&l, k, up(c->out, 32), 1, 1, "bbiii", &db, &rb, c->out, c->chunk, c->n);
    lab_get(&l, &dx, got, c->in);
    double worst = lab_compare("linear data gradient", got, sum, magnitude, xs, c->out);
    print_message("linear data gradient %d to %d: %.3f of the limit\n", c->in, c->out, worst);
    lab_read(&l, &rw, got);
    lab_read(&l, &rb, got + ws);
    worst = lab_compare("linear weight gradient", got, wsum, wmagnitude, ws + c->out, c->n);
    print_message("linear weight gradient %d to %d: %.3f of the limit\n", c->in, c->out, worst);
    lab_free(&bx), lab_free(&bw), lab_free(&bg), lab_free(&by), lab_free(&dx), lab_free(&dw);
    lab_free(&db), lab_free(&rw), lab_free(&rb);
    free(x), free(w), free(g), free(y), free(got), free(sum), free(magnitude), free(wsum);
    free(wmagnitude);
}

static void test_linear(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forward_case(&cases[i]);
        gradients_case(&cases[i]);
    }
    linear_case empty = cases[0];
    empty.n = 0;
    gradients_case(&empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_linear)};
    lab_open(&l);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_close(&l);
    return failed;
}
