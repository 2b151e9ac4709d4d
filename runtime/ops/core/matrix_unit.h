/* Matrix units of GPUs (clkernels/core/gpu/matrix_unit.clh), for the variants that use them. */
#ifndef CLT_OPS_CORE_MATRIX_UNIT_H
#define CLT_OPS_CORE_MATRIX_UNIT_H

#include "ops/core/launch.h"

/* UNIT_LANES, and the sizes of the matrices that one instruction multiplies: m x k by k x n. */
typedef struct clt_matrix_shape {
    int lanes, m, n, k;
} clt_matrix_shape;

/* Requires a device with a matrix unit. */
clt_matrix_shape clt_matrix_shape_of(const clt_caps *caps);

/* For clt_variant.accepts: requires the plain layout and a device with a matrix unit for `type`,
 * which is the 16-bit type of the node's operands, or f32 if they have none. */
bool clt_matrix_accepts(const clt_node *node, clt_dtype type, const clt_target *target, char *why);

/* Whether --variant or a test asks for the variant with this `emit`. Then small shapes are accepted
 * too. */
bool clt_matrix_is_asked_for(const clt_node *node, const clt_target *target,
                             void (*emit)(const clt_node *, const clt_target *, clt_program *));

/* Writes the options that select the unit and its type, and returns `text`. */
enum { CLT_MATRIX_OPTIONS = 64 };
const char *clt_matrix_options(const clt_caps *caps, clt_dtype type, char *text);

/* A tile of clkernels/core/gpu/matrix_tile.clh: TM, TN, TK, DOWN, ACROSS. */
typedef struct clt_matrix_tile {
    int rows, columns, depth, down, across;
} clt_matrix_tile;

typedef struct clt_matrix_choice {
    clt_matrix_tile tile;
    int64_t slices; /* slices of K, which a second kernel adds */
} clt_matrix_choice;

int clt_matrix_tile_threads(const clt_matrix_tile *t, const clt_caps *caps);

/* How work-items load elements: eight at a time, one at a time, or one at a time from places that
 * they compute, as convolutions do. */
typedef enum clt_matrix_loads {
    CLT_LOADS_VECTORS,
    CLT_LOADS_SINGLE,
    CLT_LOADS_GATHERED
} clt_matrix_loads;

/* Whether any tile fits the device. */
bool clt_matrix_tile_exists(const clt_caps *caps, clt_matrix_loads loads);

/* Chooses the tile and slices for `batches` products [m, k] x [k, n]: the tuner's choice, or the
 * one with the least estimated time. */
clt_matrix_choice clt_matrix_choose(int64_t m, int64_t n, int64_t k, int64_t batches,
                                    clt_matrix_loads loads, const clt_target *target);

/* For clt_variant.tiles: write alternative number `index`; the second for kernels that gather. */
bool clt_matrix_tiles(const clt_node *node, const clt_target *target, int index, char *text);
bool clt_matrix_gather_tiles(const clt_node *node, const clt_target *target, int index, char *text);

/* Writes the options of the tile, and returns `text`. */
enum { CLT_MATRIX_TILE_OPTIONS = 80 };
const char *clt_matrix_tile_options(const clt_matrix_tile *t, char *text);

#endif
