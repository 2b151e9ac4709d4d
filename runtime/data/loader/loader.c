/* Creates and frees loaders; loader_run.c has the running loader. */
#include "data/loader/loader.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/thread.h"

enum { MOST_SLOTS = 64, MOST_THREADS = 64, DEFAULT_THREADS = 8 };

CLT_STRUCT_INIT(clt_loader_desc, .shuffle = 1, .parts = 1, .quantum = 1, .slots = 3,
                .min_threads = 1)

CLT_STRUCT_INIT(clt_batch, )

CLT_STRUCT_INIT(clt_loader_stats, )

static clt_status check_desc(const clt_loader_desc *d)
{
    CLT_TRY(CLT_CHECK_STRUCT(d, clt_loader_desc));
    if (!d->dataset)
        return clt_fail(CLT_INVALID_ARGUMENT, "a loader needs a data set");
    CLT_TRY(clt_dataset_need_fixed(d->dataset, "loaders and evaluation"));
    const char *name = d->dataset->name;
    if (d->batch < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s': batch %lld: it must be at least 1",
                        name, (long long)d->batch);
    if (d->epoch < 0 || d->offset < 0 || d->offset >= d->dataset->count)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s' of %lld samples has no position %lld in epoch %lld", name,
                        (long long)d->dataset->count, (long long)d->offset, (long long)d->epoch);
    if (d->drop_last && d->batch > d->dataset->count)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s': drop_last leaves no batch: the batch has %lld samples, the "
                        "data set %lld",
                        name, (long long)d->batch, (long long)d->dataset->count);
    if (d->end_epoch < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s': end_epoch %lld must not be negative",
                        name, (long long)d->end_epoch);
    if (d->parts < 1 || d->first_part < 0 || d->local_parts < 0 || d->first_part >= d->parts ||
        d->local_parts > d->parts - d->first_part)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s': %d local parts from part %d on, but there are %d parts",
                        name, d->local_parts, d->first_part, d->parts);
    for (int p = 0; d->bounds && p < d->parts; p++)
        if (d->bounds[0] != 0 || d->bounds[p] > d->bounds[p + 1] || d->bounds[d->parts] < 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "data set '%s': the bounds of virtual shards begin with 0, do not fall "
                            "and end with their number; part %d has %lld to %lld",
                            name, p, (long long)d->bounds[p], (long long)d->bounds[p + 1]);
    if (d->slots < 2 || d->slots > MOST_SLOTS)
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s': %d slots are not in 2 to %d", name,
                        d->slots, MOST_SLOTS);
    if (d->min_threads < 1 || d->max_threads < 0 || d->max_threads > MOST_THREADS ||
        (d->max_threads && d->min_threads > d->max_threads))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s': %d to %d threads: bounds are 1 to %d, the smaller first",
                        name, d->min_threads, d->max_threads, MOST_THREADS);
    return CLT_OK;
}

static clt_status make(clt_loader *l, const clt_loader_desc *desc)
{
    l->desc = *desc;
    if (!l->desc.local_parts)
        l->desc.local_parts = desc->parts - desc->first_part;
    if (!l->desc.max_threads) {
        const int processors = clt_processors();
        /* Decoding files needs every processor. Copying from memory does not. */
        const int most = clt_dataset_sample_file(desc->dataset, 0) ? MOST_THREADS : DEFAULT_THREADS;
        l->desc.max_threads = processors < most ? processors : most;
        if (l->desc.max_threads < desc->min_threads)
            l->desc.max_threads = desc->min_threads;
    }
    l->epoch = desc->epoch;
    l->offset = desc->offset;
    if (clt_loader_epoch_ends(l, l->offset)) { /* saved without drop_last */
        l->epoch++;
        l->offset = 0;
    }
    if (desc->weights) {
        l->weights = clt_calloc((size_t)desc->parts, sizeof *l->weights);
        CLT_TRY_MEMORY(l->weights);
        memcpy(l->weights, desc->weights, (size_t)desc->parts * sizeof *l->weights);
    }
    l->desc.weights = l->weights;
    if (desc->bounds) {
        l->bounds = clt_calloc((size_t)desc->parts + 1, sizeof *l->bounds);
        CLT_TRY_MEMORY(l->bounds);
        memcpy(l->bounds, desc->bounds, ((size_t)desc->parts + 1) * sizeof *l->bounds);
    }
    l->desc.bounds = l->bounds;
    l->capacity = clt_calloc((size_t)desc->parts, sizeof *l->capacity);
    l->slots = clt_calloc((size_t)desc->slots, sizeof *l->slots);
    CLT_TRY_MEMORY(l->capacity && l->slots);
    int64_t largest = desc->batch < desc->dataset->count ? desc->batch : desc->dataset->count;
    for (int p = 0; l->bounds && p < desc->parts; p++) /* parts grow with the batch */
        l->capacity[p] =
            clt_virtual_shard_begin(largest, l->bounds[desc->parts], l->bounds[p + 1]) -
            clt_virtual_shard_begin(largest, l->bounds[desc->parts], l->bounds[p]);
    return l->bounds
               ? CLT_OK
               : clt_split_capacity(largest, desc->parts, l->weights, desc->quantum, l->capacity);
}

