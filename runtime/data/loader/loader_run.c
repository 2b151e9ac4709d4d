/*
 * The running loader. Batches begin in order, each in the next slot of the ring as soon as the slot
 * is free. A batch is cut into tasks. Threads take tasks in order, so that all of them work on the
 * batch that is needed first.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "data/loader/loader.h"

/* A tuning window has at least this many batches and lasts at least this long. */
enum { WINDOW_BATCHES = 8, WINDOW_NANOSECONDS = 20 * 1000 * 1000 };

/* A batch that takes less time is assembled by the thread that takes it. To wake another thread
 * costs both of them more. Counts from a number of batches on. */
enum { SMALL_NANOSECONDS = 10 * 1000, SMALL_BATCHES = 32 };

/* Returns the nanoseconds of a monotonic clock. */
static int64_t loader_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static clt_loader_slot *slot_of(clt_loader *l, int64_t number)
{
    return &l->slots[number % l->desc.slots];
}

static bool ended(const clt_loader *l)
{
    return l->dry || (l->desc.end_epoch && l->epoch >= l->desc.end_epoch);
}

void clt_loader_set_claims(clt_loader *loader, clt_loader_claim_fn claims, void *user)
{
    loader->claims = claims;
    loader->claims_user = user;
}

void clt_loader_ask_again(clt_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    loader->dry = false;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
}

/* Finds the place of the next batch. Returns false while nothing may be claimed. */
static bool place_batch(clt_loader *l, clt_loader_claim *place)
{
    const int64_t left = l->gather.dataset->count - l->offset;
    if (l->dealt) {
        if (!l->n_deals)
            return false;
        *place = (clt_loader_claim){l->deals[0].epoch, l->deals[0].offset, l->deals[0].count};
        memmove(l->deals, l->deals + 1, (size_t)--l->n_deals * sizeof *l->deals);
        return true;
    }
    if (l->claims) {
        l->dry = !l->claims(l->claims_user, l->desc.batch, place);
        if (l->dry)
            pthread_cond_broadcast(&l->ready);
        return !l->dry;
    }
    *place = (clt_loader_claim){l->epoch, l->offset, left < l->desc.batch ? left : l->desc.batch};
    l->offset += place->count;
    if (clt_loader_epoch_ends(l, l->offset)) {
        l->epoch++;
        l->offset = 0;
    }
    return true;
}

static void divide(const clt_loader *l, clt_loader_slot *s)
{
    const clt_loader_desc *d = &l->desc;
    for (int p = 0; d->bounds && p <= d->parts; p++)
        s->offsets[p] = clt_virtual_shard_begin(s->count, d->bounds[d->parts], d->bounds[p]);
    if (!d->bounds) /* cannot fail: the arguments were checked when the loader was made */
        clt_split(s->count, d->parts, d->weights, d->quantum, s->offsets);
}

/* Sets up the next batch in its free slot. */
static void begin_batch(clt_loader *l, clt_loader_slot *s, const clt_loader_claim *place)
{
    const clt_loader_desc *d = &l->desc;
    s->number = l->fill++;
    s->epoch = place->epoch;
    s->begin = place->begin;
    s->count = place->count;
    clt_order_of(&s->order, l->gather.dataset, d->seed, s->epoch, d->shuffle != 0);
    divide(l, s);
    bool all = clt_gather_must_count(&l->gather) && clt_gather_can_count(&l->gather);
    s->from = all ? 0 : s->offsets[d->first_part];
    s->to = all ? s->count : s->offsets[d->first_part + d->local_parts];
    s->tasks = (s->to - s->from + l->chunk - 1) / l->chunk;
    s->started = s->finished = 0;
    s->status = CLT_OK;
    s->weight = 0;
    memset(s->part_weights, 0, (size_t)d->local_parts * sizeof *s->part_weights);
    s->state = s->tasks ? CLT_SLOT_FILLING : CLT_SLOT_READY;
    if (!s->tasks)
        pthread_cond_broadcast(&l->ready);
}

