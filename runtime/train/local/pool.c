#include "train/local/pool.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/vec.h"

/* --- positions ------------------------------------------------------------------------------- */

clt_status clt_spans_add(clt_spans *list, int64_t begin, int64_t count)
{
    clt_span *last = list->n ? &list->of[list->n - 1] : NULL;
    if (last && last->begin + last->count == begin) {
        last->count += count;
        return CLT_OK;
    }
    return count ? CLT_PUSH(list->of, list->n, list->room, (clt_span){begin, count}) : CLT_OK;
}

/* Appends the positions with numbers [from, to) of a list. */
static clt_status add_part(clt_spans *list, const clt_spans *all, int64_t from, int64_t to)
{
    int64_t number = 0;
    for (int i = 0; i < all->n; i++) {
        const clt_span *s = &all->of[i];
        const int64_t first = from > number ? from - number : 0;
        const int64_t end = to - number < s->count ? to - number : s->count;
        if (end > first)
            CLT_TRY(clt_spans_add(list, s->begin + first, end - first));
        number += s->count;
    }
    return CLT_OK;
}

clt_status clt_spans_rest(clt_spans *list, const clt_spans *from, int64_t taken)
{
    return add_part(list, from, taken, clt_spans_total(from));
}

int64_t clt_spans_total(const clt_spans *list)
{
    int64_t total = 0;
    for (int i = 0; i < list->n; i++)
        total += list->of[i].count;
    return total;
}

int64_t clt_spans_batches(const clt_spans *list, int64_t unit)
{
    int64_t batches = 0;
    for (int i = 0; i < list->n; i++)
        batches += (list->of[i].count + unit - 1) / unit;
    return batches;
}

clt_status clt_spans_deal(const clt_spans *left, int ranks, const double *speeds, int64_t unit,
                          clt_spans *dealt)
{
    const int64_t total = clt_spans_total(left);
    double sum = 0, part = 0;
    int64_t from = 0;
    for (int r = 0; r < ranks; r++)
        sum += speeds[r];
    for (int r = 0; r < ranks; r++) {
        part += sum > 0 ? speeds[r] / sum : 1.0 / ranks;
        const double wanted = round((double)total * part / (double)unit) * (double)unit;
        int64_t to = r == ranks - 1 || wanted >= (double)total ? total : (int64_t)wanted;
        to = to > from ? to : from;
        dealt[r].n = 0;
        CLT_TRY(add_part(&dealt[r], left, from, to));
        from = to;
    }
    return CLT_OK;
}

/* --- a rank's samples ------------------------------------------------------------------------ */

clt_status clt_pool_create(int rank, int ranks, int replicas, clt_pool *pool)
{
    *pool = (clt_pool){.ranks = ranks, .rank = rank};
    pthread_mutex_init(&pool->lock, NULL);
    pool->dealt = clt_calloc((size_t)ranks, sizeof *pool->dealt);
    pool->held = clt_calloc((size_t)replicas, sizeof *pool->held);
    return pool->dealt && pool->held ? CLT_OK : CLT_OUT_OF_MEMORY;
}

void clt_pool_free(clt_pool *pool, int ranks)
{
    if (!pool->ranks)
        return;
    for (int r = 0; pool->dealt && r < ranks; r++)
        clt_free(pool->dealt[r].of);
    CLT_FREE(pool->dealt, pool->held);
    pthread_mutex_destroy(&pool->lock);
    *pool = (clt_pool){0};
}

void clt_pool_close(clt_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->open = false;
    pthread_mutex_unlock(&pool->lock);
}

/* Returns how many of `batches` this rank may claim. A rank that may claim has samples, so each
 * deal brings the run closer to its end. */
static int64_t allow(const clt_pool *pool, int64_t unit, int64_t batches)
{
    int64_t before = 0, all = 0;
    for (int r = 0; r < pool->ranks; r++) {
        before += r < pool->rank ? clt_spans_batches(&pool->dealt[r], unit) : 0;
        all += clt_spans_batches(&pool->dealt[r], unit);
    }
    const int64_t own = clt_spans_batches(&pool->dealt[pool->rank], unit);
    return batches >= all ? own : batches * (before + own) / all - batches * before / all;
}

clt_status clt_pool_deal(clt_pool *pool, int64_t epoch, const clt_spans *left, const double *speeds,
                         int64_t unit, int64_t batches)
{
    pthread_mutex_lock(&pool->lock);
    const clt_status status = clt_spans_deal(left, pool->ranks, speeds, unit, pool->dealt);
    pool->epoch = epoch;
    pool->taken = 0;
    pool->allowed = status == CLT_OK ? allow(pool, unit, batches) : 0;
    pool->open = status == CLT_OK;
    pthread_mutex_unlock(&pool->lock);
    return status;
}

/* Finds up to `most` neighbouring positions from number `taken` on. */
static bool find(const clt_spans *list, int64_t taken, int64_t most, clt_span *found)
{
    for (int i = 0; i < list->n; taken -= list->of[i++].count) {
        const int64_t left = list->of[i].count - taken;
        if (left > 0) {
            *found = (clt_span){list->of[i].begin + taken, left < most ? left : most};
            return true;
        }
    }
    return false;
}

bool clt_pool_claim(clt_pool *pool, int replica, int64_t most, clt_loader_claim *claim)
{
    clt_span found;
    pthread_mutex_lock(&pool->lock);
    clt_pool_held *held = &pool->held[replica];
    const bool any = pool->open && pool->allowed > 0 && held->n < CLT_POOL_HELD &&
                     find(&pool->dealt[pool->rank], pool->taken, most, &found);
    if (any) {
        *claim = (clt_loader_claim){pool->epoch, found.begin, found.count};
        held->of[held->n++] = found;
        pool->taken += found.count;
        pool->allowed--;
    }
    pthread_mutex_unlock(&pool->lock);
    return any;
}

void clt_pool_finish(clt_pool *pool, int replica)
{
    pthread_mutex_lock(&pool->lock);
    clt_pool_held *held = &pool->held[replica];
    held->n--;
    memmove(held->of, held->of + 1, (size_t)held->n * sizeof *held->of);
    pthread_mutex_unlock(&pool->lock);
}
