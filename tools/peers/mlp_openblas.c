/*
 * Trains a multi-layer perceptron with one hidden layer and SGD in plain C, with the products of
 * OpenBLAS on one thread. It is independent of cltrain. compare_merging.py compiles and runs it.
 *
 *     cc -O3 -march=native mlp_openblas.c -ldl -lm -o mlp_openblas
 *     mlp_openblas LIBRARY FILE SAMPLES BATCH IN HIDDEN OUT RATE STEPS BLOCKS
 *
 * FILE has floats: fc1.weight [HIDDEN, IN], fc1.bias, fc2.weight [OUT, HIDDEN], fc2.bias, all
 * samples [SAMPLES, IN], then a label of each sample as a float. Batches are read in order, and
 * again from the first sample; BATCH divides SAMPLES. The loss is the mean cross entropy.
 *
 * Prints the losses of the first steps, a line each, and then the seconds a step of each block of
 * STEPS steps. Training goes on from block to block.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
enum { PRINTED = 64 }; /* losses */

typedef void sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                      int lda, const float *b, int ldb, float beta, float *c, int ldc);

typedef struct model {
    sgemm_fn *sgemm;
    int batch, in, hidden, out;
    float *w1, *b1, *w2, *b2;         /* parameters */
    float *dw1, *db1, *dw2, *db2;     /* gradients */
    float *hidden_x, *top, *d_hidden; /* of a batch; `top` is logits, then their gradient */
    float rate;
} model;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add_bias(const float *bias, int rows, int n, int relu, float *x)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) {
            const float v = x[r * n + i] + bias[i];
            x[r * n + i] = relu && v < 0 ? 0 : v;
        }
}

static void sum_rows(const float *x, int rows, int n, float *sum)
{
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++)
            sum[i] += x[r * n + i];
}

/* Returns the mean loss, and replaces logits by the gradient of the mean. */
static float cross_entropy(const float *labels, int rows, int n, float *x)
{
    float loss = 0;
    for (int r = 0; r < rows; r++, x += n) {
        const int label = (int)labels[r];
        float most = x[0], sum = 0;
        for (int i = 1; i < n; i++)
            most = x[i] > most ? x[i] : most;
        loss += most - x[label];
        for (int i = 0; i < n; i++)
            sum += x[i] = expf(x[i] - most);
        loss += logf(sum);
        for (int i = 0; i < n; i++)
            x[i] = (x[i] / sum - (i == label)) / (float)rows;
    }
    return loss / (float)rows;
}

static void update(float *x, const float *gradient, int n, float rate)
{
    for (int i = 0; i < n; i++)
        x[i] -= rate * gradient[i];
}

static float step(const model *m, const float *x, const float *labels)
{
    const int rows = m->batch, in = m->in, hidden = m->hidden, out = m->out;
    m->sgemm(ROW_MAJOR, NO_TRANS, TRANS, rows, hidden, in, 1, x, in, m->w1, in, 0, m->hidden_x,
             hidden);
    add_bias(m->b1, rows, hidden, 1, m->hidden_x);
    m->sgemm(ROW_MAJOR, NO_TRANS, TRANS, rows, out, hidden, 1, m->hidden_x, hidden, m->w2, hidden,
             0, m->top, out);
    add_bias(m->b2, rows, out, 0, m->top);
    const float loss = cross_entropy(labels, rows, out, m->top);
    m->sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, rows, hidden, out, 1, m->top, out, m->w2, hidden, 0,
             m->d_hidden, hidden);
    m->sgemm(ROW_MAJOR, TRANS, NO_TRANS, out, hidden, rows, 1, m->top, out, m->hidden_x, hidden, 0,
             m->dw2, hidden);
    sum_rows(m->top, rows, out, m->db2);
    for (int i = 0; i < rows * hidden; i++)
        m->d_hidden[i] = m->hidden_x[i] > 0 ? m->d_hidden[i] : 0;
    m->sgemm(ROW_MAJOR, TRANS, NO_TRANS, hidden, in, rows, 1, m->d_hidden, hidden, x, in, 0, m->dw1,
             in);
    sum_rows(m->d_hidden, rows, hidden, m->db1);
    update(m->w1, m->dw1, hidden * in, m->rate);
    update(m->b1, m->db1, hidden, m->rate);
    update(m->w2, m->dw2, out * hidden, m->rate);
    update(m->b2, m->db2, out, m->rate);
    return loss;
}

