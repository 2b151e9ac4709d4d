/* The inner loops of resampling, of which there are two ways with the same results. */
#ifndef CLT_DATA_IMAGE_RESAMPLE_H
#define CLT_DATA_IMAGE_RESAMPLE_H

#include <stdint.h>

#include "data/image/image.h"

/* Of the weights, whose sum is 1 << CLT_RESAMPLE_BITS. */
enum { CLT_RESAMPLE_BITS = 22 };

/* Where an output pixel's inputs begin, how many they are, and their weights in an array of `taps`
 * a pixel; behind an odd number of them another one is 0. */
typedef struct clt_resample_axis {
    int *begin, *count;
    int32_t *weights;
    int taps;
} clt_resample_axis;

typedef struct clt_resample_way {
    const char *name;
    /* `columns` outputs of a row of colours: all reds, then all greens, then all blues. May read 8
     * bytes behind the row's last colour. */
    void (*along_row)(const unsigned char *from, const clt_resample_axis *axis, int columns,
                      unsigned char *to);
    /* The sum of `count` rows of `bytes`. */
    void (*along_columns)(const unsigned char *from, size_t bytes, const int32_t *weights,
                          int count, unsigned char *to);
} clt_resample_way;

/* Those that the processor can go, the fastest one last; NULL behind it. */
const clt_resample_way *clt_resample_ways(int index);

/* The one that is taken: the fastest, or, for tests, what clt_resample_prefer said last (NULL: the
 * fastest). */
const clt_resample_way *clt_resample_choose(void);
void clt_resample_prefer(const clt_resample_way *way);

#endif
