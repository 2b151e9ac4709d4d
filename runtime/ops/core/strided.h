/*
 * How a kernel iterates over arrays of different strides: the dimensions it counts through, and for
 * each array the step that a dimension makes in it. Sizes and steps are as in clt_type.dims:
 * negative ones are times the batch.
 */
#ifndef CLT_OPS_CORE_STRIDED_H
#define CLT_OPS_CORE_STRIDED_H

#include "ops/core/launch.h"

enum { CLT_WALK_RANK = CLT_MAX_RANK + 1, CLT_WALK_ARRAYS = 5 };

typedef struct clt_strided {
    int rank, n_arrays;
    int lanes; /* not 0: a negative size counts groups of so many images */
    int64_t dims[CLT_WALK_RANK];
    int64_t strides[CLT_WALK_ARRAYS][CLT_WALK_RANK]; /* 0: the dimension is repeated */
} clt_strided;

/* Steps of row-major order. */
void clt_row_major(int rank, const int64_t *dims, int64_t *strides);

/* Drops dimensions of size 1 and joins neighbours along which every array goes on evenly. */
void clt_strided_merge(clt_strided *strided);

/* True if the merged iteration runs through every array from end to end. */
bool clt_strided_flat(const clt_strided *strided);

/* Emits `count` long sizes, or one array's steps: the iteration's dimensions are the last ones, and
 * those before have size 1 and step 0. Fails the program if the iteration has more dimensions. */
void clt_arg_strided_sizes(clt_program *program, const clt_strided *strided, int count);
void clt_arg_strided_strides(clt_program *program, const clt_strided *strided, int array,
                             int count);

#endif
