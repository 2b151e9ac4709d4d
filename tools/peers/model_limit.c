/*
 * Measures what limits a training step, independent of cltrain. compare_limit.py compiles and runs
 * it.
 *
 *     cc -O3 -march=native -pthread model_limit.c -ldl -o model_limit
 *     model_limit THREADS LIBRARY ARRAYS [M N K TRANS COUNT]...
 *
 * Prints lines of a name and a number:
 *
 * - `flops`: multiply-adds in registers of all cores, 2 operations each, per second.
 * - `update`: bytes per second that an optimizer moves. It reads and writes ARRAYS arrays and reads
 *   one more, the gradient. Arrays are much larger than the caches.
 * - `products`: seconds that LIBRARY, an OpenBLAS, takes for COUNT products of each size, warm.
 *   A's rows are M and B's columns N; TRANS is two letters, N or T.
 *
 * Each number is the best of several attempts, because other programs only make it worse.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 256, CHAINS = 12, ROUNDS = 2000000, ATTEMPTS = 5, MOST_ARRAYS = 3 };
enum { FLOATS = 8 << 20 }; /* of an array of `update` */
#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
#define BLAS_SECONDS 0.05 /* least time of an attempt */

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef void sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                      int lda, const float *b, int ldb, float beta, float *c, int ldc);

typedef struct part {
    int core, threads, arrays;
    pthread_barrier_t *barrier;
    float *data[MOST_ARRAYS + 1];
    double begin[2 * ATTEMPTS], end[2 * ATTEMPTS];
    vector sum;
} part;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void multiply_add(part *p)
{
    vector x[CHAINS], a, b;
    for (int l = 0; l < LANES; l++) {
        a[l] = 0.5f + 1e-9f * (float)p->core;
        b[l] = 1;
    }
    for (int c = 0; c < CHAINS; c++)
        x[c] = b * (float)c;
    for (int r = 0; r < ROUNDS; r++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            x[c] = x[c] * a + b;
        __asm__ volatile("" ::: "memory");
    }
    for (int c = 0; c < CHAINS; c++)
        p->sum += x[c];
}

static void update(part *p)
{
    const size_t share = FLOATS / (size_t)p->threads / LANES * LANES,
                 from = share * (size_t)p->core;
    const vector *g = (const vector *)(p->data[0] + from);
    vector *x = (vector *)(p->data[1] + from), *m = (vector *)(p->data[2] + from),
           *v = (vector *)(p->data[3] + from);
    for (size_t i = 0; i < share / LANES; i++) {
        if (p->arrays > 1)
            m[i] = 0.9f * m[i] + 0.1f * g[i];
        if (p->arrays > 2)
            v[i] = 0.9f * v[i] + 0.1f * (g[i] * g[i]);
        x[i] -= 1e-3f * (p->arrays > 1 ? m[i] : g[i]);
    }
}

static void *run(void *user)
{
    part *p = user;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(p->core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    for (int attempt = 0; attempt < 2 * ATTEMPTS; attempt++) {
        pthread_barrier_wait(p->barrier);
        p->begin[attempt] = seconds();
        if (attempt < ATTEMPTS)
            multiply_add(p);
        else
            update(p);
        p->end[attempt] = seconds();
    }
    return NULL;
}

/* Returns the time from the first thread's begin to the last one's end. */
static double took(const part *parts, int threads, int attempt)
{
    double begin = parts[0].begin[attempt], end = parts[0].end[attempt];
    for (int i = 1; i < threads; i++) {
        begin = parts[i].begin[attempt] < begin ? parts[i].begin[attempt] : begin;
        end = parts[i].end[attempt] > end ? parts[i].end[attempt] : end;
    }
    return end - begin;
}

/* Measures both rates with a thread on each core. The threads read the clock themselves: there is
 * no core left for another thread. */
static int measure_rates(int threads, int arrays)
{
    pthread_t ids[MOST_THREADS];
    static part parts[MOST_THREADS];
    pthread_barrier_t barrier;
    float *data[MOST_ARRAYS + 1];
    for (int i = 0; i <= MOST_ARRAYS; i++) {
        data[i] = aligned_alloc(4096, FLOATS * sizeof(float));
        if (!data[i])
            return 1;
        for (size_t j = 0; j < FLOATS; j++)
            data[i][j] = 1;
    }
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        parts[i] = (part){.core = i, .threads = threads, .arrays = arrays, .barrier = &barrier};
        memcpy(parts[i].data, data, sizeof data);
        if (pthread_create(&ids[i], NULL, run, &parts[i]))
            return 1;
    }
    float sum = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum += parts[i].sum[0];
    }
    double least[2] = {1e30, 1e30};
    for (int attempt = 0; attempt < 2 * ATTEMPTS; attempt++) {
        double *best = &least[attempt / ATTEMPTS];
        const double now = took(parts, threads, attempt);
        *best = now < *best ? now : *best;
    }
    for (int i = 0; i <= MOST_ARRAYS; i++)
        free(data[i]);
    printf("flops %.6g\n", 2.0 * LANES * CHAINS * ROUNDS * threads / least[0]);
    printf("update %.6g\n", (2.0 * arrays + 1) * sizeof(float) * FLOATS / least[1]);
    return sum == 0; /* uses the sum, so that the compiler keeps the chains */
}

