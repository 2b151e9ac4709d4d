#include "plan/occupied.h"

#include <string.h>

#include "base/vec.h"
#include "plan/buckets.h"

typedef struct interval {
    int slab;
    int64_t begin, end; /* multiples of CLT_TENSOR_ALIGN */
} interval;

/* Ordered, disjoint, not touching each other. */
typedef struct intervals {
    interval *list;
    int count, room;
} intervals;

typedef struct vertex {
    intervals through; /* bytes of blocks entered here, which live in the whole range */
    intervals within;  /* these, and bytes of blocks entered below */
} vertex;

/* The position of a search in an ordered list. */
typedef struct cursor {
    const interval *at, *end;
} cursor;

/* Two for each level of the tree. */
enum { MOST_VERTICES = 64 };

typedef struct vertices {
    int whole[MOST_VERTICES]; /* the fewest vertices whose ranges make up a block's life */
    int above[MOST_VERTICES]; /* the vertices on the paths from them to the root */
    int n_whole, n_above;
} vertices;

struct clt_occupied {
    int64_t limit;
    int leaves;   /* number of nodes, rounded up to a power of two */
    vertex *tree; /* vertex 1 is the root; 2v and 2v + 1 are below v */
};

clt_status clt_occupied_create(int last, int64_t limit, clt_occupied **out)
{
    clt_occupied *o = CLT_NEW(clt_occupied);
    CLT_TRY_MEMORY(o);
    o->limit = limit;
    o->leaves = 1;
    while (o->leaves <= last && o->leaves < 1 << 29)
        o->leaves *= 2;
    o->tree = clt_calloc(2 * (size_t)o->leaves, sizeof *o->tree);
    if (!o->tree) {
        clt_free(o);
        return CLT_OUT_OF_MEMORY;
    }
    *out = o;
    return CLT_OK;
}

void clt_occupied_destroy(clt_occupied *o)
{
    if (!o)
        return;
    for (int v = 1; v < 2 * o->leaves; v++) {
        CLT_FREE(o->tree[v].through.list, o->tree[v].within.list);
    }
    CLT_FREE(o->tree, o);
}

void clt_occupied_clear(clt_occupied *o)
{
    for (int v = 1; v < 2 * o->leaves; v++)
        o->tree[v].through.count = o->tree[v].within.count = 0;
}

/* Whether the interval ends before the place without touching it. */
static bool ends_before(const interval *i, int slab, int64_t at)
{
    return i->slab != slab ? i->slab < slab : i->end < at;
}

static bool begins_behind(const interval *i, int slab, int64_t at)
{
    return i->slab != slab ? i->slab > slab : i->begin > at;
}

/* Merges the interval with all intervals that it meets or touches. */
static clt_status join(intervals *s, interval added)
{
    int low = 0, high = s->count; /* finds the first that does not end before it */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (ends_before(&s->list[middle], added.slab, added.begin))
            low = middle + 1;
        else
            high = middle;
    }
    int end = low;
    for (; end < s->count && !begins_behind(&s->list[end], added.slab, added.end); end++) {
        if (s->list[end].begin < added.begin)
            added.begin = s->list[end].begin;
        if (s->list[end].end > added.end)
            added.end = s->list[end].end;
    }
    if (end == low) {
        CLT_TRY(CLT_RESERVE(s->list, s->count, s->room, 1));
        memmove(s->list + low + 1, s->list + low, (size_t)(s->count - low) * sizeof *s->list);
        s->count++;
    } else if (end > low + 1) {
        memmove(s->list + low + 1, s->list + end, (size_t)(s->count - end) * sizeof *s->list);
        s->count -= end - low - 1;
    }
    s->list[low] = added;
    return CLT_OK;
}

