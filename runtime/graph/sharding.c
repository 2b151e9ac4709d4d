#include "graph/sharding.h"

#include "base/error.h"

clt_status clt_sharding_type(const char *name, const clt_type *whole, clt_sharding sharding,
                             clt_coordinate at, clt_type *part)
{
    char text[CLT_TYPE_TEXT];
    *part = *whole;
    if (!sharding.blocks || at.places == 1)
        return CLT_OK;
    const int64_t dim =
        sharding.dim >= 0 && sharding.dim < whole->rank ? whole->dims[sharding.dim] : 0;
    const int64_t size = dim < 0 ? -dim : dim;
    if (size <= 0 || size % sharding.blocks || size / sharding.blocks < at.places)
        return clt_fail(CLT_SHAPE,
                        "%s is %s: dimension %d, in %d block%s, cannot be split over %d devices",
                        name, clt_type_text(whole, text), sharding.dim, sharding.blocks,
                        sharding.blocks == 1 ? "" : "s", at.places);
    const int64_t own =
        sharding.blocks * clt_part_size(size / sharding.blocks, at.places, at.place);
    part->dims[sharding.dim] = dim < 0 ? -own : own;
    return CLT_OK;
}

static int64_t product(const clt_type *type, int from, int to)
{
    int64_t elements = 1;
    for (int i = from; i < to; i++)
        elements *= type->dims[i];
    return elements;
}

int64_t clt_sharding_pieces(const clt_type *whole, clt_sharding sharding)
{
    return sharding.blocks ? product(whole, 0, sharding.dim) * sharding.blocks : 1;
}

clt_piece clt_sharding_piece(const clt_type *whole, clt_sharding sharding, clt_coordinate at,
                             int64_t index)
{
    if (!sharding.blocks)
        return (clt_piece){0, 0, product(whole, 0, whole->rank)};
    const int64_t block = whole->dims[sharding.dim] / sharding.blocks;
    const int64_t inner = product(whole, sharding.dim + 1, whole->rank);
    const int64_t count = clt_part_size(block, at.places, at.place) * inner;
    return (clt_piece){.whole =
                           (index * block + clt_part_begin(block, at.places, at.place)) * inner,
                       .part = index * count,
                       .count = count};
}
