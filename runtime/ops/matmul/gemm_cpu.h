/* How clkernels/matmul/cpu/gemm.cl and dot.cl divide a product. */
#ifndef CLT_OPS_MATMUL_GEMM_CPU_H
#define CLT_OPS_MATMUL_GEMM_CPU_H

/*
 * Estimates count vector multiplications; on most CPUs one takes half a cycle. The constants were
 * fitted to measured rates. They must order the choices correctly; absolute times do not matter.
 */
#define CLT_COST_OF_READING 0.2     /* first read of an element by a work-group, without packing */
#define CLT_COST_OF_GROUP 3000.0    /* a work-group */
#define CLT_COST_OF_WAKING 100000.0 /* waking another unit's thread between kernels */
#define CLT_COST_OF_LAUNCH 20000.0  /* one more kernel */

#include "ops/matmul/gemm.h"

/* A register tile of `rows` x `vectors` accumulators. It leaves registers for the vectors of B and
 * one value of A. */
typedef struct clt_gemm_tile {
    int rows, vectors;
} clt_gemm_tile;

typedef struct clt_gemm_division {
    int tile;              /* index of the register tile */
    int64_t rows, columns; /* size of a work-group: TM, TN */
    double cost;           /* estimate: vector multiplications of the busiest unit */
} clt_gemm_division;

/* The product and the device for which clt_gemm_divide chooses. */
typedef struct clt_gemm_work {
    int64_t pairs, m, n, k; /* at least 1 each */
    int64_t depth;          /* elements of K in one pass */
    bool trans_b, pack_a, pack_b;
    int width, units;     /* floats of a vector, compute units */
    int registers;        /* vectors that a core holds */
    int64_t most_columns; /* limit for a work-group */
    int64_t room;         /* columns of B that local memory holds */
    bool ahead;           /* tiles copy what later tiles of a work-group read of B */
    int64_t least_groups; /* wanted, if the product can be divided into so many */
} clt_gemm_work;

/* Returns the division with the least estimated time. `tiles` has `count` entries. `rows` and
 * `columns` request a work-group's size, which is rounded up to whole tiles as far as there is
 * room; 0 leaves the size free. */
clt_gemm_division clt_gemm_divide(const clt_gemm_work *work, const clt_gemm_tile *tiles, int count,
                                  int64_t rows, int64_t columns);

/* Returns how many vectors of the last panel are computed one at a time: those that the columns
 * fill, unless they fill all of it. */
int64_t clt_gemm_tail(const clt_gemm_work *work, clt_gemm_tile tile, int64_t columns);

/* Returns the register tiles for a device, best first, and writes their number to *count. */
const clt_gemm_tile *clt_gemm_cpu_tiles(const clt_caps *caps, int *count);

/* Returns a dimension at the plan's largest batch, at least 1. */
int64_t clt_gemm_size(int64_t dim, const clt_target *target);

/* Returns the estimate of clt_gemm_divide for the product with K divided into `slices`. */
double clt_gemm_cpu_cost(const clt_gemm *gemm, const clt_target *target, int64_t slices);

/* Writes the slices' products into scratch block `block`. With block -1 there is one slice, and the
 * result goes to the output. */
void clt_gemm_cpu_slices(const clt_gemm *gemm, const clt_target *target, int64_t slices, int block,
                         clt_program *program);

/* --- gemm_split.c --------------------------------------------------------------------------- */

/* Returns the next number of slices to try: 1, 2, 3, 4, 6, 8, 12, ... */
int64_t clt_gemm_next_slices(int64_t slices);

/* Returns the most slices to try: enough for all units, as long as K is long enough. */
int64_t clt_gemm_most_slices(const clt_gemm *gemm, const clt_target *target);

/* Returns the estimated cost of adding the slices; 0 for one slice. */
double clt_gemm_sum_cost(const clt_gemm *gemm, const clt_target *target, int64_t slices);

/* Adds a scratch block for the slices' products and returns its index. */
int clt_gemm_sum_block(const clt_gemm *gemm, const clt_target *target, int64_t slices,
                       clt_program *program);

/* out = activation(sum of the block's slices + bias). */
void clt_gemm_sum(const clt_gemm *gemm, const clt_target *target, int64_t slices, int block,
                  clt_program *program);

/* Returns the lower estimate of gemm_cpu and gemm_split. */
double clt_gemm_tiled_cost(const clt_gemm *gemm, const clt_target *target);

#endif