/* Returns the least time of one product. */
static double product_seconds(sgemm_fn *sgemm, const int size[3], const char *trans, const float *a,
                              const float *b, float *c)
{
    enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
    const int m = size[0], n = size[1], k = size[2];
    const int ta = trans[0] == 'T', tb = trans[1] == 'T';
    double least = 1e30;
    int calls = 1;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        const double begin = seconds();
        for (int i = 0; i < calls; i++)
            sgemm(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, m, n, k, 1, a,
                  ta ? m : k, b, tb ? k : n, 0, c, n);
        const double took = (seconds() - begin) / calls;
        if (attempt && took < least) /* the first attempt warms up */
            least = took;
        if (took < BLAS_SECONDS)
            calls = (int)(BLAS_SECONDS / took) + 1;
    }
    return least;
}

static float *numbers(size_t count)
{
    float *x = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    for (size_t i = 0; x && i < count; i++)
        x[i] = (float)(i % 17) - 8;
    return x;
}

/* Looks up a function. dlsym returns a data pointer, and ISO C cannot convert this to a function
 * pointer. */
static int find(void *handle, const char *name, void *function)
{
    void *symbol = dlsym(handle, name);
    memcpy(function, &symbol, sizeof symbol);
    return !symbol;
}

static int measure_products(int threads, const char *library, int count, char **list)
{
    sgemm_fn *sgemm;
    void (*set_threads)(int);
    char *(*core)(void);
    /* Older releases take slow kernels on processors that they do not know. */
    setenv("OPENBLAS_CORETYPE", LANES == 16 ? "SkylakeX" : "Haswell", 0);
    void *handle = dlopen(library, RTLD_NOW);
    if (!handle || find(handle, "cblas_sgemm", &sgemm) ||
        find(handle, "openblas_set_num_threads", &set_threads) ||
        find(handle, "openblas_get_corename", &core)) {
        fprintf(stderr, "model_limit: %s is no OpenBLAS\n", library);
        return 1;
    }
    set_threads(threads);
    double all = 0;
    for (int i = 0; i + 5 <= count; i += 5) {
        const int size[] = {atoi(list[i]), atoi(list[i + 1]), atoi(list[i + 2])};
        const size_t m = (size_t)size[0], n = (size_t)size[1], k = (size_t)size[2];
        float *a = numbers(m * k), *b = numbers(k * n), *c = numbers(m * n);
        if (!a || !b || !c)
            return 1;
        all += atof(list[i + 4]) * product_seconds(sgemm, size, list[i + 3], a, b, c);
        free(a);
        free(b);
        free(c);
    }
    printf("products %.6g %s\n", all, core());
    return 0;
}

int main(int argc, char **argv)
{
    const int threads = argc > 3 ? atoi(argv[1]) : 0, arrays = argc > 3 ? atoi(argv[3]) : 0;
    if (threads < 1 || threads > MOST_THREADS || arrays < 1 || arrays > MOST_ARRAYS) {
        fprintf(stderr, "usage: model_limit THREADS LIBRARY ARRAYS [M N K TRANS COUNT]...\n");
        return 2;
    }
    if (measure_rates(threads, arrays))
        return 1;
    return argc > 4 ? measure_products(threads, argv[2], argc - 4, argv + 4) : 0;
}
