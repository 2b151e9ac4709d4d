/* Which samples stay. Random numbers depend on the seed and the sample's number only, so the same
 * pushes in the same order keep the same samples. */
#include <math.h>

#include "base/philox.h"
#include "data/reservoir/reservoir.h"

/* Returns 64 random bits of a sample. */
static uint64_t bits_of(const clt_reservoir *r, int64_t number)
{
    uint32_t out[4];
    clt_random4(r->options.seed, CLT_STREAM_RESERVOIR, (uint32_t)(number >> 40), 0,
                (uint64_t)number, out);
    return (uint64_t)out[0] << 32 | out[1];
}

/* Algorithm R: sample number n > capacity takes the place of a random one of n, if that is in the
 * reservoir. */
static int64_t uniform(const clt_reservoir *r, int64_t number)
{
    __extension__ typedef unsigned __int128 wide;
    if (number <= r->capacity)
        return number - 1;
    const int64_t index = (int64_t)(((wide)bits_of(r, number) * (uint64_t)number) >> 64);
    return index < r->capacity ? index : -1;
}

/* A-Res keeps the largest u^(1/w), with u uniform in (0, 1). These are the smallest -log(u) / w,
 * which do not underflow. */
static clt_reservoir_decision weighted(const clt_reservoir *r, int64_t number, double weight)
{
    clt_reservoir_decision d = {.number = number, .index = -1};
    const double u = ((double)(bits_of(r, number) >> 11) + 0.5) * 0x1p-53;
    if (weight <= 0)
        return d;
    d.key = -log(u) / weight;
    if (r->begun < r->capacity)
        d.index = r->begun;
    else if (d.key < r->keys[r->heap[0]])
        d.index = r->heap[0];
    return d;
}

clt_reservoir_decision clt_reservoir_decide(const clt_reservoir *r, double weight)
{
    clt_reservoir_decision d = {.number = r->number + 1};
    if (r->options.policy == CLT_RESERVOIR_WEIGHTED)
        return weighted(r, d.number, weight);
    d.index = r->options.policy == CLT_RESERVOIR_NEWEST ? (d.number - 1) % r->capacity
                                                        : uniform(r, d.number);
    return d;
}

/* Whether index a goes before index b. Equal keys have an order too, so that the top does not
 * depend on how the heap was made. */
static bool leaves_first(const clt_reservoir *r, int64_t a, int64_t b)
{
    return r->keys[a] > r->keys[b] || (r->keys[a] == r->keys[b] && a < b);
}

/* Move the entry at `at` of the heap down or up to where it belongs. */
static void sift_down(clt_reservoir *r, int64_t at)
{
    const int64_t moved = r->heap[at];
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child + 1 < r->begun && leaves_first(r, r->heap[child + 1], r->heap[child]))
            child++;
        if (child >= r->begun || !leaves_first(r, r->heap[child], moved))
            break;
        r->heap[at] = r->heap[child];
        at = child;
    }
    r->heap[at] = moved;
}

static void sift_up(clt_reservoir *r, int64_t at)
{
    const int64_t moved = r->heap[at];
    for (; at && leaves_first(r, moved, r->heap[(at - 1) / 2]); at = (at - 1) / 2)
        r->heap[at] = r->heap[(at - 1) / 2];
    r->heap[at] = moved;
}

void clt_reservoir_commit(clt_reservoir *r, const clt_reservoir_decision *d)
{
    r->number = d->number;
    if (d->index < 0)
        return;
    const bool grows = d->index == r->begun;
    r->begun += grows;
    if (!r->heap)
        return;
    r->keys[d->index] = d->key;
    if (!grows) { /* the index is that of the heap's top */
        sift_down(r, 0);
        return;
    }
    r->heap[d->index] = d->index;
    sift_up(r, d->index);
}

void clt_reservoir_order(clt_reservoir *r)
{
    for (int64_t i = 0; r->heap && i < r->begun; i++)
        r->heap[i] = i;
    for (int64_t i = r->begun / 2; r->heap && i-- > 0;)
        sift_down(r, i);
}
