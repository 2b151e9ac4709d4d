/*
 * Philox4x32-10, a counter-based random number generator. The numbers are a pure function of a
 * 128-bit counter and a 64-bit key, so any thread or device computes its own part. Source: Salmon,
 * Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A test compares it
 * with the OpenCL version, clkernels/core/philox.clh.
 */
#ifndef CLT_BASE_PHILOX_H
#define CLT_BASE_PHILOX_H

#include <stdint.h>

/* The purpose of a stream of numbers. It is part of the counter, so that streams never overlap. */
typedef enum clt_stream {
    CLT_STREAM_INIT = 1,    /* initial values; sub = index of the parameter */
    CLT_STREAM_SHUFFLE = 2, /* permutation of the data; step = epoch */
    CLT_STREAM_DROPOUT = 3, /* sub = node's stream number */
    CLT_STREAM_AUGMENT = 4,
    CLT_STREAM_WINDOWS = 5,       /* windows of text; step = epoch */
    CLT_STREAM_DRAWS = 6,         /* samples with weights; step = epoch, element = position */
    CLT_STREAM_RESERVOIR = 7,     /* which samples stay; block = number of the sample */
    CLT_STREAM_RESERVOIR_DRAW = 8 /* samples of batches; block = position, sub = attempt */
} clt_stream;

/* Four 32-bit numbers for one counter value and key. */
void clt_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Returns a number in [0, 1) with 24 bits, as the kernels compute it. */
static inline float clt_philox_unit(uint32_t bits)
{
    return (float)(bits >> 8) * (1.0f / 16777216.0f);
}

/*
 * Computes random numbers as the whole project does: key = seed; counter = (element low, element
 * high with `sub` mixed in, step, stream). Elements are numbered over the whole batch or tensor,
 * however it is divided. Writes the numbers of elements 4 * block .. 4 * block + 3.
 */
void clt_random4(uint64_t seed, clt_stream stream, uint32_t sub, uint32_t step, uint64_t block,
                 uint32_t out[4]);

/* Returns the seed for numbers of a step or epoch, of which clt_random4 takes the low 32 bits.
 * Before 2^32 it is `seed`. Later steps get other seeds, so that no step repeats another. */
static inline uint64_t clt_random_seed(uint64_t seed, int64_t step)
{
    return seed + ((uint64_t)step >> 32) * 0x9E3779B97F4A7C15u;
}

#endif
