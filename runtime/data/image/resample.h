/* The inner loops of resampling: a portable method and one with AVX2, with the same results. */
#ifndef CLT_DATA_IMAGE_RESAMPLE_H
#define CLT_DATA_IMAGE_RESAMPLE_H

#include <stdint.h>

#include "data/image/image.h"

/* Precision of the weights. Their sum is 1 << CLT_RESAMPLE_BITS. */
enum { CLT_RESAMPLE_BITS = 22 };

/* A group of weights has those of four inputs. Each is split into two parts, so that 16-bit
 * products have all its bits: first the parts above CLT_RESAMPLE_LOW bits, then those below. */
enum { CLT_RESAMPLE_GROUP = 4, CLT_RESAMPLE_LOW = 11 };

/* For each output pixel: where its inputs begin, how many they are, and their weights in an array
 * of `taps` a pixel. */
typedef struct clt_resample_axis {
    int *begin, *count;
    int32_t *weights;
    int taps;
    /* The same weights for vectors, if `parts` is not NULL: every output has `groups` groups, whose
     * inputs begin at group_begin. They are within the row, unless it has fewer inputs than the
     * groups. */
    int *group_begin;
    int16_t *parts;
    int groups;
} clt_resample_axis;

typedef struct clt_resample_method {
    const char *name;
    bool groups; /* along_row needs the groups of weights */
    /* Computes `columns` outputs of a row of colours: all reds, then all greens, then all blues.
     * May read CLT_IMAGE_BEHIND bytes after the row's last colour. */
    void (*along_row)(const unsigned char *from, const clt_resample_axis *axis, int columns,
                      unsigned char *to);
    /* Computes the weighted sum of `count` rows of `bytes`. */
    void (*along_columns)(const unsigned char *from, size_t bytes, const int32_t *weights,
                          int count, unsigned char *to);
} clt_resample_method;

/* Returns the method number `index` that the processor supports, slower ones first; NULL after the
 * last. */
const clt_resample_method *clt_resample_methods(int index);

/* Returns the method in use: the fastest, unless a test has set another one with
 * clt_resample_prefer (NULL: the fastest again). */
const clt_resample_method *clt_resample_choose(void);
void clt_resample_prefer(const clt_resample_method *method);

#endif
