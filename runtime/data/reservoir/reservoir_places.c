/* Places of samples: who has them, and who reads them. */
#include "base/philox.h"
#include "data/reservoir/reservoir.h"

void clt_reservoir_release(clt_reservoir *r, int64_t place)
{
    clt_reservoir_place *p = &r->states[place];
    p->retired = p->readers > 0;
    if (p->retired)
        return;
    r->free[r->n_free++] = place;
    if (r->restoring)
        pthread_cond_broadcast(&r->changed);
}

void clt_reservoir_await_restore(clt_reservoir *r)
{
    while (r->restoring)
        pthread_cond_wait(&r->changed, &r->lock);
}

/* Readers unpin their places and pushes give theirs back without waiting for anything, so there
 * will be enough. */
void clt_reservoir_empty(clt_reservoir *r, int64_t count)
{
    clt_reservoir_await_restore(r);
    r->restoring = true;
    r->restores++;
    for (int64_t i = 0; i < r->capacity; i++) {
        if (r->entries[i].place >= 0)
            clt_reservoir_release(r, r->entries[i].place);
        r->entries[i] = (clt_reservoir_entry){-1, 0};
    }
    while (r->n_free < count)
        pthread_cond_wait(&r->changed, &r->lock);
}

void clt_reservoir_restored(clt_reservoir *r)
{
    r->restoring = false;
    pthread_cond_broadcast(&r->changed);
}

void clt_reservoir_publish(clt_reservoir *r, int64_t index, int64_t number, int64_t place)
{
    clt_reservoir_entry *e = &r->entries[index];
    if (e->number > number) { /* the sample was replaced while it was copied */
        r->replaced++;
        clt_reservoir_release(r, place);
        return;
    }
    if (e->place >= 0) {
        r->replaced++;
        clt_reservoir_release(r, e->place);
    } else if (atomic_fetch_add(&r->kept, 1) + 1 == r->options.least) {
        pthread_cond_broadcast(&r->arrived);
    }
    *e = (clt_reservoir_entry){place, number};
}

static uint64_t draw_bits(uint64_t seed, int64_t step, int64_t position, uint32_t attempt)
{
    uint32_t out[4];
    clt_random4(clt_random_seed(seed, step), CLT_STREAM_RESERVOIR_DRAW, attempt, (uint32_t)step,
                (uint64_t)position, out);
    return (uint64_t)out[0] << 32 | out[1];
}

/* Returns the entry that a position gets. Indices whose first sample is still being copied are
 * passed over. */
static const clt_reservoir_entry *draw(const clt_reservoir *r, uint64_t seed, int64_t step,
                                       int64_t position)
{
    enum { ATTEMPTS = 64 };
    __extension__ typedef unsigned __int128 wide;
    int64_t index = 0;
    for (uint32_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        const uint64_t bits = draw_bits(seed, step, position, attempt);
        index = (int64_t)(((wide)bits * (uint64_t)r->begun) >> 64);
        if (r->entries[index].place >= 0)
            return &r->entries[index];
    }
    while (r->entries[index].place < 0)
        index = (index + 1) % r->begun;
    return &r->entries[index];
}

bool clt_reservoir_pin(clt_reservoir *r, uint64_t seed, int64_t step, int64_t first, int64_t count,
                       int64_t *places, int64_t *numbers)
{
    pthread_mutex_lock(&r->lock);
    clt_reservoir_await_restore(r);
    const bool ready = r->kept >= r->options.least;
    for (int64_t i = 0; ready && i < count; i++) {
        const clt_reservoir_entry *e = draw(r, seed, step, first + i);
        places[i] = e->place;
        if (numbers)
            numbers[i] = e->number;
        r->states[e->place].readers++;
    }
    pthread_mutex_unlock(&r->lock);
    return ready;
}

void clt_reservoir_unpin(clt_reservoir *r, const int64_t *places, int64_t count)
{
    pthread_mutex_lock(&r->lock);
    for (int64_t i = 0; i < count; i++) {
        clt_reservoir_place *p = &r->states[places[i]];
        if (--p->readers == 0 && p->retired)
            clt_reservoir_release(r, places[i]);
    }
    pthread_mutex_unlock(&r->lock);
}
