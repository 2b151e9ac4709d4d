/* Random changes of samples: pure functions of the run's seed, the epoch and the sample's number.
 */
#ifndef CLT_DATA_IMAGE_AUGMENT_H
#define CLT_DATA_IMAGE_AUGMENT_H

#include "data/core/dataset.h"

/* A random number of 32 bits: number `which` (0 to 3) of draw `draw`. */
uint32_t clt_augment_bits(const clt_sample_key *key, int64_t index, int draw, int which);

/* The draws: of a crop's place (numbers 0 and 1: down and right) and a flip (2), and from here on
 * of a resized crop's tries. */
enum { CLT_DRAW_PLACE = 0, CLT_DRAW_RESIZED = 1 };

/* One of 0 to n - 1. */
static inline int64_t clt_augment_below(uint32_t bits, int64_t n)
{
    return (int64_t)((uint64_t)bits * (uint64_t)n >> 32);
}

bool clt_augment_flips(const clt_augment *a, const clt_sample_key *key, int64_t index);

/* Writes the changed sample of a field of planes to `to`. */
void clt_augment_planes(const clt_data_field *f, const clt_sample_key *key, int64_t index,
                        const void *from, void *to);

/* "crop of padding 4, flip", for people and for comparing runs; "" where nothing is changed. */
enum { CLT_AUGMENT_TEXT = 96 };
const char *clt_augment_text(const clt_augment *a, char text[CLT_AUGMENT_TEXT]);

#endif
