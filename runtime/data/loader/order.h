/*
 * The order of samples in an epoch is a keyed bijection of [0, n). No table of n numbers is kept,
 * every thread computes just the positions it needs, and a run resumes anywhere at no cost.
 *
 * Method: the generalised Feistel cipher of Black and Rogaway, "Ciphers with arbitrary finite
 * domains", CT-RSA 2002. Let a = ceil(sqrt(n)) and b = ceil(n / a). A number x below a * b is the
 * pair (x mod a, x / a). Each round adds a keyed hash of one half to the other. Results of n or
 * more are encrypted again until they are below n; there are few, since a * b - n < a. The round
 * keys are Philox numbers of (seed, CLT_STREAM_SHUFFLE, epoch).
 *
 * Draws with weights: position p takes the first sample whose running sum of weights exceeds u
 * times the sum of all. u has 53 bits of the Philox numbers of (seed, CLT_STREAM_DRAWS, epoch, p).
 */
#ifndef CLT_DATA_LOADER_ORDER_H
#define CLT_DATA_LOADER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "data/core/dataset.h"

enum { CLT_ORDER_ROUNDS = 16 };

typedef struct clt_order {
    uint64_t total, a, b;
    bool shuffle;
    uint64_t keys[CLT_ORDER_ROUNDS];
    /* With weights of samples: positions draw from these sums (clt_dataset.drawn) instead. */
    const double *drawn;
    int64_t seed, epoch;
} clt_order;

/* Sets up the order of one epoch. Cheap, and allocates nothing. `total` is at least 1. */
void clt_order_init(clt_order *order, int64_t total, int64_t seed, int64_t epoch, bool shuffle);

/* The same for a data set, whose samples may have weights: then an order with `shuffle` draws with
 * replacement. */
void clt_order_of(clt_order *order, const clt_dataset *dataset, int64_t seed, int64_t epoch,
                  bool shuffle);

/* Writes the sample numbers of positions [begin, begin + count), all below `total`. */
void clt_order_fill(const clt_order *order, int64_t begin, int64_t count, int64_t *indices);

#endif
