/*
 * Parts of a tensor that is split along one dimension over the places of an axis of the mesh. The
 * dimension has `blocks` equal blocks, and each place has a part of every block:
 *
 *     6 rows in 1 block over 2 places     place 0: rows 0 1 2, place 1: rows 3 4 5
 *     6 rows in 3 blocks over 2 places    place 0: rows 0 2 4, place 1: rows 1 3 5
 *
 * If a block's size is no multiple of the places, the first places have one element more. Of a
 * dimension of c x batch elements, the c elements of each sample are split.
 *
 * A tensor of any shape can also be split as a flat list of elements. All places then have parts of
 * one size, and zeros follow behind the last element:
 *
 *     7 elements, CLT_FLAT over 3 places    0 1 2, 3 4 5, and 6 with two zeros
 */
#ifndef CLT_GRAPH_SHARDING_H
#define CLT_GRAPH_SHARDING_H

#include "graph/graph.h"
#include "graph/mesh.h"

/* In place of a dimension, with 1 block: the tensor is split as a flat list. */
enum { CLT_FLAT = -1 };

/* One place of an axis. */
typedef struct clt_coordinate {
    int place, places;
} clt_coordinate;

/* Returns the participant's place of the axis along which parameters are split. */
static inline clt_coordinate clt_mesh_split_place(const clt_mesh *mesh, int participant)
{
    const clt_axis axis = clt_mesh_split_axis(mesh);
    return (clt_coordinate){clt_mesh_coordinate(mesh, axis, participant), mesh->size[axis]};
}

/* Returns where the part of the place begins in a block of `size` elements. The place behind the
 * last one gives `size`. */
static inline int64_t clt_part_begin(int64_t size, int places, int place)
{
    const int64_t more = size % places;
    return size / places * place + (place < more ? place : more);
}

static inline int64_t clt_part_size(int64_t size, int places, int place)
{
    return clt_part_begin(size, places, place + 1) - clt_part_begin(size, places, place);
}

/* Writes the type of the place's part. A split with 0 blocks gives the whole type. Errors:
 * UNSUPPORTED (the dimension depends on the batch, has no such blocks, or has fewer elements than
 * places); `name` is for the message. */
clt_status clt_sharding_type(const char *name, const clt_type *whole, clt_sharding sharding,
                             clt_coordinate at, clt_type *part);

/* Fails unless each axis of the mesh divides something of the graph. Otherwise its places would all
 * compute the same. Stages of axis pp are checked by clt_pass_stages. Errors: INVALID_ARGUMENT,
 * with one line that names the axis. */
clt_status clt_mesh_check(const clt_mesh *mesh, const clt_graph *graph);

/* A piece of a part that lies together in the whole tensor, in elements. */
typedef struct clt_piece {
    int64_t whole, part, count;
} clt_piece;

/* Returns how many pieces the part has, and describes piece number `index`, in the part's order.
 * The whole type has no batch. */
int64_t clt_sharding_pieces(const clt_type *whole, clt_sharding sharding);
clt_piece clt_sharding_piece(const clt_type *whole, clt_sharding sharding, clt_coordinate at,
                             int64_t index);

#endif
