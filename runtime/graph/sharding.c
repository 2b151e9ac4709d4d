#include "graph/sharding.h"

#include "base/error.h"

static int64_t product(const clt_type *type, int from, int to)
{
    int64_t elements = 1;
    for (int i = from; i < to; i++)
        elements *= type->dims[i];
    return elements;
}

/* Returns the elements of each part of a flat list, with the zeros behind the last element. */
static int64_t flat_part(const clt_type *whole, int places)
{
    return (product(whole, 0, whole->rank) + places - 1) / places;
}

clt_status clt_sharding_type(const char *name, const clt_type *whole, clt_sharding sharding,
                             clt_coordinate at, clt_type *part)
{
    char text[CLT_TYPE_TEXT];
    *part = *whole;
    if (!sharding.blocks || at.places == 1)
        return CLT_OK;
    if (sharding.dim == CLT_FLAT) {
        *part = (clt_type){.dtype = whole->dtype, .rank = 1, .dims = {flat_part(whole, at.places)}};
        return CLT_OK;
    }
    const int64_t dim =
        sharding.dim >= 0 && sharding.dim < whole->rank ? whole->dims[sharding.dim] : 0;
    const int64_t size = dim < 0 ? -dim : dim;
    if (size <= 0 || size % sharding.blocks || size / sharding.blocks < at.places)
        return clt_fail(CLT_UNSUPPORTED,
                        "%s is %s: dimension %d, in %d block%s, cannot be split over %d devices",
                        name, clt_type_text(whole, text), sharding.dim, sharding.blocks,
                        sharding.blocks == 1 ? "" : "s", at.places);
    const int64_t own =
        sharding.blocks * clt_part_size(size / sharding.blocks, at.places, at.place);
    part->dims[sharding.dim] = dim < 0 ? -own : own;
    return CLT_OK;
}

int64_t clt_sharding_pieces(const clt_type *whole, clt_sharding sharding)
{
    return sharding.blocks && sharding.dim != CLT_FLAT
               ? product(whole, 0, sharding.dim) * sharding.blocks
               : 1;
}

clt_piece clt_sharding_piece(const clt_type *whole, clt_sharding sharding, clt_coordinate at,
                             int64_t index)
{
    if (!sharding.blocks)
        return (clt_piece){0, 0, product(whole, 0, whole->rank)};
    if (sharding.dim == CLT_FLAT) {
        const int64_t all = product(whole, 0, whole->rank), part = flat_part(whole, at.places);
        const int64_t begin = at.place * part < all ? at.place * part : all;
        return (clt_piece){begin, 0, all - begin < part ? all - begin : part};
    }
    const int64_t block = whole->dims[sharding.dim] / sharding.blocks;
    const int64_t inner = product(whole, sharding.dim + 1, whole->rank);
    const int64_t count = clt_part_size(block, at.places, at.place) * inner;
    return (clt_piece){.whole =
                           (index * block + clt_part_begin(block, at.places, at.place)) * inner,
                       .part = index * count,
                       .count = count};
}

static bool is_split(const clt_graph *graph, int axis)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->shardings[axis].blocks)
            return true;
    return false;
}

clt_status clt_mesh_check(const clt_mesh *mesh, const clt_graph *graph)
{
    for (int a = 0; a < CLT_AXES; a++) {
        const bool tensor = a == CLT_AXIS_TENSOR;
        if (a == CLT_AXIS_DATA || a == CLT_AXIS_PIPELINE || mesh->size[a] == 1 ||
            is_split(graph, a))
            continue;
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "mesh: axis %s divides nothing of this model, which splits no %s over it "
                        "(%s): use other axes",
                        clt_axis_name((clt_axis)a), tensor ? "parameter" : "input",
                        tensor ? "clt_shard" : "clt_shard_value");
    }
    return CLT_OK;
}
