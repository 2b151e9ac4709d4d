/* Reads time, and finds the median of measured times. */
#ifndef CLT_BASE_CLOCK_H
#define CLT_BASE_CLOCK_H

#include <stdlib.h>
#include <time.h>

static inline double clt_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int clt_clock_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts times[] and returns the median; of an even number, the lower one. */
static inline double clt_clock_median(double *times, int count)
{
    qsort(times, (size_t)count, sizeof *times, clt_clock_compare);
    return times[(count - 1) / 2];
}

#endif