/* Finds the slot whose next task is to be run; NULL if there is none now. */
static clt_loader_slot *find_task(clt_loader *l)
{
    for (;;) {
        if (l->fill > l->take) {
            clt_loader_slot *last = slot_of(l, l->fill - 1);
            if (last->state == CLT_SLOT_FILLING && last->started < last->tasks)
                return last;
        }
        clt_loader_slot *next = slot_of(l, l->fill);
        clt_loader_claim place;
        if (l->failed || ended(l) || next->state != CLT_SLOT_FREE || !place_batch(l, &place))
            return NULL;
        begin_batch(l, next, &place);
    }
}

clt_status clt_loader_deal(clt_loader *l, int64_t epoch, int64_t offset, int64_t count)
{
    const int64_t total = l->gather.dataset->count;
    if (epoch < 0 || offset < 0 || count < 1 || count > l->desc.batch || offset > total - count)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s' has no batch of %lld samples at %lld of epoch %lld",
                        l->gather.dataset->name, (long long)count, (long long)offset,
                        (long long)epoch);
    pthread_mutex_lock(&l->lock);
    const bool room = l->n_deals < CLT_LOADER_DEALT;
    if (room) {
        l->deals[l->n_deals].epoch = epoch;
        l->deals[l->n_deals].offset = offset;
        l->deals[l->n_deals++].count = count;
        pthread_cond_broadcast(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    return room ? CLT_OK
                : clt_fail(CLT_STATE, "data set '%s': %d dealt batches wait already",
                           l->gather.dataset->name, CLT_LOADER_DEALT);
}

/* Runs one task: gathers its samples part by part. Weights are added to the worker's own
 * counters. */
static clt_status run_task(clt_loader *l, clt_loader_thread *w, const clt_loader_slot *s,
                           int64_t task)
{
    const clt_loader_desc *d = &l->desc;
    const clt_sample_key key = {(uint64_t)d->seed, s->epoch};
    int64_t begin = s->from + task * l->chunk, end = begin + l->chunk;
    if (end > s->to)
        end = s->to;
    clt_order_fill(&s->order, s->begin + begin, end - begin, s->indices + (begin - s->from));
    clt_dataset_translate(l->gather.dataset, end - begin, s->indices + (begin - s->from));
    memset(w->weights, 0, ((size_t)d->local_parts + 1) * sizeof *w->weights);
    for (int p = 0; p < d->parts; p++) {
        int64_t from = s->offsets[p] > begin ? s->offsets[p] : begin;
        int64_t to = s->offsets[p + 1] < end ? s->offsets[p + 1] : end;
        if (from >= to)
            continue;
        const int64_t *indices = s->indices + (from - s->from);
        int local = p - d->first_part;
        if (local < 0 || local >= d->local_parts) {
            clt_gather_weigh(&l->gather, indices, to - from, &w->weights[d->local_parts]);
            continue;
        }
        void *places[CLT_DATA_MAX_FIELDS];
        for (int o = 0; o < l->gather.count; o++)
            places[o] = (char *)clt_loader_memory(l, (int)(s->number % d->slots), local, o) +
                        (from - s->offsets[p]) * l->gather.outputs[o].bytes;
        CLT_TRY(clt_gather_run(&l->gather, &key, indices, to - from, places, &w->scratch,
                               &w->weights[local]));
    }
    return CLT_OK;
}

/* Adds up a finished task. The caller holds the lock. */
static void finish_task(clt_loader *l, const clt_loader_thread *w, clt_loader_slot *s, int64_t task,
                        clt_status status)
{
    for (int p = 0; p < l->desc.local_parts; p++)
        s->part_weights[p] += w->weights[p];
    for (int p = 0; p <= l->desc.local_parts; p++)
        s->weight += w->weights[p];
    /* Of several failures, report the one with the lowest task number: it does not depend on
     * timing. */
    if (status != CLT_OK && (s->status == CLT_OK || task < s->failed_task)) {
        s->status = status;
        s->failed_task = task;
        snprintf(s->message, sizeof s->message, "%s", clt_error_message());
        l->failed = true;
    }
    if (++s->finished == s->tasks) {
        s->state = CLT_SLOT_READY;
        pthread_cond_broadcast(&l->ready);
    }
}

/* Runs the slot's next task. The caller holds the lock, which is free meanwhile. */
static void work_on(clt_loader *l, clt_loader_thread *w, clt_loader_slot *s)
{
    int64_t task = s->started++;
    pthread_mutex_unlock(&l->lock);
    int64_t start = loader_now();
    clt_status status = run_task(l, w, s, task);
    int64_t spent = loader_now() - start;
    pthread_mutex_lock(&l->lock);
    l->busy += spent;
    l->window_busy += spent;
    finish_task(l, w, s, task, status);
}

void *clt_loader_work(void *argument)
{
    clt_loader_thread *w = argument;
    clt_loader *l = w->loader;
    clt_status source = clt_dataset_wait(l->gather.dataset);
    pthread_mutex_lock(&l->lock);
    if (source != CLT_OK && l->source == CLT_OK) {
        l->source = source;
        l->failed = true;
        snprintf(l->message, sizeof l->message, "%s", clt_error_message());
        pthread_cond_broadcast(&l->ready);
    }
    while (!l->stop) {
        const bool active = w->id < l->tuner.active;
        clt_loader_slot *s = active ? find_task(l) : NULL;
        if (!s) {
            pthread_cond_wait(active ? &l->work : &l->rest, &l->lock);
            continue;
        }
        work_on(l, w, s);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void tune(clt_loader *l, int64_t now)
{
    if (++l->window_batches < WINDOW_BATCHES || now - l->window_start < WINDOW_NANOSECONDS)
        return;
    int before = l->tuner.active;
    clt_tuner_step(&l->tuner, (double)l->window_wait, (double)l->window_busy,
                   (double)(now - l->window_start), (double)l->window_batches);
    if (l->tuner.active > before)
        pthread_cond_broadcast(&l->rest);
    l->window_batches = l->window_wait = l->window_busy = 0;
    l->window_start = now;
}

static void describe(const clt_loader *l, const clt_loader_slot *s, clt_batch *out)
{
    const clt_loader_desc *d = &l->desc;
    int64_t next = s->begin + s->count, weight = s->weight;
    const bool last = clt_loader_epoch_ends(l, next);
    if (!clt_gather_can_count(&l->gather) && d->local_parts < d->parts)
        weight = -1;
    else if (!clt_gather_must_count(&l->gather))
        weight = s->count * clt_gather_targets(&l->gather);
    *out = (clt_batch){
        .struct_size = sizeof *out,
        .slot = (int)(s->number % d->slots),
        .last_of_epoch = last,
        .number = s->number,
        .epoch = s->epoch,
        .offset = s->begin,
        .next_epoch = last ? s->epoch + 1 : s->epoch,
        .next_offset = last ? 0 : next,
        .count = s->count,
        .weight = weight,
        .offsets = s->offsets,
        .part_weights = s->part_weights,
        .indices = s->indices + (s->offsets[d->first_part] - s->from),
    };
}

/* Whether the thread that takes batches assembles them. It knows nothing of claims, which threads
 * of the loader make. */
static bool is_small(const clt_loader *l)
{
    return l->take >= SMALL_BATCHES && l->busy < l->take * SMALL_NANOSECONDS && !l->claims &&
           !l->dealt;
}

/* Assembles the next batch, or wakes the threads that do. The caller holds the lock. */
static void await_batch(clt_loader *l)
{
    clt_loader_thread *own = &l->workers[l->desc.max_threads];
    clt_loader_slot *s = is_small(l) && !l->takes ? find_task(l) : NULL;
    if (s) {
        l->takes = true;
        work_on(l, own, s);
        l->takes = false;
        return;
    }
    if (l->sleeps)
        pthread_cond_broadcast(&l->work);
    l->sleeps = false;
    pthread_cond_wait(&l->ready, &l->lock);
}

/* Waits until the next batch is ready and hands it over. The caller holds the lock. */
static clt_status take_batch(clt_loader *l, clt_batch *out)
{
    clt_loader_slot *s = slot_of(l, l->take);
    if (s->state == CLT_SLOT_TAKEN && !ended(l))
        return clt_fail(CLT_STATE, "data set '%s': all %d slots are taken: release one first",
                        l->gather.dataset->name, l->desc.slots);
    while (s->state != CLT_SLOT_READY && !l->stop && l->source == CLT_OK &&
           !(l->take == l->fill && ended(l)))
        await_batch(l);
    if (l->stop)
        return clt_fail(CLT_ABORTED, "data set '%s': the loader was stopped",
                        l->gather.dataset->name);
    if (l->source != CLT_OK) {
        clt_error_restore(l->message);
        return l->source;
    }
    if (s->state != CLT_SLOT_READY) {
        *out = (clt_batch){.struct_size = sizeof *out, .slot = -1};
        return CLT_OK;
    }
    if (s->status != CLT_OK) {
        clt_error_restore(s->message);
        return s->status;
    }
    s->state = CLT_SLOT_TAKEN;
    describe(l, s, out);
    l->take++;
    return CLT_OK;
}

clt_status clt_loader_next(clt_loader *loader, clt_batch *out)
{
    if (!loader || !out)
        return clt_fail(CLT_INVALID_ARGUMENT, "clt_loader_next needs a loader and a clt_batch");
    CLT_TRY(CLT_CHECK_STRUCT(out, clt_batch));
    if (!loader->worker_count)
        return clt_fail(CLT_STATE, "data set '%s': the loader has not started",
                        loader->gather.dataset->name);
    pthread_mutex_lock(&loader->lock);
    int64_t start = loader_now();
    clt_status status = take_batch(loader, out);
    int64_t now = loader_now();
    if (status == CLT_OK && out->slot >= 0) {
        if (out->number == 0) {
            /* The wait for the first batch says nothing about the loader's speed: do not count
             * it. */
            loader->window_start = now;
            loader->window_busy = 0;
        } else {
            loader->wait += now - start;
            loader->window_wait += now - start;
            tune(loader, now);
        }
    }
    pthread_mutex_unlock(&loader->lock);
    return status;
}

clt_status clt_loader_release(clt_loader *loader, int slot)
{
    if (!loader || slot < 0 || slot >= loader->desc.slots)
        return clt_fail(CLT_INVALID_ARGUMENT, "there is no slot %d", slot);
    pthread_mutex_lock(&loader->lock);
    bool taken = loader->slots[slot].state == CLT_SLOT_TAKEN;
    if (taken) {
        loader->slots[slot].state = CLT_SLOT_FREE;
        loader->sleeps = is_small(loader);
        if (!loader->sleeps)
            pthread_cond_broadcast(&loader->work);
    }
    pthread_mutex_unlock(&loader->lock);
    if (!taken)
        return clt_fail(CLT_STATE, "data set '%s': slot %d is not taken",
                        loader->gather.dataset->name, slot);
    return CLT_OK;
}

clt_status clt_loader_get_stats(clt_loader *loader, clt_loader_stats *out)
{
    if (!loader || !out)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_loader_get_stats needs a loader and a clt_loader_stats");
    CLT_TRY(CLT_CHECK_STRUCT(out, clt_loader_stats));
    pthread_mutex_lock(&loader->lock);
    out->threads = loader->tuner.active;
    out->batches = loader->take;
    out->wait_seconds = 1e-9 * (double)loader->wait;
    out->busy_seconds = 1e-9 * (double)loader->busy;
    pthread_mutex_unlock(&loader->lock);
    return CLT_OK;
}
