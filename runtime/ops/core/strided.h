/*
 * How a kernel walks over arrays of different strides: the dimensions it counts through, and for
 * each array the step that a dimension makes in it. Sizes and steps are as in clt_type.dims:
 * negative ones are times the batch.
 */
#ifndef CLT_OPS_CORE_STRIDED_H
#define CLT_OPS_CORE_STRIDED_H

#include "ops/core/launch.h"

enum { CLT_WALK_RANK = CLT_MAX_RANK + 1, CLT_WALK_ARRAYS = 5 };

typedef struct clt_walk {
    int rank, n_arrays;
    int lanes; /* not 0: a negative size counts groups of so many images */
    int64_t dims[CLT_WALK_RANK];
    int64_t strides[CLT_WALK_ARRAYS][CLT_WALK_RANK]; /* 0: the dimension is repeated */
} clt_walk;

/* Steps of row-major order. */
void clt_row_major(int rank, const int64_t *dims, int64_t *strides);

/* Drops dimensions of size 1 and joins neighbours along which every array goes on evenly. */
void clt_walk_merge(clt_walk *walk);

/* True if the merged walk runs through every array from end to end. */
bool clt_walk_flat(const clt_walk *walk);

/* Emits `count` long sizes, or one array's steps: the walk's dimensions are the last ones, and
 * those before have size 1 and step 0. Fails the program if the walk has more dimensions. */
void clt_arg_walk_sizes(clt_program *program, const clt_walk *walk, int count);
void clt_arg_walk_strides(clt_program *program, const clt_walk *walk, int array, int count);

#endif
