/*
 * Bandwidth of the local all-reduce: bench_allreduce [DEVICES [THREADS]]
 *
 * Timed from after each device's buffer was filled to the end of the uploads, one host thread a
 * device, median of several calls. GB/s are bytes of one buffer by time. "limit" is plain C in two
 * threads that reads two arrays and writes both, measured before and after.
 */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "comm/fixture.h"

enum { RUNS = 15, LIMIT_BYTES = 64 << 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct limit_part {
    float *a, *b;
    size_t n;
    int repeat;
} limit_part;

static void *limit_thread(void *arg)
{
    limit_part *p = arg;
    float *a = p->a, *b = p->b;
    for (int k = 0; k < p->repeat; k++) {
        /* Strips of constant length, which GCC's -O2 vectorises. */
        for (size_t i = 0; i + 64 <= p->n; i += 64) {
            float sum[64];
            for (int j = 0; j < 64; j++)
                sum[j] = a[i + (size_t)j] + b[i + (size_t)j];
            memcpy(a + i, sum, sizeof sum);
            memcpy(b + i, sum, sizeof sum);
        }
    }
    return NULL;
}

static double limit(size_t bytes, int threads)
{
    size_t n = bytes / sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes);
    double times[RUNS];
    if (!a || !b)
        abort();
    memset(a, 0, bytes);
    memset(b, 0, bytes);
    int repeat = (int)(LIMIT_BYTES / bytes) < 1 ? 1 : (int)(LIMIT_BYTES / bytes);
    repeat = repeat > 64 ? 64 : repeat;
    for (int run = 0; run < RUNS; run++) {
        double begin = now();
        pthread_t other;
        size_t half = threads > 1 ? n / 2 : n;
        limit_part parts[2] = {{a, b, half, repeat}, {a + half, b + half, n - half, repeat}};
        if (threads > 1)
            pthread_create(&other, NULL, limit_thread, &parts[1]);
        limit_thread(&parts[0]);
        if (threads > 1)
            pthread_join(other, NULL);
        times[run] = (now() - begin) / repeat;
    }
    qsort(times, RUNS, sizeof *times, by_value);
    free(a);
    free(b);
    return (double)bytes / times[RUNS / 2] * 1e-9;
}

typedef struct worker {
    const fixture *f;
    clt_comm *comm;
    pthread_barrier_t *barrier;
    int device, calls, flags, runs;
    size_t bytes;
    cl_mem mem;
    double *times; /* per run, seconds a call */
} worker;

static void must(clt_status status)
{
    if (status == CLT_OK)
        return;
    fprintf(stderr, "bench_allreduce: %s\n", clt_error_message());
    exit(1);
}

static void *work(void *arg)
{
    worker *w = arg;
    const float one = 1.0f;
    clt_comm_op op;
    clt_comm_op_init(&op);
    op.mem = w->mem;
    op.flags = w->flags;
    op.count = (int64_t)(w->bytes / sizeof(float));
    for (int run = 0; run < w->runs; run++) {
        FIXTURE_CL(clEnqueueFillBuffer(w->f->queues[w->device], w->mem, &one, sizeof one, 0,
                                       w->bytes, 0, NULL, NULL));
        FIXTURE_CL(clFinish(w->f->queues[w->device]));
        pthread_barrier_wait(w->barrier);
        double begin = now();
        for (int k = 0; k < w->calls; k++) {
            clt_comm_request *request;
            must(clt_comm_start(w->comm, w->device, -1, &op, 0, NULL, &request));
            must(clt_comm_complete(request, w->device, NULL, NULL));
        }
        FIXTURE_CL(clFinish(w->f->queues[w->device]));
        pthread_barrier_wait(w->barrier);
        w->times[run] = (now() - begin) / w->calls;
    }
    return NULL;
}

static double measure(const fixture *f, clt_comm_path path, int threads, int flags, size_t bytes)
{
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.path = path;
    options.threads = threads;
    clt_comm *comm;
    must(fixture_comm(f, &options, &comm));
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)f->count);
    pthread_t ids[FIXTURE_MAX];
    worker workers[FIXTURE_MAX];
    double times[FIXTURE_MAX][RUNS];
    for (int i = 0; i < f->count; i++) {
        workers[i] = (worker){f,     comm, &barrier, i,    bytes > (8 << 20) ? 2 : 20,
                              flags, RUNS, bytes,    NULL, times[i]};
        workers[i].mem = fixture_buffer(f, i, bytes);
        pthread_create(&ids[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < f->count; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < f->count; i++)
        clReleaseMemObject(workers[i].mem);
    clt_comm_destroy(comm);
    pthread_barrier_destroy(&barrier);
    qsort(times[0], RUNS, sizeof(double), by_value);
    return (double)bytes / times[0][RUNS / 2] * 1e-9;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 2;
    int only = argc > 2 ? atoi(argv[2]) : 0;
    if (count < 1 || count > FIXTURE_MAX || only < 0) {
        fprintf(stderr, "usage: bench_allreduce [DEVICES 1-%d [THREADS]]\n", FIXTURE_MAX);
        return 2;
    }
    fixture f;
    fixture_open(&f, count, false, false);
    printf("%d devices%s, f32 sum, GB/s of one buffer\n", count,
           f.split ? ", one core each" : ", the whole device each");
    printf("%10s %8s %9s %9s %9s %9s %9s %9s\n", "bytes", "threads", "mapped", "measured", "staged",
           "limit x1", "limit x2", "of limit");
    for (size_t bytes = 64 << 10; bytes <= 64 << 20; bytes *= 4) {
        for (int threads = only ? only : 1; threads <= (only ? only : 2); threads++) {
            double one = limit(bytes, 1), before = limit(bytes, 2);
            double mapped = measure(&f, CLT_COMM_PATH_MAPPED, threads, 0, bytes);
            double measured = measure(&f, CLT_COMM_PATH_MAPPED, threads, CLT_COMM_MEASURE, bytes);
            double staged = measure(&f, CLT_COMM_PATH_STAGED, threads, 0, bytes);
            double two = (before + limit(bytes, 2)) / 2;
            printf("%10zu %8d %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f\n", bytes, threads, mapped,
                   measured, staged, one, two, mapped / two);
        }
    }
    fixture_close(&f);
    return 0;
}