clt_status clt_loader_create(const clt_loader_desc *desc, clt_loader **out)
{
    if (!desc || !out)
        return clt_fail(CLT_INVALID_ARGUMENT, "a loader needs its description and a place");
    CLT_TRY(check_desc(desc));
    clt_loader *l = CLT_NEW(clt_loader);
    CLT_TRY_MEMORY(l);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->rest, NULL);
    pthread_cond_init(&l->ready, NULL);
    clt_gather_init(&l->gather, desc->dataset);
    clt_status status = make(l, desc);
    if (status != CLT_OK) {
        clt_loader_free(l);
        return status;
    }
    atomic_store(&desc->dataset->sealed, true);
    *out = l;
    return CLT_OK;
}

static clt_status not_started(const clt_loader *loader)
{
    if (!loader)
        return clt_fail(CLT_INVALID_ARGUMENT, "the loader is NULL");
    if (loader->started)
        return clt_fail(CLT_STATE, "data set '%s': the loader has started already",
                        loader->gather.dataset->name);
    return CLT_OK;
}

clt_status clt_loader_add_output(clt_loader *loader, const char *field, clt_dtype dtype, int *out)
{
    CLT_TRY(not_started(loader));
    if (loader->memory)
        return clt_fail(CLT_STATE, "data set '%s': add outputs before their memory is given",
                        loader->gather.dataset->name);
    const clt_dataset *d = loader->gather.dataset;
    if (d->kind == CLT_DATA_DEVICE)
        return clt_fail(CLT_UNSUPPORTED,
                        "data set '%s', field '%s': is in device memory; a loader delivers sample "
                        "numbers for it, not samples",
                        d->name, field);
    return clt_gather_add(&loader->gather, field, dtype, out);
}

clt_status clt_loader_normalize(clt_loader *loader, int output, double divisor, int channels,
                                const double *mean, const double *std)
{
    CLT_TRY(not_started(loader));
    return clt_gather_normalize(&loader->gather, output, divisor, channels, mean, std);
}

clt_status clt_loader_set_labels(clt_loader *loader, int output, const int64_t *ignore)
{
    CLT_TRY(not_started(loader));
    return clt_gather_set_labels(&loader->gather, output, ignore);
}

int64_t clt_loader_output_bytes(const clt_loader *loader, int output)
{
    return output < 0 || output >= loader->gather.count ? 0 : loader->gather.outputs[output].bytes;
}

int64_t clt_loader_capacity(const clt_loader *loader, int local_part)
{
    if (local_part < 0 || local_part >= loader->desc.local_parts)
        return 0;
    return loader->capacity[loader->desc.first_part + local_part];
}

/* Returns the index of a place in `memory`, -1 if there is none. */
static int place_of(const clt_loader *l, int slot, int local_part, int output)
{
    if (slot < 0 || slot >= l->desc.slots || local_part < 0 || local_part >= l->desc.local_parts ||
        output < 0 || output >= l->gather.count)
        return -1;
    return (slot * l->desc.local_parts + local_part) * l->gather.count + output;
}

static clt_status make_places(clt_loader *l)
{
    int64_t places = (int64_t)l->desc.slots * l->desc.local_parts * l->gather.count;
    if (l->memory || places == 0)
        return CLT_OK;
    if (places > INT32_MAX)
        return clt_fail(
            CLT_INVALID_ARGUMENT,
            "data set '%s': slots, parts and outputs make %lld buffers, too many: use fewer slots",
            l->gather.dataset->name, (long long)places);
    l->owned = clt_calloc((size_t)places, sizeof *l->owned);
    l->memory = clt_calloc((size_t)places, sizeof *l->memory);
    l->places = l->owned && l->memory ? (int)places : 0;
    return l->places ? CLT_OK : CLT_OUT_OF_MEMORY;
}

clt_status clt_loader_set_memory(clt_loader *loader, int slot, int local_part, int output,
                                 void *memory)
{
    CLT_TRY(not_started(loader));
    int place = place_of(loader, slot, local_part, output);
    if (place < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "data set '%s': no slot %d, part %d, output %d",
                        loader->gather.dataset->name, slot, local_part, output);
    CLT_TRY(make_places(loader));
    loader->memory[place] = memory;
    return CLT_OK;
}

void *clt_loader_memory(const clt_loader *loader, int slot, int local_part, int output)
{
    int place = place_of(loader, slot, local_part, output);
    return place < 0 || !loader->memory ? NULL : loader->memory[place];
}

/* Tasks are large enough to make the cost of taking one negligible. They are small enough for all
 * threads to work on the batch that the consumer waits for. */
