/* Conversions between placements: nodes that reduce, gather and cut values. */
#include <stdio.h>

#include "ops/collective/collective.h"
#include "passes/partition.h"
#include <cltrain/ops.h>

/* Names a conversion after what it converts, so that it has one name at all places. */
static clt_value *named(const clt_partitioning *p, const clt_value *of, const char *what,
                        clt_value *value)
{
    char name[192];
    const clt_value *local = p->local[of->id];
    snprintf(name, sizeof name, "%.120s.%s.%s",
             local->name       ? local->name
             : local->producer ? local->producer->name
                               : "constant",
             clt_axis_name(p->axis), what);
    return clt_label(value, name);
}

/* Takes elements [from, to) of a dimension. */
static clt_value *cut(clt_value *x, int dim, int64_t from, int64_t to)
{
    int64_t start[CLT_MAX_RANK] = {0}, stop[CLT_MAX_RANK];
    for (int k = 0; k < CLT_MAX_RANK; k++)
        stop[k] = CLT_TO_END;
    start[dim] = from;
    stop[dim] = to;
    return clt_slice(x, start, stop, NULL);
}

/* Joins pieces along a dimension, CLT_MAX_OPERANDS at a time. Changes `pieces`. */
static clt_value *joined(clt_value **pieces, int count, int dim)
{
    while (count > 1) {
        int next = 0;
        for (int i = 0; i < count; i += CLT_MAX_OPERANDS) {
            const int n = count - i < CLT_MAX_OPERANDS ? count - i : CLT_MAX_OPERANDS;
            pieces[next++] = n == 1 ? pieces[i] : clt_concat(pieces + i, n, dim);
        }
        count = next;
    }
    return pieces[0];
}

/* Cuts this place's part out of a whole value. */
static clt_value *part_of(const clt_partitioning *p, const clt_value *of, clt_value *x,
                          clt_sharding wanted)
{
    clt_value *pieces[CLT_MOST_PLACES];
    const int64_t block = of->type.dims[wanted.dim] / wanted.blocks;
    const int64_t begin = clt_part_begin(block, p->at.places, p->at.place);
    const int64_t end = clt_part_begin(block, p->at.places, p->at.place + 1);
    for (int b = 0; b < wanted.blocks; b++)
        pieces[b] = cut(x, wanted.dim, b * block + begin, b * block + end);
    return named(p, of, "part", joined(pieces, wanted.blocks, wanted.dim));
}

/* Makes all parts as large as the largest: each block gets another element at its end. */
static clt_value *padded(const clt_partitioning *p, clt_value *x, clt_sharding has, int64_t block)
{
    clt_value *pieces[CLT_MOST_PLACES];
    int64_t before[CLT_MAX_RANK] = {0}, after[CLT_MAX_RANK] = {0};
    const int64_t own = clt_part_size(block, p->at.places, p->at.place);
    after[has.dim] = clt_part_size(block, p->at.places, 0) - own;
    for (int b = 0; b < has.blocks; b++)
        pieces[b] = clt_pad(cut(x, has.dim, b * own, (b + 1) * own), before, after, 0);
    return joined(pieces, has.blocks, has.dim);
}

/* Puts the parts of all places together. x: [places, part...], all as large as place 0's. */
static clt_value *put_together(const clt_partitioning *p, const clt_value *of, clt_value *x,
                               clt_sharding has, int64_t block)
{
    clt_value *blocks[CLT_MOST_PLACES], *parts[CLT_MOST_PLACES];
    const int64_t most = clt_part_size(block, p->at.places, 0);
    int64_t dims[CLT_MAX_RANK];
    for (int k = 0; k < of->type.rank; k++)
        dims[k] = of->type.dims[k];
    dims[has.dim] = most * has.blocks;
    for (int place = 0; place < p->at.places; place++)
        parts[place] = clt_reshape(cut(x, 0, place, place + 1), of->type.rank, dims);
    for (int b = 0; b < has.blocks; b++) {
        clt_value *pieces[CLT_MOST_PLACES];
        for (int place = 0; place < p->at.places; place++)
            pieces[place] = cut(parts[place], has.dim, b * most,
                                b * most + clt_part_size(block, p->at.places, place));
        blocks[b] = joined(pieces, p->at.places, has.dim);
    }
    return joined(blocks, has.blocks, has.dim);
}

static clt_value *gathered(clt_partitioning *p, const clt_value *of, clt_value *x, clt_sharding has)
{
    const int64_t block = of->type.dims[has.dim] / has.blocks;
    if (block % p->at.places)
        x = padded(p, x, has, block);
    clt_value *all = clt_axis_all_gather(x, p->axis, p->at.places);
    named(p, of, "all_gather", all);
    return put_together(p, of, all, has, block);
}

static clt_value *whole_of(clt_partitioning *p, const clt_value *value)
{
    const clt_placement has = p->placed[value->id];
    clt_value **whole = &p->whole[value->id];
    if (!has.partial && !has.sharding.blocks)
        return p->local[value->id];
    if (!*whole && has.partial)
        *whole = named(p, value, "all_reduce",
                       clt_axis_all_reduce(p->local[value->id], p->axis, CLT_AXIS_SUM));
    else if (!*whole)
        *whole = gathered(p, value, p->local[value->id], has.sharding);
    return *whole;
}

clt_value *clt_partition_convert(clt_partitioning *p, const clt_value *value, clt_sharding wanted)
{
    const clt_placement has = p->placed[value->id];
    if (!has.partial && has.sharding.blocks == wanted.blocks &&
        (!wanted.blocks || has.sharding.dim == wanted.dim))
        return p->local[value->id];
    clt_value *whole = whole_of(p, value);
    return wanted.blocks && whole ? part_of(p, value, whole, wanted) : whole;
}
