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

/* Joins pieces along a dimension, CLT_MAX_OPERANDS at a time. */
clt_value *clt_partition_join(clt_value **pieces, int count, int dim)
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

/* --- positions of all samples ---------------------------------------------------------------- */

/* Of a dimension of c x batch elements, the c elements of each sample are split. Returns the type
 * with a dimension of the batch and one of c; other types as they are. */
static clt_type unfolded(const clt_type *type, clt_sharding *split)
{
    clt_type own = *type;
    if (type->dims[split->dim] >= 0)
        return own;
    own.rank++;
    own.dims[split->dim] = CLT_BATCH;
    own.dims[split->dim + 1] = -type->dims[split->dim];
    for (int k = split->dim + 1; k < type->rank; k++)
        own.dims[k + 1] = type->dims[k];
    split->dim++;
    return own;
}

static clt_value *shaped(clt_value *x, const clt_type *type)
{
    return clt_type_equal(&x->type, type) ? x : clt_reshape(x, type->rank, type->dims);
}

/* --- parts ----------------------------------------------------------------------------------- */

/* Whether the arrays of pieces below suffice; if not, the graph fails. */
static bool has_room(const clt_partitioning *p, const clt_value *of, clt_sharding split)
{
    if (split.blocks <= CLT_MOST_PLACES)
        return true;
    clt_graph_failed(p->graph,
                     clt_fail(CLT_UNSUPPORTED,
                              "value %s is split along dimension %d in %d blocks, and it "
                              "must be put together: at most %d blocks can be",
                              clt_value_called(of), split.dim, split.blocks, CLT_MOST_PLACES));
    return false;
}

/* Cuts this place's part out of a whole value. */
static clt_value *part_of(const clt_partitioning *p, const clt_value *of, clt_value *x,
                          clt_sharding wanted)
{
    clt_value *pieces[CLT_MOST_PLACES];
    clt_sharding by = wanted;
    const clt_type type = unfolded(&of->type, &by);
    const int64_t block = type.dims[by.dim] / by.blocks;
    clt_type part = of->type;
    if (!x || !has_room(p, of, by) ||
        clt_sharding_type("a part", &of->type, wanted, p->at, &part) != CLT_OK)
        return NULL;
    x = shaped(x, &type);
    for (int b = 0; x && b < by.blocks; b++) {
        const int place = clt_partition_dealt(p, b, p->at.place);
        pieces[b] =
            clt_window_cut(x, by.dim, b * block + clt_part_begin(block, p->at.places, place),
                           b * block + clt_part_begin(block, p->at.places, place + 1));
    }
    x = x ? clt_partition_join(pieces, by.blocks, by.dim) : NULL;
    return x ? named(p, of, "part", shaped(x, &part)) : NULL;
}

/* Puts zeros around this place's part of each block: `ahead` of them, and others up to `size`. */
static clt_value *padded(const clt_partitioning *p, clt_value *x, clt_sharding has, int64_t block,
                         int64_t ahead, int64_t size)
{
    clt_value *pieces[CLT_MOST_PLACES];
    int64_t before[CLT_MAX_RANK] = {0}, after[CLT_MAX_RANK] = {0};
    const int64_t own = clt_part_size(block, p->at.places, p->at.place);
    before[has.dim] = ahead;
    after[has.dim] = size - ahead - own;
    for (int b = 0; b < has.blocks; b++)
        pieces[b] = clt_pad(clt_window_cut(x, has.dim, b * own, (b + 1) * own), before, after, 0);
    return clt_partition_join(pieces, has.blocks, has.dim);
}

void clt_partition_split(clt_value *x, int count, int dim, clt_value **pieces)
{
    int64_t sizes[CLT_MOST_PLACES];
    for (int i = 0; i < count; i++) {
        sizes[i] = x ? x->type.dims[dim] / count : 0;
        pieces[i] = count == 1 ? x : NULL;
    }
    if (x && count > 1) /* the graph keeps a failure */
        (void)clt_split_with_sizes(x, sizes, count, dim, pieces);
}

/* Puts the parts of all places together. x: [places, part...], all as large as place 0's. */
static clt_value *put_together(const clt_partitioning *p, const clt_type *whole, clt_value *x,
                               clt_sharding has, int64_t block)
{
    clt_value *blocks[CLT_MOST_PLACES], *parts[CLT_MOST_PLACES];
    const int places = p->at.places;
    const int64_t most = clt_part_size(block, places, 0);
    clt_type part = *whole;
    part.dims[has.dim] = most * has.blocks;
    clt_partition_split(x, places, 0, parts);
    for (int i = 0; i < places; i++)
        parts[i] = parts[i] ? clt_reshape(parts[i], part.rank, part.dims) : NULL;
    for (int b = 0; parts[0] && b < has.blocks; b++) {
        clt_value *pieces[CLT_MOST_PLACES];
        for (int i = 0; i < places; i++)
            pieces[i] = clt_window_cut(parts[clt_partition_dealt(p, b, i)], has.dim, b * most,
                                       b * most + clt_part_size(block, places, i));
        blocks[b] = clt_partition_join(pieces, places, has.dim);
    }
    return parts[0] ? clt_partition_join(blocks, has.blocks, has.dim) : NULL;
}

