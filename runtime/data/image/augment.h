/* Random changes of samples. They are pure functions of the run's seed, the epoch and the sample's
 * number, so that every thread and every resumed run makes the same ones. */
#ifndef CLT_DATA_IMAGE_AUGMENT_H
#define CLT_DATA_IMAGE_AUGMENT_H

#include "data/core/dataset.h"

/* Returns 32 random bits: number `which` (0 to 3) of draw `draw`. */
uint32_t clt_augment_bits(const clt_sample_key *key, int64_t index, int draw, int which);

/* The draws. CLT_DRAW_PLACE gives a crop's place (number 0: down, 1: right) and the flip (2). The
 * tries of a resized crop are numbered from CLT_DRAW_RESIZED on. */
enum { CLT_DRAW_PLACE = 0, CLT_DRAW_RESIZED = 1 };

/* Maps random bits to a number from 0 to n - 1. */
static inline int64_t clt_augment_below(uint32_t bits, int64_t n)
{
    return (int64_t)((uint64_t)bits * (uint64_t)n >> 32);
}

bool clt_augment_flips(const clt_augment *a, const clt_sample_key *key, int64_t index);

/* Writes the augmented sample of a field of planes to `to`. */
void clt_augment_planes(const clt_data_field *f, const clt_sample_key *key, int64_t index,
                        const void *from, void *to);

/* Writes a description such as "crop of padding 4, flip", for people and for comparing runs. The
 * text is empty if nothing is changed. */
enum { CLT_AUGMENT_TEXT = 96 };
const char *clt_augment_text(const clt_augment *a, char text[CLT_AUGMENT_TEXT]);

#endif