/* Finds the vertices that make up the block's life, and the vertices above them. */
static void find_vertices(const clt_occupied *o, const clt_block *b, vertices *found)
{
    *found = (vertices){.n_whole = 0};
    int low = b->born + o->leaves, high = b->dies + 1 + o->leaves;
    for (; low < high; low = (low + 1) / 2, high /= 2) {
        if (low % 2)
            found->whole[found->n_whole++] = low;
        if (high % 2)
            found->whole[found->n_whole++] = high - 1;
    }
    int first = b->born + o->leaves, last = b->dies + o->leaves;
    for (int level = 0; first; level++, first /= 2, last /= 2) {
        /* A vertex whose range is within the block's life is one of `whole` or below it. */
        const int begin = (first << level) - o->leaves, end = ((last + 1) << level) - o->leaves;
        if (begin < b->born || ((first + 1) << level) - o->leaves > b->dies + 1)
            found->above[found->n_above++] = first;
        if (last != first && ((last << level) - o->leaves < b->born || end > b->dies + 1))
            found->above[found->n_above++] = last;
    }
}

static clt_status take(clt_occupied *o, const clt_block *b, const vertices *where)
{
    const int64_t end =
        (b->offset + b->bytes + CLT_TENSOR_ALIGN - 1) / CLT_TENSOR_ALIGN * CLT_TENSOR_ALIGN;
    const interval taken = {b->slab, b->offset, end};
    for (int i = 0; i < where->n_whole; i++) {
        CLT_TRY(join(&o->tree[where->whole[i]].through, taken));
        CLT_TRY(join(&o->tree[where->whole[i]].within, taken));
    }
    for (int i = 0; i < where->n_above; i++)
        CLT_TRY(join(&o->tree[where->above[i]].within, taken));
    return CLT_OK;
}

/* Moves *offset past all intervals of the slab that contain it or end before it. *next gets the
 * start of the first interval after it. False if there is none in this slab. */
static bool skip(cursor *cursors, int count, int slab, int64_t *offset, int64_t *next)
{
    bool any = false;
    for (bool moved = true; moved;) {
        moved = any = false;
        for (int i = 0; i < count; i++) {
            cursor *c = &cursors[i];
            while (c->at < c->end &&
                   (c->at->slab < slab || (c->at->slab == slab && c->at->end <= *offset)))
                c->at++;
            if (c->at == c->end || c->at->slab != slab)
                continue;
            if (c->at->begin <= *offset) {
                *offset = c->at->end;
                moved = true;
            } else if (!any || c->at->begin < *next) {
                *next = c->at->begin;
                any = true;
            }
        }
    }
    return any;
}

/* Finds a place for the block in the slab: the lowest or tightest gap, or after all intervals.
 * False if there is none. */
static bool find_gap(const clt_occupied *o, cursor *cursors, int count, bool tightest, int slab,
                     clt_block *block)
{
    int64_t offset = 0, next = 0, found = -1, smallest = INT64_MAX;
    while (skip(cursors, count, slab, &offset, &next)) {
        if (block->bytes <= next - offset && next - offset < smallest) {
            found = offset;
            smallest = next - offset;
            if (!tightest)
                break;
        }
        offset = next;
    }
    if (found < 0 && offset <= o->limit - block->bytes)
        found = offset;
    block->slab = slab;
    block->offset = found;
    return found >= 0;
}

clt_status clt_occupied_place(clt_occupied *o, bool tightest, clt_block *block)
{
    cursor cursors[2 * MOST_VERTICES];
    vertices where;
    int count = 0;
    block->slab = 0;
    block->offset = 0;
    if (!block->bytes)
        return CLT_OK;
    find_vertices(o, block, &where);
    for (int i = 0; i < where.n_whole + where.n_above; i++) {
        const intervals *s = i < where.n_whole ? &o->tree[where.whole[i]].within
                                               : &o->tree[where.above[i - where.n_whole]].through;
        if (s->count)
            cursors[count++] = (cursor){s->list, s->list + s->count};
    }
    for (int slab = 0; !find_gap(o, cursors, count, tightest, slab, block); slab++)
        ;
    return take(o, block, &where);
}
