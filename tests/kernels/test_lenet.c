/*
 * A training step of LeNet as a chain of batch-blocked kernels. The test: the gradients of a batch
 * are the sums of the gradients of its parts. --bench [images] prints microseconds and GFLOP/s of
 * each kernel and of the step: many calls queued back to back, median of 9.
 */
#include "kernels/lab.h"

static lab l;

enum { MAX_LAUNCHES = 24, CHUNK1 = 8, REPEATS = 20 };

typedef struct launch {
    const char *name;
    cl_kernel kernel;
    size_t global[3];
    double flops;
} launch;

typedef struct step {
    launch launches[MAX_LAUNCHES];
    int count;
    lab_buffer image, labels, upstream, x, a1, m1, a2, m2, h, z, sums, counts;
    lab_buffer gz, gh, g2, dz2, g1, w1, b1, w2, b2, w3, b3, w4, b4;
    lab_buffer dw1, db1, dw2, db2, dw3, db3, dw4, db4, part1, part1b;
} step;

static const long sizes[] = {180, 20, 25000, 50, 102400, 128, 1280, 10};

static size_t up(int value, int by)
{
    return (size_t)((value + by - 1) / by);
}

/* Adds the launch for which lab_run just set the arguments. */
static void add(step *s, const char *name, cl_kernel kernel, size_t gx, size_t gy, size_t gz,
                double flops)
{
    assert_true(s->count < MAX_LAUNCHES);
    s->launches[s->count++] = (launch){name, kernel, {gx, gy, gz}, flops};
}

/* Makes the kernel, sets its arguments without a launch, and adds it. */
#define ADD(name, kernel, gx, gy, gz, mflop, kinds, ...)                                           \
    do {                                                                                           \
        cl_kernel added = kernel;                                                                  \
        lab_run(&l, added, 0, 1, 1, kinds, __VA_ARGS__);                                           \
        add(s, name, added, gx, gy, gz, (mflop)*2e6);                                              \
    } while (0)

static lab_buffer batch_blocked(long each, size_t size)
{
    return lab_make(&l, lab_batch_blocked_count(&l, each), size);
}

static lab_buffer parameter(long count, float scale, uint64_t seed)
{
    float *values = lab_randoms(count, seed);
    for (long i = 0; i < count; i++)
        values[i] *= scale;
    lab_buffer b = lab_put_plain(&l, values, count, 4);
    free(values);
    return b;
}

/* Makes buffers for images first .. first + n - 1 of a fixed series. */
static void make_buffers(step *s, int first, int n)
{
    l.n = n;
    unsigned char *bytes = malloc((size_t)n * 784 + 1);
    int *labels = malloc((size_t)n * sizeof *labels + 1);
    for (int i = 0; i < n; i++) {
        uint64_t seed = (uint64_t)(first + i) * 77 + 5;
        labels[i] = (first + i) * 7 % 10;
        for (int e = 0; e < 784; e++)
            bytes[i * 784 + e] = (unsigned char)(127.5f + 127.0f * lab_random(&seed));
    }
    const float upstream = 1.0f / 256.0f;
    s->image = lab_put_plain(&l, bytes, n * 784L, 1);
    s->labels = lab_put_plain(&l, labels, n, 4);
    s->upstream = lab_put_plain(&l, &upstream, 1, 4);
    s->x = batch_blocked(784, 4);
    s->a1 = batch_blocked(20 * 169, 4), s->m1 = batch_blocked(20 * 169, 1),
    s->g1 = batch_blocked(20 * 169, 4);
    s->a2 = batch_blocked(800, 4), s->m2 = batch_blocked(800, 1), s->g2 = batch_blocked(800, 4);
    s->dz2 = batch_blocked(50 * 64, 4);
    s->h = batch_blocked(128, 4), s->gh = batch_blocked(128, 4), s->z = batch_blocked(10, 4),
    s->gz = batch_blocked(10, 4);
    s->sums = lab_make(&l, 4, 4), s->counts = lab_make(&l, 4, 4);
    s->w1 = parameter(180, 0.33f, 1), s->b1 = parameter(20, 0.33f, 2);
    s->w2 = parameter(25000, 0.04f, 3), s->b2 = parameter(50, 0.04f, 4);
    s->w3 = parameter(102400, 0.035f, 5), s->b3 = parameter(128, 0.035f, 6);
    s->w4 = parameter(1280, 0.09f, 7), s->b4 = parameter(10, 0.09f, 8);
    lab_buffer *gradients[] = {&s->dw1, &s->db1, &s->dw2, &s->db2,
                               &s->dw3, &s->db3, &s->dw4, &s->db4};
    for (int i = 0; i < 8; i++)
        *gradients[i] = lab_make(&l, sizes[i], 4);
    const int chunks = (int)up((int)up(n, l.lanes), CHUNK1);
    s->part1 = lab_make(&l, 180L * chunks, 4), s->part1b = lab_make(&l, 20L * chunks, 4);
    free(bytes), free(labels);
}

