/*
 * Iteration of a kernel over arrays of different strides: the sizes of the dimensions and each
 * array's stride along them. Sizes and strides are as in clt_type.dims: a negative number is a
 * multiple of the batch size.
 */
#ifndef CLT_OPS_CORE_STRIDED_H
#define CLT_OPS_CORE_STRIDED_H

#include "ops/core/launch.h"

enum { CLT_WALK_RANK = CLT_MAX_RANK + 1, CLT_WALK_ARRAYS = 5 };

typedef struct clt_strided {
    int rank, n_arrays;
    int lanes; /* not 0: a negative size counts blocks of so many samples */
    int64_t dims[CLT_WALK_RANK];
    int64_t strides[CLT_WALK_ARRAYS][CLT_WALK_RANK]; /* 0: broadcast along it */
} clt_strided;

/* Writes the strides of row-major order. */
void clt_row_major(int rank, const int64_t *dims, int64_t *strides);

/* Drops dimensions of size 1 and merges neighbours that are contiguous in every array. */
void clt_strided_merge(clt_strided *strided);

/* Returns whether the merged iteration passes through every array contiguously from end to end. */
bool clt_strided_flat(const clt_strided *strided);

/* Add `count` long arguments: the sizes, or one array's strides. The iteration's dimensions are the
 * last ones; those before have size 1 and stride 0. They fail the program if the iteration has more
 * than `count` dimensions. */
void clt_arg_strided_sizes(clt_program *program, const clt_strided *strided, int count);
void clt_arg_strided_strides(clt_program *program, const clt_strided *strided, int array,
                             int count);

#endif