/* Looks up a function. dlsym returns a data pointer, and ISO C cannot convert this to a function
 * pointer. */
static int find(void *handle, const char *name, void *function)
{
    void *symbol = dlsym(handle, name);
    memcpy(function, &symbol, sizeof symbol);
    return !symbol;
}

static int load_blas(const char *library, sgemm_fn **sgemm)
{
    void (*set_threads)(int);
    /* Older releases take slow kernels on processors that they do not know. */
#ifdef __AVX512F__
    setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
#elif defined __AVX2__
    setenv("OPENBLAS_CORETYPE", "Haswell", 0);
#endif
    void *handle = dlopen(library, RTLD_NOW);
    if (!handle || find(handle, "cblas_sgemm", sgemm) ||
        find(handle, "openblas_set_num_threads", &set_threads))
        return 1;
    set_threads(1);
    return 0;
}

static float *floats(int count)
{
    float *x = aligned_alloc(64, ((size_t)count * sizeof(float) + 63) / 64 * 64);
    if (!x) {
        fprintf(stderr, "mlp_openblas: no memory\n");
        exit(1);
    }
    return x;
}

static float *take(FILE *file, int count)
{
    float *x = floats(count);
    if (fread(x, sizeof *x, (size_t)count, file) != (size_t)count) {
        fprintf(stderr, "mlp_openblas: the file is too short\n");
        exit(1);
    }
    return x;
}

static void train(const model *m, const float *x, const float *labels, int samples, int steps,
                  int blocks)
{
    const int batches = samples / m->batch;
    for (int block = 0, s = 0; block <= blocks; block++) {
        const double begin = seconds();
        for (int i = 0; i < steps; i++, s++) {
            const int first = s % batches * m->batch;
            const float loss = step(m, x + (size_t)first * (size_t)m->in, labels + first);
            if (s < PRINTED)
                printf("loss %.9g\n", (double)loss);
        }
        if (block) /* the first one warms up */
            printf("step %.6g\n", (seconds() - begin) / steps);
    }
}

int main(int argc, char **argv)
{
    if (argc != 11) {
        fprintf(stderr, "usage: mlp_openblas LIBRARY FILE SAMPLES BATCH IN HIDDEN OUT RATE STEPS "
                        "BLOCKS\n");
        return 2;
    }
    model m = {.batch = atoi(argv[4]),
               .in = atoi(argv[5]),
               .hidden = atoi(argv[6]),
               .out = atoi(argv[7]),
               .rate = (float)atof(argv[8])};
    const int samples = atoi(argv[3]);
    FILE *file = fopen(argv[2], "rb");
    if (!file || load_blas(argv[1], &m.sgemm)) {
        fprintf(stderr, "mlp_openblas: cannot open %s\n", file ? argv[1] : argv[2]);
        return 1;
    }
    m.w1 = take(file, m.hidden * m.in);
    m.b1 = take(file, m.hidden);
    m.w2 = take(file, m.out * m.hidden);
    m.b2 = take(file, m.out);
    const float *x = take(file, samples * m.in), *labels = take(file, samples);
    fclose(file);
    m.dw1 = floats(m.hidden * m.in);
    m.db1 = floats(m.hidden);
    m.dw2 = floats(m.out * m.hidden);
    m.db2 = floats(m.out);
    m.hidden_x = floats(m.batch * m.hidden);
    m.top = floats(m.batch * m.out);
    m.d_hidden = floats(m.batch * m.hidden);
    train(&m, x, labels, samples, atoi(argv[9]), atoi(argv[10]));
    return 0;
}