static int64_t chunk_of(const clt_loader *l)
{
    enum { LEAST_BYTES = 64 * 1024, MOST_BYTES = 1024 * 1024 };
    int64_t bytes = 8, batch = l->desc.batch;
    if (batch > l->gather.dataset->count)
        batch = l->gather.dataset->count;
    for (int i = 0; i < l->gather.count; i++)
        bytes = bytes > INT64_MAX - l->gather.outputs[i].bytes ? INT64_MAX
                                                               : bytes + l->gather.outputs[i].bytes;
    int64_t chunk = batch / (2 * l->desc.max_threads);
    int64_t least = LEAST_BYTES / bytes, most = MOST_BYTES / bytes;
    chunk = chunk < least ? least : chunk > most ? most : chunk;
    return chunk < 1 ? 1 : chunk > batch ? batch : chunk;
}

static clt_status make_memory(clt_loader *l)
{
    const clt_loader_desc *d = &l->desc;
    CLT_TRY(make_places(l));
    for (int place = 0; place < l->places; place++) {
        int output = place % l->gather.count, part = place / l->gather.count % d->local_parts;
        int64_t bytes, samples = l->capacity[d->first_part + part];
        if (l->memory[place] || samples == 0)
            continue;
        if (!__builtin_mul_overflow(samples, l->gather.outputs[output].bytes, &bytes))
            l->owned[place] = clt_alloc_pages((size_t)bytes);
        if (!l->owned[place])
            return clt_fail_prefix(CLT_OUT_OF_MEMORY,
                                   "data set '%s', batch %lld: ", l->gather.dataset->name,
                                   (long long)d->batch);
        l->memory[place] = l->owned[place];
    }
    int64_t samples = d->batch < l->gather.dataset->count ? d->batch : l->gather.dataset->count;
    for (int s = 0; s < d->slots; s++) {
        clt_loader_slot *slot = &l->slots[s];
        slot->offsets = clt_calloc((size_t)d->parts + 1, sizeof *slot->offsets);
        slot->part_weights = clt_calloc((size_t)d->local_parts, sizeof *slot->part_weights);
        slot->indices = clt_calloc((size_t)samples, sizeof *slot->indices);
        CLT_TRY_MEMORY(slot->offsets && slot->part_weights && slot->indices);
    }
    l->workers = clt_calloc((size_t)d->max_threads + 1, sizeof *l->workers);
    CLT_TRY_MEMORY(l->workers);
    for (int w = 0; w <= d->max_threads; w++) {
        clt_loader_thread *worker = &l->workers[w];
        worker->loader = l;
        worker->id = w;
        worker->weights = clt_calloc((size_t)d->local_parts + 1, sizeof *worker->weights);
        CLT_TRY_MEMORY(worker->weights);
        CLT_TRY(clt_scratch_init(&worker->scratch, &l->gather, l->chunk));
    }
    return CLT_OK;
}

clt_status clt_loader_start(clt_loader *loader)
{
    CLT_TRY(not_started(loader));
    /* A loader whose start failed cannot be started again, only freed. */
    loader->started = true;
    loader->chunk = chunk_of(loader);
    clt_tuner_init(&loader->tuner, loader->desc.min_threads, loader->desc.max_threads);
    CLT_TRY(make_memory(loader));
    for (int w = 0; w < loader->desc.max_threads; w++) {
        const int error =
            clt_thread_start(&loader->workers[w].thread, clt_loader_work, &loader->workers[w]);
        if (error)
            return clt_fail(CLT_OUT_OF_MEMORY, "thread %d of %d of a loader cannot be started: %s",
                            w + 1, loader->desc.max_threads, strerror(error));
        loader->worker_count++;
    }
    return CLT_OK;
}

void clt_loader_stop(clt_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->work);
    pthread_cond_broadcast(&loader->rest);
    pthread_cond_broadcast(&loader->ready);
    pthread_mutex_unlock(&loader->lock);
}

void clt_loader_free(clt_loader *loader)
{
    if (!loader)
        return;
    clt_loader_stop(loader);
    for (int w = 0; w < loader->worker_count; w++)
        pthread_join(loader->workers[w].thread, NULL);
    for (int w = 0; loader->workers && w <= loader->desc.max_threads; w++) {
        clt_scratch_free(&loader->workers[w].scratch);
        clt_free(loader->workers[w].weights);
    }
    for (int s = 0; loader->slots && s < loader->desc.slots; s++) {
        CLT_FREE(loader->slots[s].offsets, loader->slots[s].part_weights, loader->slots[s].indices);
    }
    for (int p = 0; p < loader->places; p++)
        clt_free(loader->owned[p]);
    clt_gather_free(&loader->gather);
    CLT_FREE(loader->workers, loader->slots, loader->owned, loader->memory, loader->capacity,
             loader->weights, loader->bounds);
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->rest);
    pthread_cond_destroy(&loader->ready);
    pthread_mutex_destroy(&loader->lock);
    clt_free(loader);
}
