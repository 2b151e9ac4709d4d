/* How clkernels/matmul/cpu/gemm.cl and dot.cl divide a product. */
#ifndef CLT_OPS_MATMUL_GEMM_CPU_H
#define CLT_OPS_MATMUL_GEMM_CPU_H

/*
 * The unit of estimates is one vector multiplication (on most CPUs half a cycle). Constants were
 * fitted to measured rates; what they must get right is the order.
 */
#define CLT_COST_OF_READING 0.2     /* an element, first read by a work-group where it lies */
#define CLT_COST_OF_GROUP 3000.0    /* a work-group */
#define CLT_COST_OF_WAKING 100000.0 /* another unit's thread, asleep between kernels */
#define CLT_COST_OF_LAUNCH 20000.0  /* one more kernel */

#include "ops/matmul/gemm.h"

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

/* The register tiles for a device, best first; `count` of them. */
const clt_gemm_tile *clt_gemm_cpu_tiles(const clt_caps *caps, int *count);

/* A dimension at the plan's largest batch, at least 1. */
int64_t clt_gemm_size(int64_t dim, const clt_target *target);

/* What clt_gemm_divide estimates for the product with its K in so many slices. */
double clt_gemm_cpu_cost(const clt_gemm *gemm, const clt_target *target, int64_t slices);

/* The slices' products into scratch `block`; -1: one slice, into the output. */
void clt_gemm_cpu_slices(const clt_gemm *gemm, const clt_target *target, int64_t slices, int block,
                         clt_program *program);

/* --- gemm_split.c --------------------------------------------------------------------------- */

/* The next number of slices that is worth a try: 1, 2, 3, 4, 6, 8, 12, ... */
int64_t clt_gemm_next_slices(int64_t slices);

/* The most that are: for all units to have some, as far as K is long enough. */
int64_t clt_gemm_most_slices(const clt_gemm *gemm, const clt_target *target);

/* What adding the slices costs; 0 for one. */
double clt_gemm_sum_cost(const clt_gemm *gemm, const clt_target *target, int64_t slices);

/* A scratch block for the slices' products. */
int clt_gemm_sum_block(const clt_gemm *gemm, const clt_target *target, int64_t slices,
                       clt_program *program);

/* out = activation(sum of the block's slices + bias). */
void clt_gemm_sum(const clt_gemm *gemm, const clt_target *target, int64_t slices, int block,
                  clt_program *program);

/* The cheapest of gemm_cpu and gemm_split. */
double clt_gemm_tiled_cost(const clt_gemm *gemm, const clt_target *target);

#endif