static void free_buffers(step *s)
{
    lab_buffer *all[] = {&s->image, &s->labels, &s->upstream, &s->x,     &s->a1,    &s->m1,
                         &s->a2,    &s->m2,     &s->h,        &s->z,     &s->sums,  &s->counts,
                         &s->gz,    &s->gh,     &s->g2,       &s->dz2,   &s->g1,    &s->w1,
                         &s->b1,    &s->w2,     &s->b2,       &s->w3,    &s->b3,    &s->w4,
                         &s->b4,    &s->dw1,    &s->db1,      &s->dw2,   &s->db2,   &s->dw3,
                         &s->db3,   &s->dw4,    &s->db4,      &s->part1, &s->part1b};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        lab_free(all[i]);
}

static void make_forward(step *s, int n)
{
    const size_t blocks = up(n, l.lanes);
    const char *conv = "conv/batch_blocked/conv.cl", *linear = "matmul/batch_blocked/linear.cl";
    ADD("images to batch-blocked",
        lab_kernel(&l, "shape/batch_blocked/layout.cl", "bytes_to_batch_blocked", ""), up(784, 64),
        blocks, 1, 0, "bbiiff", &s->image, &s->x, 784, n, 1.0 / 255.0, 0.0);
    ADD("conv1 relu pool",
        lab_kernel(&l, conv, "clt_batch_blocked_conv",
                   "-DKY=3 -DKX=3 -DBIAS=1 -DACT=1 -DPOOL=1 -DXTAIL=2 -DCTAIL=2"),
        7, up(13, 5), blocks, 9 * 20 * 676e-6 * n, "bbbbbiiiiiiiii", &s->x, &s->w1, &s->b1, &s->a1,
        &s->m1, n, 1, 1, 28, 28, 20, 26, 26, 5);
    ADD("conv2 relu pool",
        lab_kernel(&l, conv, "clt_batch_blocked_conv",
                   "-DKY=5 -DKX=5 -DBIAS=1 -DACT=1 -DPOOL=1 -DCTAIL=2"),
        17, 1, blocks, 25000 * 64e-6 * n, "bbbbbiiiiiiiii", &s->a1, &s->w2, &s->b2, &s->a2, &s->m2,
        n, 1, 20, 13, 13, 50, 9, 9, 4);
    ADD("fc1 relu", lab_kernel(&l, linear, "clt_batch_blocked_linear", "-DBIAS=1 -DACT=1"),
        up(128, 3), up(n, l.lanes * 4), 1, 102400e-6 * n, "bbbbiii", &s->a2, &s->w3, &s->b3, &s->h,
        n, 800, 128);
    ADD("fc2", lab_kernel(&l, linear, "clt_batch_blocked_linear", "-DBIAS=1"), up(10, 3),
        up(n, l.lanes * 4), 1, 1280e-6 * n, "bbbbiii", &s->h, &s->w4, &s->b4, &s->z, n, 128, 10);
    ADD("loss", lab_kernel(&l, "loss/batch_blocked/loss.cl", "clt_batch_blocked_cross_entropy", ""),
        4, 1, 1, 0, "bbbbiifii", &s->z, &s->labels, &s->sums, &s->counts, n, 10, 0.0, -100, 4);
}

