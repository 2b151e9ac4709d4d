#include "data/loader/order.h"

#include <math.h>

#include <cltrain/data.h>

#include "base/error.h"
#include "base/philox.h"

void clt_order_init(clt_order *order, int64_t total, int64_t seed, int64_t epoch, bool shuffle)
{
    uint64_t n = (uint64_t)total;
    uint64_t a = (uint64_t)sqrt((double)n);
    while (a * a < n)
        a++;
    while (a > 1 && (a - 1) * (a - 1) >= n)
        a--;
    *order = (clt_order){.total = n, .a = a, .b = (n + a - 1) / a, .shuffle = shuffle};
    if (!shuffle)
        return;
    /* The upper 32 bits of the epoch select the sub-stream, so that no epoch repeats another. */
    uint32_t sub = (uint32_t)((uint64_t)epoch >> 32), step = (uint32_t)epoch;
    for (int i = 0; i < CLT_ORDER_ROUNDS; i += 2) {
        uint32_t r[4];
        clt_random4((uint64_t)seed, CLT_STREAM_SHUFFLE, sub, step, (uint64_t)(i / 2), r);
        order->keys[i] = (uint64_t)r[0] << 32 | r[1];
        order->keys[i + 1] = (uint64_t)r[2] << 32 | r[3];
    }
}

void clt_order_of(clt_order *order, const clt_dataset *dataset, int64_t seed, int64_t epoch,
                  bool shuffle)
{
    clt_order_init(order, dataset->count, seed, epoch, shuffle);
    order->drawn = shuffle ? dataset->drawn : NULL;
    order->seed = seed;
    order->epoch = epoch;
}

/* Draws the sample of a position. */
static int64_t draw(const clt_order *order, int64_t position)
{
    uint32_t r[4];
    const int64_t last = (int64_t)order->total - 1;
    clt_random4((uint64_t)order->seed, CLT_STREAM_DRAWS, (uint32_t)((uint64_t)order->epoch >> 32),
                (uint32_t)order->epoch, (uint64_t)position / 2, r);
    const uint32_t *pair = r + position % 2 * 2;
    const uint64_t bits = (uint64_t)pair[0] << 32 | pair[1];
    const double wanted = (double)(bits >> 11) * 0x1p-53 * order->drawn[last];
    int64_t low = 0, high = last; /* u < 1, so the product rounds to less than the sum */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (order->drawn[middle] > wanted)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Hashes a half and a round's key to a number in [0, range). The finaliser is variant 13 of
 * MurmurHash3's by Stafford. */
static uint64_t round_value(uint64_t half, uint64_t key, uint64_t range)
{
    uint64_t z = half * 0x9E3779B97F4A7C15u + key;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)z * range) >> 64);
}

/* Encrypts LANES numbers at once, so that the processor overlaps their chains of
 * multiplications. */
enum { LANES = 8 };

static void encrypt(const clt_order *order, uint64_t x[LANES])
{
    const uint64_t a = order->a, b = order->b;
    uint64_t low[LANES], high[LANES];
    for (int k = 0; k < LANES; k++) {
        low[k] = x[k] % a;
        high[k] = x[k] / a;
    }
    for (int i = 0; i < CLT_ORDER_ROUNDS; i += 2) {
#pragma GCC unroll 8
        for (int k = 0; k < LANES; k++) {
            low[k] += round_value(high[k], order->keys[i], a);
            low[k] -= low[k] >= a ? a : 0;
        }
#pragma GCC unroll 8
        for (int k = 0; k < LANES; k++) {
            high[k] += round_value(low[k], order->keys[i + 1], b);
            high[k] -= high[k] >= b ? b : 0;
        }
    }
    for (int k = 0; k < LANES; k++)
        x[k] = high[k] * a + low[k];
}

void clt_order_fill(const clt_order *order, int64_t begin, int64_t count, int64_t *indices)
{
    for (int64_t i = 0; order->drawn && i < count; i++)
        indices[i] = draw(order, begin + i);
    if (order->drawn)
        return;
    for (int64_t i = 0; i < count; i += order->shuffle ? LANES : 1) {
        if (!order->shuffle) {
            indices[i] = begin + i;
            continue;
        }
        uint64_t x[LANES];
        int here = count - i < LANES ? (int)(count - i) : (int)LANES;
        for (int k = 0; k < LANES; k++)
            x[k] = (uint64_t)(begin + i + (k < here ? k : 0));
        encrypt(order, x);
        for (int k = 0; k < here; k++) {
            while (x[k] >= order->total) {
                uint64_t again[LANES] = {x[k]};
                encrypt(order, again);
                x[k] = again[0];
            }
            indices[i + k] = (int64_t)x[k];
        }
    }
}

clt_status clt_data_order(int64_t total, int64_t seed, int64_t epoch, int shuffle, int64_t begin,
                          int64_t count, int64_t *indices)
{
    if (total < 1 || epoch < 0 || begin < 0 || count < 0 || begin > total - count)
        return clt_fail(
            CLT_INVALID_ARGUMENT,
            "positions %lld to %lld of epoch %lld are not in a data set of %lld samples",
            (long long)begin, (long long)(begin + count), (long long)epoch, (long long)total);
    clt_order order;
    clt_order_init(&order, total, seed, epoch, shuffle != 0);
    clt_order_fill(&order, begin, count, indices);
    return CLT_OK;
}
