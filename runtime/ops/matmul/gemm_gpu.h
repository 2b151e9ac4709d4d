/* Tiles of products on GPUs (clkernels/core/gpu/tile.clh), for gemm_gpu.c and conv2d_gpu.c. */
#ifndef CLT_OPS_MATMUL_GEMM_GPU_H
#define CLT_OPS_MATMUL_GEMM_GPU_H

#include "ops/core/activation.h"
#include "ops/core/launch.h"

typedef struct clt_gpu_tile {
    int rows, columns, depth;  /* TM, TN, TK */
    int own_rows, own_columns; /* RM, RN: of a work-item */
} clt_gpu_tile;

typedef struct clt_gpu_choice {
    clt_gpu_tile tile;
    int64_t slices; /* of the sums, added up by a second kernel */
} clt_gpu_choice;

int clt_gpu_tile_threads(const clt_gpu_tile *t);
bool clt_gpu_tile_fits(const clt_gpu_tile *t, const clt_caps *caps);

/* clt_variant.accepts: no CPU, and some tile fits. */
bool clt_gpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* For `batches` products [m, k] x [k, n]: what a tuner chose, or what promises to be fast. `taps`:
 * work-items remember where each of their columns lies, and large tiles have too few registers for
 * many. */
clt_gpu_choice clt_gpu_choose(int64_t m, int64_t n, int64_t k, int64_t batches, bool taps,
                              const clt_target *target);

/* clt_variant.tiles: number `index` of the alternatives. */
bool clt_gpu_tiles(const clt_node *node, const clt_target *target, int index, char *text);

/* out[m, n] = activation(sum over the slices of a scratch block + bias), operand or -1. Block -1:
 * of out itself, which is f32 then. */
void clt_gpu_sum(int bias, int out, clt_dtype type, int block, int64_t m, int64_t n, int64_t slices,
                 const clt_epilogue *epilogue, clt_program *program);

#endif