static void make_backward(step *s, int n)
{
    const size_t blocks = up(n, l.lanes), chunks = up((int)blocks, CHUNK1);
    const char *linear = "matmul/batch_blocked/linear.cl",
               *weights = "conv/batch_blocked/conv_weight_grad.cl";
    ADD("loss gradient",
        lab_kernel(&l, "loss/batch_blocked/loss.cl", "clt_batch_blocked_cross_entropy_grad", ""),
        blocks, 1, 1, 0, "bbbbiifi", &s->z, &s->labels, &s->upstream, &s->gz, n, 10, 0.0, -100);
    ADD("fc2 weights",
        lab_kernel(&l, linear, "clt_batch_blocked_linear_weight_grad", "-DBIAS=1 -DIN_BLOCK=33"),
        up(128, 33), 1, 1, 1280e-6 * n, "bbbbbiiii", &s->h, &s->gz, &s->gz, &s->dw4, &s->db4, n,
        128, 10, 1 << 20);
    ADD("fc2 data", lab_kernel(&l, linear, "clt_batch_blocked_linear_data_grad", "-DACT=2"),
        up(128, 3), up(n, l.lanes * 4), 1, 1280e-6 * n, "bbbbiii", &s->gz, &s->h, &s->w4, &s->gh, n,
        128, 10);
    ADD("fc1 weights", lab_kernel(&l, linear, "clt_batch_blocked_linear_weight_grad", "-DBIAS=1"),
        up(800, 96), up(128, 32), 1, 102400e-6 * n, "bbbbbiiii", &s->a2, &s->gh, &s->h, &s->dw3,
        &s->db3, n, 800, 128, 1 << 20);
    ADD("fc1 data", lab_kernel(&l, linear, "clt_batch_blocked_linear_data_grad", ""), up(800, 3),
        up(n, l.lanes * 4), 1, 102400e-6 * n, "bbbbiii", &s->gh, &s->h, &s->w3, &s->g2, n, 800,
        128);
    ADD("unpool conv2",
        lab_kernel(&l, "pool/batch_blocked/pool.cl", "clt_batch_blocked_unpool", ""), blocks * 50,
        1, 1, 0, "bbbiif", &s->g2, &s->m2, &s->dz2, 8, 8, 0.25);
    ADD("conv2 weights",
        lab_kernel(&l, weights, "clt_batch_blocked_conv_weight_grad",
                   "-DKY=5 -DKX=5 -DBIAS=1 -DTO=2 -DCI_BLOCK=10"),
        2, 25, 1, 25000 * 64e-6 * n, "bbbbbiiiiiiiii", &s->a1, &s->dz2, &s->m2, &s->dw2, &s->db2, n,
        1, 20, 13, 13, 50, 8, 8, 1 << 20);
    ADD("conv2 data",
        lab_kernel(&l, "conv/batch_blocked/conv_data_grad.cl", "clt_batch_blocked_conv_data_grad",
                   "-DKY=5 -DKX=5 -DTX=8 -DTC=1 -DTW=3"),
        20, 1, blocks, 25000 * 64e-6 * n, "bbbiiiiiiiii", &s->dz2, &s->w2, &s->g1, n, 1, 20, 13, 13,
        50, 8, 8, 13);
    ADD("conv1 weights",
        lab_kernel(&l, weights, "clt_batch_blocked_conv_weight_grad",
                   "-DKY=3 -DKX=3 -DBIAS=1 -DTO=3 -DUNPOOL=1 -DBAND=2 -DCOLUMNS=26"),
        1, 7, chunks, 9 * 20 * 676e-6 * n, "bbbbbiiiiiiiii", &s->x, &s->g1, &s->m1, &s->part1,
        &s->part1b, n, 1, 1, 28, 28, 20, 26, 26, CHUNK1);
    ADD("conv1 sum", lab_kernel(&l, weights, "clt_batch_blocked_sum_chunks", "-DSPREAD=512"), 1, 1,
        1, 0, "bbiii", &s->part1, &s->dw1, 180, CHUNK1, n);
    ADD("conv1 bias sum", lab_kernel(&l, weights, "clt_batch_blocked_sum_chunks", "-DSPREAD=513"),
        1, 1, 1, 0, "bbiii", &s->part1b, &s->db1, 20, CHUNK1, n);
}

/* Requests with equal options share a kernel, so arguments would have to be set right before each
 * launch. Every launch here has its own options or arguments. */
