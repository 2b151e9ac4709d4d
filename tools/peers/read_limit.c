/*
 * Measures how fast all cores read memory: sums an array with one thread on each core. Independent
 * of cltrain. compare_decoding.py compiles and runs it.
 *
 *     cc -O3 -march=native -pthread read_limit.c -o read_limit
 *     read_limit BYTES THREADS ROUNDS     prints the bytes a second of each round
 *
 * Each thread reads one contiguous part as several streams, because processors fetch ahead for each
 * stream. A round is one pass over the array. The threads read the clock themselves: there is no
 * core left for another thread.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 256, MOST_ROUNDS = 1024, STREAMS = 8 };
#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif

typedef uint32_t vector __attribute__((vector_size(4 * LANES)));

typedef struct part {
    const vector *from;
    size_t count;
    int core, rounds;
    pthread_barrier_t *barrier;
    double begin[MOST_ROUNDS], end[MOST_ROUNDS];
    uint32_t sum;
} part;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint32_t sum_of(const vector *from, size_t count)
{
    vector sums[STREAMS] = {0};
    const size_t share = count / STREAMS;
    for (size_t i = 0; i < share; i++) {
#pragma GCC unroll 8
        for (int s = 0; s < STREAMS; s++)
            sums[s] += from[i + (size_t)s * share];
    }
    uint32_t all = 0;
    for (int s = 0; s < STREAMS; s++)
        for (int l = 0; l < LANES; l++)
            all += sums[s][l];
    return all;
}

static void *run(void *user)
{
    part *p = user;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(p->core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    for (int r = 0; r < p->rounds; r++) {
        pthread_barrier_wait(p->barrier);
        p->begin[r] = seconds();
        p->sum += sum_of(p->from, p->count);
        p->end[r] = seconds();
    }
    return NULL;
}

/* Returns the time from the first thread's begin to the last one's end. */
static double took(const part *parts, int threads, int round)
{
    double begin = parts[0].begin[round], end = parts[0].end[round];
    for (int i = 1; i < threads; i++) {
        begin = parts[i].begin[round] < begin ? parts[i].begin[round] : begin;
        end = parts[i].end[round] > end ? parts[i].end[round] : end;
    }
    return end - begin;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: read_limit BYTES THREADS ROUNDS\n");
        return 2;
    }
    const size_t bytes = strtoull(argv[1], NULL, 10);
    const int threads = atoi(argv[2]), rounds = atoi(argv[3]);
    if (threads < 1 || threads > MOST_THREADS || rounds < 1 || rounds > MOST_ROUNDS ||
        bytes < 1 << 20)
        return 2;
    const size_t whole = bytes / sizeof(vector) / (size_t)threads / STREAMS * STREAMS;
    vector *array =
        aligned_alloc(4096, (whole * (size_t)threads * sizeof(vector) + 4095) / 4096 * 4096);
    if (!array)
        return 1;
    memset(array, 1, whole * (size_t)threads * sizeof(vector));
    pthread_t ids[MOST_THREADS];
    static part parts[MOST_THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        parts[i] = (part){.from = array + (size_t)i * whole,
                          .count = whole,
                          .core = i,
                          .rounds = rounds,
                          .barrier = &barrier};
        if (pthread_create(&ids[i], NULL, run, &parts[i]))
            return 1;
    }
    uint32_t sum = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum += parts[i].sum;
    }
    for (int r = 0; r < rounds; r++)
        printf("%.6g\n",
               (double)(whole * (size_t)threads * sizeof(vector)) / took(parts, threads, r));
    free(array);
    return sum == 1; /* uses the sum, so that the compiler keeps the reads */
}