/* The same for blocks of which all places have as much. It moves each element twice. */
static clt_value *put_equal_together(const clt_partitioning *p, const clt_type *whole, clt_value *x,
                                     clt_sharding has)
{
    clt_value *parts[CLT_MOST_PLACES], *pieces[CLT_MOST_PLACES], *ordered[CLT_MOST_PLACES];
    const int places = p->at.places;
    clt_type part = *whole;
    part.dims[has.dim] /= places;
    clt_partition_split(x, places, 0, parts);
    for (int i = 0; i < places; i++) {
        x = parts[i] ? clt_reshape(parts[i], part.rank, part.dims) : NULL;
        clt_partition_split(x, has.blocks, has.dim, pieces);
        for (int b = 0; b < has.blocks; b++)
            ordered[b * places + clt_partition_dealt(p, b, i)] = pieces[b];
    }
    return parts[0] ? clt_partition_join(ordered, places * has.blocks, has.dim) : NULL;
}

clt_value *clt_partition_gather(const clt_partitioning *p, const clt_value *of, clt_value *x,
                                const clt_type *whole, clt_sharding has)
{
    if (!has_room(p, of, has))
        return NULL;
    const clt_type type = unfolded(whole, &has);
    const int64_t block = type.dims[has.dim] / has.blocks;
    clt_type part = type;
    part.dims[has.dim] = clt_part_size(block, p->at.places, p->at.place) * has.blocks;
    x = x ? shaped(x, &part) : NULL;
    if (block % p->at.places)
        x = padded(p, x, has, block, 0, clt_part_size(block, p->at.places, 0));
    clt_value *all = clt_axis_all_gather(x, p->axis, p->at.places);
    if (!all)
        return NULL;
    all = named(p, of, "all_gather", all);
    x = block % p->at.places || p->at.places * has.blocks > CLT_MOST_PLACES
            ? put_together(p, &type, all, has, block)
            : put_equal_together(p, &type, all, has);
    return x ? shaped(x, whole) : NULL;
}

clt_value *clt_partition_addend(clt_partitioning *p, const clt_value *value)
{
    const clt_placement has = p->placed[value->id];
    clt_value *local = p->local[value->id];
    if (has.partial)
        return local;
    if (!has.sharding.blocks)
        return p->at.place ? NULL : local;
    if (!has_room(p, value, has.sharding))
        return NULL;
    const int64_t block = value->type.dims[has.sharding.dim] / has.sharding.blocks;
    return padded(p, local, has.sharding, block, clt_part_begin(block, p->at.places, p->at.place),
                  block);
}

bool clt_partition_over_time(const clt_partitioning *p, const clt_value *value)
{
    return p->sequence && p->placed[value->id].partial && value->type.rank >= 3 &&
           value->type.dims[1] > 0 && value->type.dims[1] % p->at.places == 0;
}

/* Adds up a partial value, of which each place gets its part of dimension 1. */
static clt_value *divided_over_time(clt_partitioning *p, const clt_value *of)
{
    clt_value *parts[CLT_MOST_PLACES];
    const int64_t size = of->type.dims[1] / p->at.places;
    for (int place = 0; place < p->at.places; place++)
        parts[place] = clt_window_cut(p->local[of->id], 1, place * size, (place + 1) * size);
    return named(p, of, "reduce_scatter",
                 clt_axis_reduce_scatter(clt_stack(parts, p->at.places, 0), p->axis, p->at.places));
}

/* With `sequence`, backward gathers again what forward has gathered, so that the whole value needs
 * no memory in between (Korthikanti et al., 2022). */
static bool stays(const clt_partitioning *p, const clt_value *whole)
{
    return whole && !(p->sequence && p->backward && !whole->producer->backward);
}

static clt_value *whole_of(clt_partitioning *p, const clt_value *value)
{
    const clt_placement has = p->placed[value->id];
    clt_value **whole = &p->whole[value->id];
    if (!has.partial && !has.sharding.blocks)
        return p->local[value->id];
    if (has.partial && !*whole)
        *whole = named(p, value, "all_reduce",
                       clt_axis_all_reduce(p->local[value->id], p->axis, CLT_AXIS_SUM));
    else if (!has.partial && !stays(p, *whole))
        *whole = clt_partition_gather(p, value, p->local[value->id], &value->type, has.sharding);
    return *whole;
}

clt_value *clt_partition_convert(clt_partitioning *p, const clt_value *value, clt_sharding wanted)
{
    const clt_placement has = p->placed[value->id];
    if (!has.partial && has.sharding.blocks == wanted.blocks &&
        (!wanted.blocks || has.sharding.dim == wanted.dim))
        return p->local[value->id];
    if (wanted.blocks == 1 && wanted.dim == 1 && clt_partition_over_time(p, value))
        return divided_over_time(p, value);
    clt_value *whole = whole_of(p, value);
    return wanted.blocks && whole ? part_of(p, value, whole, wanted) : whole;
}