static void make_step(step *s, int first, int n)
{
    *s = (step){0};
    make_buffers(s, first, n);
    make_forward(s, n);
    make_backward(s, n);
}

static void enqueue(const launch *k)
{
    static const size_t one[3] = {1, 1, 1};
    LAB_CHECK(clEnqueueNDRangeKernel(l.queue, k->kernel, 3, NULL, k->global, one, 0, NULL, NULL));
}

/* Writes all gradients of images first .. first + n - 1 one after the other. Returns the loss. */
static double gradients(int first, int n, float *out)
{
    step s;
    make_step(&s, first, n);
    for (int i = 0; i < s.count; i++)
        enqueue(&s.launches[i]);
    const lab_buffer *all[] = {&s.dw1, &s.db1, &s.dw2, &s.db2, &s.dw3, &s.db3, &s.dw4, &s.db4};
    for (int i = 0; i < 8; i++) {
        lab_read(&l, all[i], out);
        out += sizes[i];
    }
    float part[4];
    lab_read(&l, &s.sums, part);
    free_buffers(&s);
    return (double)part[0] + (double)part[1] + (double)part[2] + (double)part[3];
}

static void test_parts(void **state)
{
    (void)state;
    enum { ALL = 129068 };
    float *whole = lab_randoms(ALL, 1), *left = lab_randoms(ALL, 1), *right = lab_randoms(ALL, 1);
    const double loss = gradients(0, 41, whole);
    const double parts = gradients(0, 24, left) + gradients(24, 17, right);
    assert_true(loss > 41.0 * 2.0 && loss < 41.0 * 3.0);
    assert_true(fabs(loss - parts) < 1e-5 * loss);
    long at = 0;
    for (int i = 0; i < 8; i++) {
        double error = 0.0, size = 0.0;
        for (long e = at; e < at + sizes[i]; e++) {
            const double want = (double)left[e] + (double)right[e];
            error += (want - (double)whole[e]) * (want - (double)whole[e]);
            size += want * want;
        }
        assert_true(size > 0.0);
        assert_true(error < 1e-9 * size);
        at += sizes[i];
    }
    free(whole), free(left), free(right);
}

/* Returns the median seconds per call of `count` launches from `k`: wall time, and the process' CPU
 * time per compute unit, which other programs disturb less. */
static double time_launches(const launch *k, int count, double *cpu)
{
    double wall[9], busy[9];
    cl_uint units = 1;
    LAB_CHECK(clGetDeviceInfo(l.device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL));
    for (int run = 0; run < 9; run++) {
        const double w0 = clt_clock(), c0 = lab_cpu_seconds();
        for (int i = 0; i < REPEATS; i++)
            for (int j = 0; j < count; j++)
                enqueue(&k[j]);
        LAB_CHECK(clFinish(l.queue));
        wall[run] = (clt_clock() - w0) / REPEATS;
        busy[run] = (lab_cpu_seconds() - c0) / REPEATS / units;
    }
    *cpu = clt_clock_median(busy, 9);
    return clt_clock_median(wall, 9);
}

static int bench(int n)
{
    step s;
    make_step(&s, 0, n);
    double flops = 0.0, cpu;
    for (int i = 0; i < s.count; i++)
        enqueue(&s.launches[i]);
    LAB_CHECK(clFinish(l.queue));
    printf("%-18s %10s %10s %10s\n", "kernel", "us", "GFLOP/s", "cpu us");
    for (int i = 0; i < s.count; i++) {
        const double wall = time_launches(&s.launches[i], 1, &cpu);
        printf("%-18s %10.1f %10.1f %10.1f\n", s.launches[i].name, wall * 1e6,
               s.launches[i].flops / wall / 1e9, cpu * 1e6);
        flops += s.launches[i].flops;
    }
    const double wall = time_launches(s.launches, s.count, &cpu);
    printf("%-18s %10.1f %10.1f %10.1f   %.0f images/s\n", "step", wall * 1e6, flops / wall / 1e9,
           cpu * 1e6, n / wall);
    free_buffers(&s);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts)};
    lab_open(&l);
    int failed;
    if (argc > 1 && !strcmp(argv[1], "--bench"))
        failed = bench(argc > 2 ? atoi(argv[2]) : 256);
    else
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_close(&l);
    return failed;
}
