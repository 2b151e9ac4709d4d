/* Tiles of products on GPUs (clkernels/core/gpu/tile.clh), for gemm_gpu.c and conv2d_gpu.c. */
#ifndef CLT_OPS_MATMUL_GEMM_GPU_H
#define CLT_OPS_MATMUL_GEMM_GPU_H

#include "ops/core/activation.h"
#include "ops/core/launch.h"

typedef struct clt_gpu_tile {
    int rows, columns, depth;  /* TM, TN, TK */
    int own_rows, own_columns; /* RM, RN: elements of a work-item */
} clt_gpu_tile;

typedef struct clt_gpu_choice {
    clt_gpu_tile tile;
    int64_t slices; /* slices of K, which a second kernel adds */
} clt_gpu_choice;

int clt_gpu_tile_threads(const clt_gpu_tile *t);

/* For clt_variant.accepts: requires a device other than a CPU, the plain layout, and a tile that
 * fits. */
bool clt_gpu_accepts(const clt_node *node, const clt_target *target, char *why);

/* Chooses the tile and slices for `batches` products [m, k] x [k, n]: the tuner's choice, or the
 * one with the least estimated time. `taps`: work-items store the position of each of their
 * columns, and large tiles leave registers for few columns only. */
clt_gpu_choice clt_gpu_choose(int64_t m, int64_t n, int64_t k, int64_t batches, bool taps,
                              const clt_target *target);

/* For clt_variant.tiles: writes alternative number `index`. */
bool clt_gpu_tiles(const clt_node *node, const clt_target *target, int index, char *text);

/* out[m, n] = activation(sum over the slices of a scratch block + bias). `bias` is the index of an
 * operand, or -1. With block -1 it updates `out` itself, which must be f32. */
void clt_gpu_sum(int bias, int out, clt_dtype type, int block, int64_t m, int64_t n, int64_t slices,
                 const clt_epilogue *epilogue, clt_program *program);

#endif
