/* How clkernels/cpu/gemm.cl divides a product. */
#ifndef CLT_OPS_GEMM_CPU_H
#define CLT_OPS_GEMM_CPU_H

#include "ops/gemm.h"

/* Register tiles of `rows` x `vectors`, leaving registers for the vectors of B and one of A. */
typedef struct clt_gemm_tile {
    int rows, vectors;
} clt_gemm_tile;

typedef struct clt_gemm_division {
    int tile;              /* of those that fit the device's registers */
    int64_t rows, columns; /* of a work-group: TM, TN */
    double cost;           /* estimated: vector multiplications of the unit that has most to do */
} clt_gemm_division;

/* What the division is for. */
typedef struct clt_gemm_work {
    int64_t pairs, m, n, k; /* at least 1 each */
    int64_t depth;          /* of K at a time */
    bool trans_b, pack_a, pack_b;
    int width, units;     /* lanes of a vector, compute units */
    int64_t most_columns; /* of a work-group */
    int64_t least_groups; /* as far as the product can be cut into so many */
} clt_gemm_work;

/* The division that keeps the units busy shortest. `tile` has `count` entries; a work-group's size
 * may be given (then it is rounded up to whole tiles, as far as there is room), or 0. */
clt_gemm_division clt_gemm_divide(const clt_gemm_work *work, const clt_gemm_tile *tiles, int count,
                                  int64_t rows, int64_t columns);

#endif
