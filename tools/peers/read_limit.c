/*
 * Measures how fast all cores read memory: sums an array with one thread on each core. Independent
 * of cltrain. compare_decoding.py compiles and runs it.
 *
 *     cc -O3 -march=native -pthread read_limit.c -o read_limit
 *     read_limit BYTES THREADS ROUNDS     prints the bytes a second of each round
 *
 * Each thread reads one contiguous part, as several streams of neighbouring lines. A round is one
 * pass over the array.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 256, STREAMS = 8, LANES = 16 };

typedef uint32_t vector __attribute__((vector_size(4 * LANES)));

typedef struct part {
    const vector *from;
    size_t count;
    int core, rounds;
    pthread_barrier_t *barrier;
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
    for (size_t i = 0; i + STREAMS <= count; i += STREAMS)
        for (int s = 0; s < STREAMS; s++)
            sums[s] += from[i + (size_t)s];
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
        p->sum += sum_of(p->from, p->count);
        pthread_barrier_wait(p->barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: read_limit BYTES THREADS ROUNDS\n");
        return 2;
    }
    const size_t bytes = strtoull(argv[1], NULL, 10);
    const int threads = atoi(argv[2]), rounds = atoi(argv[3]);
    if (threads < 1 || threads > MOST_THREADS || rounds < 1 || bytes < 1024)
        return 2;
    const size_t whole = bytes / sizeof(vector) / (size_t)threads / STREAMS * STREAMS;
    vector *array =
        aligned_alloc(4096, (whole * (size_t)threads * sizeof(vector) + 4095) / 4096 * 4096);
    if (!array)
        return 1;
    memset(array, 1, whole * (size_t)threads * sizeof(vector));
    pthread_t ids[MOST_THREADS];
    part parts[MOST_THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        parts[i] = (part){array + (size_t)i * whole, whole, i, rounds, &barrier, 0};
        if (pthread_create(&ids[i], NULL, run, &parts[i]))
            return 1;
    }
    for (int r = 0; r < rounds; r++) {
        pthread_barrier_wait(&barrier);
        const double begin = seconds();
        pthread_barrier_wait(&barrier);
        const double took = seconds() - begin;
        printf("%.6g\n", (double)(whole * (size_t)threads * sizeof(vector)) / took);
    }
    uint32_t sum = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum += parts[i].sum;
    }
    free(array);
    return sum == 1; /* uses the sum, so that the compiler keeps the reads */
}
