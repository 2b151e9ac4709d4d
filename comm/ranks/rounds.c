#include "comm/ranks/rounds.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/core/reduction.h"
#include "comm/core/tree.h"

/* Bytes that a node reduces at once for the others, and bytes of a round of all nodes: at least so
 * many. Blocks of many nodes stay in a second-level cache. Between few nodes larger ones save
 * exchanges, between which the link is idle. */
enum { BLOCK = 256 * 1024, ROUND = 2048 * 1024 };

/* Returns the elements of a block, equal on all nodes. */
static int64_t most_of(const clt_rounds *r, int64_t size)
{
    const int64_t share = ROUND / r->nodes;
    return (share > BLOCK ? share : BLOCK) / size;
}

clt_status clt_room_make(clt_room *room, int64_t bytes)
{
    if (bytes <= room->bytes)
        return CLT_OK;
    clt_free(room->memory);
    room->bytes = 0;
    room->memory = clt_alloc_pages((size_t)bytes);
    CLT_TRY_MEMORY(room->memory);
    room->bytes = bytes;
    return CLT_OK;
}

/* Exchanges blocks, and reduces what all nodes sent to this one; the result replaces its block.
 * `round`: error feedback of the block's first `count` elements. The others are padding. */
static clt_status reduce_blocks(clt_rounds *r, const clt_round_sum *sum, int64_t block,
                                const clt_rounding *round, int64_t count, char **result)
{
    const int64_t bytes = block * clt_dtype_size(sum->dtype);
    char *out = r->blocks.memory, *in = out + r->nodes * bytes;
    const void *inputs[CLT_RANKS_MOST];
    bool finite;
    CLT_TRY(clt_link_exchange(r->link, out, bytes, in));
    for (int n = 0; n < r->nodes; n++)
        inputs[n] = in + n * bytes;
    *result = out + r->node * bytes;
    if (round->before) {
        void *const to[] = {*result};
        const clt_reduce_sum rounded = {sum->dtype, sum->dtype, inputs, r->nodes, to, 1};
        clt_reduce_rounded(&rounded, count, round, NULL, &finite);
    } else if (sum->levels) {
        clt_tree_sum(sum->dtype, inputs, sum->levels, r->nodes, (void *const *)result, 1, block,
                     NULL, &finite);
    } else {
        clt_reduce_for(sum->dtype, sum->dtype)(inputs, r->nodes, (void *const *)result, 1, block,
                                               sum->reduction, sum->divisor ? sum->divisor : 1,
                                               NULL, &finite);
    }
    return CLT_OK;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `first`: number of the round's first element. */
static clt_status all_reduce_round(clt_rounds *r, const clt_round_sum *sum, char *data,
                                   int64_t first, int64_t count)
{
    const int64_t size = clt_dtype_size(sum->dtype), block = (count + r->nodes - 1) / r->nodes;
    const int64_t all = r->nodes * block;
    char *out = r->blocks.memory, *result;
    memcpy(out, data + first * size, (size_t)(count * size));
    memset(out + count * size, 0, (size_t)((all - count) * size));
    const clt_rounding round = clt_rounding_from(&sum->round, first + r->node * block);
    CLT_TRY(reduce_blocks(r, sum, block, &round, smaller(block, count - r->node * block), &result));
    CLT_TRY(clt_link_gather(r->link, result, block * size, out + all * size));
    memcpy(data + first * size, out + all * size, (size_t)(count * size));
    return CLT_OK;
}

clt_status clt_rounds_all_reduce(clt_rounds *r, const clt_round_sum *sum, char *data, int64_t count)
{
    const int64_t size = clt_dtype_size(sum->dtype), most = most_of(r, size) * r->nodes;
    CLT_TRY(clt_room_make(&r->blocks, 2 * (smaller(most, count) + r->nodes) * size));
    for (int64_t at = 0; at < count; at += most)
        CLT_TRY(all_reduce_round(r, sum, data, at, smaller(most, count - at)));
    return CLT_OK;
}

clt_status clt_rounds_scatter(clt_rounds *r, const clt_round_sum *sum, char *const *data,
                              int64_t count)
{
    const int64_t size = clt_dtype_size(sum->dtype), most = most_of(r, size);
    CLT_TRY(clt_room_make(&r->blocks, 2 * r->nodes * smaller(most, count) * size));
    for (int64_t at = 0; at < count; at += most) {
        const int64_t block = smaller(most, count - at);
        const size_t bytes = (size_t)(block * size);
        char *result;
        for (int n = 0; n < r->nodes; n++) {
            char *to = r->blocks.memory + (size_t)n * bytes;
            if (data[n])
                memcpy(to, data[n] + at * size, bytes);
            else
                memset(to, 0, bytes);
        }
        const clt_rounding round =
            data[r->node] ? clt_rounding_from(&sum->round, at) : (clt_rounding){0};
        CLT_TRY(reduce_blocks(r, sum, block, &round, block, &result));
        if (data[r->node])
            memcpy(data[r->node] + at * size, result, bytes);
    }
    return CLT_OK;
}

clt_status clt_rounds_share_partials(clt_rounds *r, clt_task_list *list, const int32_t *owners)
{
    const int64_t bytes = list->pieces * (int64_t)sizeof *list->partials;
    CLT_TRY(clt_room_make(&r->blocks, r->nodes * bytes));
    CLT_TRY(clt_link_gather(r->link, list->partials, bytes, r->blocks.memory));
    for (int i = 0; i < list->count; i++) {
        const clt_task *t = &list->tasks[i];
        const int64_t pieces = (t->count + t->piece - 1) / t->piece;
        if (owners[i] >= 0 && pieces)
            memcpy(list->partials + t->first_piece,
                   r->blocks.memory + owners[i] * bytes +
                       t->first_piece * (int64_t)sizeof *list->partials,
                   (size_t)pieces * sizeof *list->partials);
    }
    return CLT_OK;
}
