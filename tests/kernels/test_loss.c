/* clkernels/loss/batch_blocked/loss.cl against double. */
#include "kernels/lab.h"

enum { IGNORE = -100, PARTS = 3 };

static lab l;

/* Computes loss and gradient of one sample. */
static double sample(const float *x, int classes, int label, double smoothing, double *grad)
{
    double largest = -INFINITY, exps = 0.0, all = 0.0;
    for (int c = 0; c < classes; c++)
        largest = fmax(largest, (double)x[c]);
    for (int c = 0; c < classes; c++) {
        exps += exp((double)x[c] - largest);
        all += largest - (double)x[c];
    }
    for (int c = 0; c < classes; c++) {
        grad[c] = exp((double)x[c] - largest) / exps - smoothing / classes;
        if (c == label)
            grad[c] -= 1.0 - smoothing;
    }
    const double own = log(exps) + largest - (double)x[label];
    return (1.0 - smoothing) * own + smoothing * (log(exps) + all / classes);
}

static double loss_of_parts(const lab_buffer *sums, const lab_buffer *counts, long *count)
{
    float part[PARTS];
    int number[PARTS];
    lab_read(&l, sums, part);
    lab_read(&l, counts, number);
    double total = 0.0;
    *count = 0;
    for (int i = 0; i < PARTS; i++) {
        total += (double)part[i];
        *count += number[i];
    }
    return total;
}

static void loss_case(int n, int classes, float smoothing)
{
    l.n = n;
    const long count = (long)n * classes;
    float *x = lab_randoms(count, 1), *got = lab_randoms(count + n, 2);
    int *labels = calloc((size_t)n + 1, sizeof *labels);
    double *grad = calloc((size_t)count + 1, sizeof *grad), *loss = calloc((size_t)n + 1, 8);
    double total = 0.0;
    long weight = 0;
    for (long i = 0; i < count; i++)
        x[i] *= 10.0f;
    for (int i = 0; i < n; i++) {
        labels[i] = i % 5 == 3 ? IGNORE : i * 7 % classes;
        if (labels[i] == IGNORE)
            continue;
        loss[i] = sample(x + (long)i * classes, classes, labels[i], (double)smoothing,
                         grad + (long)i * classes);
        total += loss[i];
        weight++;
    }
    const float upstream = 0.125f;
    lab_buffer bx = lab_put(&l, x, classes), bl = lab_put_plain(&l, labels, n, 4);
    lab_buffer bu = lab_put_plain(&l, &upstream, 1, 4), sums = lab_make(&l, PARTS, 4);
    lab_buffer counts = lab_make(&l, PARTS, 4), losses = lab_make(&l, n, 4);
    lab_buffer out = lab_make(&l, lab_batch_blocked_count(&l, classes), 4);
    const char *file = "loss/batch_blocked/loss.cl";
    const size_t blocks = (size_t)((n + l.lanes - 1) / l.lanes);
    lab_run(&l, lab_kernel(&l, file, "clt_batch_blocked_cross_entropy", ""), PARTS, 1, 1,
            "bbbbiifii", &bx, &bl, &sums, &counts, n, classes, (double)smoothing, IGNORE, PARTS);
    lab_run(&l, lab_kernel(&l, file, "clt_batch_blocked_cross_entropy_samples", ""), blocks, 1, 1,
            "bbbiifi", &bx, &bl, &losses, n, classes, (double)smoothing, IGNORE);
    lab_run(&l, lab_kernel(&l, file, "clt_batch_blocked_cross_entropy_grad", ""), blocks, 1, 1,
            "bbbbiifi", &bx, &bl, &bu, &out, n, classes, (double)smoothing, IGNORE);
    long number = 0;
    const double sum = loss_of_parts(&sums, &counts, &number);
    assert_int_equal(number, weight);
    assert_true(fabs(sum - total) <= 1e-5 * fabs(total) + 1e-6);
    lab_read(&l, &losses, got);
    for (int i = 0; i < n; i++)
        assert_true(fabs((double)got[i] - loss[i]) <= 4e-6 * (1.0 + fabs(loss[i])));
    lab_get(&l, &out, got, classes);
    for (long i = 0; i < count; i++)
        assert_true(fabs((double)got[i] - 0.125 * grad[i]) <= 2e-6 * 0.125);
    if (n > 2) {
        labels[2] = classes;
        lab_write(&l, &bl, labels);
        lab_run(&l, lab_kernel(&l, file, "clt_batch_blocked_cross_entropy", ""), PARTS, 1, 1,
                "bbbbiifii", &bx, &bl, &sums, &counts, n, classes, (double)smoothing, IGNORE,
                PARTS);
        lab_run(&l, lab_kernel(&l, file, "clt_batch_blocked_cross_entropy_grad", ""), blocks, 1, 1,
                "bbbbiifi", &bx, &bl, &bu, &out, n, classes, (double)smoothing, IGNORE);
        assert_true(isnan(loss_of_parts(&sums, &counts, &number)));
        lab_get(&l, &out, got, classes);
        assert_true(isnan(got[2 * (long)classes]));
        assert_true(got[classes] == got[classes]);
    }
    lab_free(&bx), lab_free(&bl), lab_free(&bu), lab_free(&sums), lab_free(&counts);
    lab_free(&losses), lab_free(&out);
    free(x), free(got), free(labels), free(grad), free(loss);
}

static void test_cross_entropy(void **state)
{
    (void)state;
    loss_case(37, 10, 0.0f);
    loss_case(16, 7, 0.1f);
    loss_case(1, 1, 0.0f);
    loss_case(0, 3, 0.0f);
}

static void test_correct(void **state)
{
    (void)state;
    enum { N = 21, CLASSES = 6 };
    l.n = N;
    float x[N * CLASSES];
    int labels[N];
    uint64_t seed = 5;
    for (int i = 0; i < N * CLASSES; i++)
        x[i] = (float)(int)(lab_random(&seed) * 3.0f); /* many ties */
    x[5] = NAN;
    for (int i = 0; i < N; i++)
        labels[i] = i == 4 ? IGNORE : i % CLASSES;
    for (int k = 1; k <= 3; k++) {
        double want = 0.0;
        for (int i = 0; i < N; i++) {
            int before = 0;
            const float *row = x + i * CLASSES;
            if (labels[i] == IGNORE)
                continue;
            for (int c = 0; c < CLASSES; c++) {
                const float own = row[labels[i]];
                const int larger = isnan(row[c]) ? !isnan(own) : row[c] > own;
                const int equal = row[c] == own || (isnan(row[c]) && isnan(own));
                before += larger || (equal && c < labels[i]);
            }
            want += before < k;
        }
        lab_buffer bx = lab_put(&l, x, CLASSES), bl = lab_put_plain(&l, labels, N, 4);
        lab_buffer sums = lab_make(&l, PARTS, 4), counts = lab_make(&l, PARTS, 4);
        lab_run(&l, lab_kernel(&l, "loss/batch_blocked/loss.cl", "clt_batch_blocked_correct", ""),
                PARTS, 1, 1, "bbbbiiiii", &bx, &bl, &sums, &counts, N, CLASSES, k, IGNORE, PARTS);
        long number = 0;
        assert_true(loss_of_parts(&sums, &counts, &number) == want);
        assert_int_equal(number, N - 1);
        lab_free(&bx), lab_free(&bl), lab_free(&sums), lab_free(&counts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_correct),
    };
    lab_open(&l);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_close(&l);
    return failed;
}
