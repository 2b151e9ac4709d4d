/* What reservoirs keep and draw, computed in the plainest way: without the library. */
#ifndef TESTS_DATA_RESERVOIR_REFERENCE_H
#define TESTS_DATA_RESERVOIR_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* Philox4x32-10 (Salmon et al., SC 2011). Returns the first two numbers. */
static inline uint64_t reference_philox(uint64_t seed, uint32_t c0, uint32_t c1, uint32_t c2,
                                        uint32_t c3)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const uint64_t p = 0xD2511F53ull * c0, q = 0xCD9E8D57ull * c2;
        const uint32_t a = (uint32_t)(q >> 32) ^ c1 ^ k0, b = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)q;
        c3 = (uint32_t)p;
        c0 = a;
        c2 = b;
    }
    return (uint64_t)c0 << 32 | c1;
}

/* The random bits of the sample that is pushed as number `number`, 1 the first. */
static inline uint64_t reference_push_bits(uint64_t seed, int64_t number)
{
    return reference_philox(seed, (uint32_t)number, (uint32_t)(number >> 32) & 0xFF, 0, 7);
}

/* Of `n` possibilities the one that a step's position draws. The golden ratio's bits, once for each
 * 2^32 steps, make another seed. */
static inline int64_t reference_draw(uint64_t seed, int64_t step, int64_t position, int64_t n)
{
    __extension__ typedef unsigned __int128 wide;
    for (int64_t turn = step >> 32; turn > 0; turn--)
        seed += 11400714819323198485u;
    const uint64_t bits = reference_philox(seed, (uint32_t)position, 0, (uint32_t)step, 8);
    return (int64_t)(((wide)bits * (wide)n) >> 64);
}

/* kept[] becomes the numbers (from 0) of the samples that stay of `count` ones, by index. */
static inline void reference_uniform(uint64_t seed, int64_t capacity, int64_t count, int64_t *kept)
{
    __extension__ typedef unsigned __int128 wide;
    for (int64_t i = 0; i < count; i++) {
        const int64_t at =
            i < capacity
                ? i
                : (int64_t)(((wide)reference_push_bits(seed, i + 1) * (wide)(i + 1)) >> 64);
        if (at < capacity)
            kept[at] = i;
    }
}

static inline void reference_newest(int64_t capacity, int64_t count, int64_t *kept)
{
    for (int64_t i = 0; i < count; i++)
        kept[i % capacity] = i;
}

/* Keeps the largest u^(1/w), in the words of the paper: the next item replaces the one with the
 * smallest key if its own is larger. Returns how many stay. */
static inline int64_t reference_weighted(uint64_t seed, int64_t capacity, int64_t count,
                                         const double *weights, int64_t *kept)
{
    double *keys = malloc((size_t)capacity * sizeof *keys);
    int64_t have = 0;
    for (int64_t i = 0; i < count; i++) {
        const double u =
            ((double)(reference_push_bits(seed, i + 1) >> 11) + 0.5) / 9007199254740992.;
        if (weights[i] == 0)
            continue;
        const double key = log(u) / weights[i]; /* orders as u^(1/w) */
        int64_t at = have;
        if (have == capacity) {
            at = 0;
            for (int64_t k = 1; k < capacity; k++)
                at = keys[k] < keys[at] ? k : at;
            if (key <= keys[at])
                continue;
        } else {
            have++;
        }
        keys[at] = key;
        kept[at] = i;
    }
    free(keys);
    return have;
}

#endif
