/* Creates reservoirs, and tells about them. */
#include "data/reservoir/reservoir.h"

#include <time.h>

#include "base/alloc.h"
#include "base/error.h"

/* Spare places unless the options say how many: a part of the capacity, or so many that they take
 * SPARE_BYTES. */
enum { LEAST_SPARE = 16, USUAL_SPARE = 256, SPARE_BYTES = 64 << 20, SPARE_PART = 8 };

CLT_STRUCT_INIT(clt_reservoir_options, .least = 1, .ignore_index = INT64_MIN)

CLT_STRUCT_INIT(clt_reservoir_stats, )

clt_status clt_reservoir_of(const clt_dataset *dataset, clt_reservoir **out)
{
    if (!dataset)
        return clt_fail(CLT_INVALID_ARGUMENT, "the reservoir is NULL");
    if (dataset->kind != CLT_DATA_RESERVOIR)
        return clt_fail(CLT_UNSUPPORTED,
                        "data set '%s' is no reservoir: make one with clt_dataset_create_reservoir",
                        dataset->name);
    *out = dataset->payload;
    return CLT_OK;
}

static void reservoir_free(void *payload)
{
    clt_reservoir *r = payload;
    if (r->side_free)
        r->side_free(r->side);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->arrived);
    pthread_cond_destroy(&r->changed);
    CLT_FREE(r->entries, r->states, r->free, r->keys, r->heap, r);
}

static clt_status check(const char *name, int64_t capacity, const clt_reservoir_options *o)
{
    CLT_TRY(CLT_CHECK_STRUCT(o, clt_reservoir_options));
    if (o->policy < CLT_RESERVOIR_UNIFORM || o->policy > CLT_RESERVOIR_WEIGHTED)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "reservoir '%s': there is no policy %d: take CLT_RESERVOIR_UNIFORM, "
                        "_NEWEST or _WEIGHTED",
                        name ? name : "", (int)o->policy);
    if (capacity < 1 || o->spare < 0 || o->least < 1 || o->least > capacity ||
        o->spare > INT64_MAX / 2 || capacity > INT64_MAX / 4)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "reservoir '%s': capacity %lld must be at least 1, spare %lld at least 0, "
                        "and least %lld in 1 to the capacity",
                        name ? name : "", (long long)capacity, (long long)o->spare,
                        (long long)o->least);
    return CLT_OK;
}

static void clock_of_waits(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

clt_status clt_reservoir_create(const char *name, int64_t capacity,
                                const clt_reservoir_options *options, clt_dataset **out)
{
    clt_reservoir_options o;
    clt_reservoir_options_init(&o);
    if (options)
        o = *options;
    CLT_TRY(check(name, capacity, &o));
    clt_reservoir *r = CLT_NEW(clt_reservoir);
    CLT_TRY_MEMORY(r);
    r->options = o;
    r->capacity = capacity;
    const clt_status status = clt_dataset_new(CLT_DATA_RESERVOIR, name, capacity, out);
    if (status != CLT_OK) {
        clt_free(r);
        return status;
    }
    pthread_mutex_init(&r->lock, NULL);
    clock_of_waits(&r->arrived);
    pthread_cond_init(&r->changed, NULL);
    (*out)->present = &r->kept;
    (*out)->payload = r;
    (*out)->payload_free = reservoir_free;
    return CLT_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns how many places there are besides those of the capacity. `place`: bytes of one. */
static int64_t spare_of(const clt_reservoir *r, int64_t place)
{
    const int64_t fit = SPARE_BYTES / place;
    if (r->options.spare)
        return r->options.spare;
    return larger(larger(LEAST_SPARE, r->capacity / SPARE_PART),
                  fit < USUAL_SPARE ? fit : USUAL_SPARE);
}

/* Returns the bytes of all memory; -1 if the number does not fit in 63 bits. *places becomes the
 * number of places. */
static int64_t bytes_of(const clt_dataset *d, const clt_reservoir *r, int64_t *places)
{
    const bool weighted = r->options.policy == CLT_RESERVOIR_WEIGHTED;
    int64_t place = (int64_t)(sizeof *r->states + sizeof *r->free), bytes, tables;
    for (int f = 0; f < d->field_count; f++)
        if (__builtin_add_overflow(place, d->fields[f].bytes, &place))
            return -1;
    *places = r->capacity + spare_of(r, place);
    tables = (int64_t)(sizeof *r->entries + (weighted ? sizeof *r->keys + sizeof *r->heap : 0));
    if (__builtin_mul_overflow(place, *places, &bytes) ||
        __builtin_mul_overflow(tables, r->capacity, &tables) ||
        __builtin_add_overflow(bytes, tables, &bytes))
        return -1;
    return bytes;
}

static clt_status make_tables(clt_reservoir *r)
{
    const size_t n = (size_t)r->capacity, places = (size_t)r->places;
    const bool weighted = r->options.policy == CLT_RESERVOIR_WEIGHTED;
    r->entries = clt_calloc(n, sizeof *r->entries);
    r->states = clt_calloc(places, sizeof *r->states);
    r->free = clt_calloc(places, sizeof *r->free);
    r->keys = weighted ? clt_calloc(n, sizeof *r->keys) : NULL;
    r->heap = weighted ? clt_calloc(n, sizeof *r->heap) : NULL;
    return r->entries && r->states && r->free && (!weighted || (r->keys && r->heap))
               ? CLT_OK
               : CLT_OUT_OF_MEMORY;
}

static clt_status make(clt_dataset *d, clt_reservoir *r)
{
    const int64_t bytes = bytes_of(d, r, &r->places);
    if (!d->field_count)
        return clt_fail(CLT_STATE, "reservoir '%s' has no fields: add them first", d->name);
    clt_status status = bytes < 0 ? CLT_OUT_OF_MEMORY : make_tables(r);
    for (int f = 0; f < d->field_count && status == CLT_OK; f++) {
        clt_data_field *field = &d->fields[f];
        const size_t size = (size_t)(field->bytes * r->places);
        field->data = field->owned = clt_alloc_pages(size);
        clt_advise_huge(field->owned, size);
        status = field->owned ? CLT_OK : CLT_OUT_OF_MEMORY;
    }
    if (status != CLT_OK) {
        for (int f = 0; f < d->field_count; f++) {
            clt_free(d->fields[f].owned);
            d->fields[f].data = d->fields[f].owned = NULL;
        }
        CLT_FREE(r->entries, r->states, r->free, r->keys, r->heap);
        r->entries = NULL;
        r->states = NULL;
        r->free = r->heap = NULL;
        r->keys = NULL;
        return clt_fail(CLT_OUT_OF_MEMORY,
                        "reservoir '%s': %lld samples and %lld spare places need %.1f MB, which "
                        "cannot be allocated: take a smaller capacity",
                        d->name, (long long)r->capacity, (long long)(r->places - r->capacity),
                        bytes < 0 ? 0x1p63 / 1e6 : (double)bytes / 1e6);
    }
    for (int64_t i = 0; i < r->capacity; i++)
        r->entries[i].place = -1;
    for (int64_t p = r->places; p-- > 0;)
        r->free[r->n_free++] = p;
    r->made = true;
    return CLT_OK;
}

clt_status clt_reservoir_make(clt_dataset *dataset)
{
    clt_reservoir *r = NULL;
    CLT_TRY(clt_reservoir_of(dataset, &r));
    atomic_store(&dataset->sealed, true);
    pthread_mutex_lock(&r->lock);
    const clt_status status = r->made ? CLT_OK : make(dataset, r);
    pthread_mutex_unlock(&r->lock);
    if (status != CLT_OK)
        atomic_store(&dataset->sealed, false);
    return status;
}

bool clt_reservoir_ready(clt_reservoir *r, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t nanoseconds = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    pthread_mutex_lock(&r->lock);
    int error = 0;
    while (r->kept < r->options.least && !error && seconds > 0)
        error = pthread_cond_timedwait(&r->arrived, &r->lock, &until);
    const bool ready = r->kept >= r->options.least;
    pthread_mutex_unlock(&r->lock);
    return ready;
}

clt_status clt_dataset_reservoir_stats(clt_dataset *reservoir, clt_reservoir_stats *stats)
{
    clt_reservoir *r = NULL;
    int64_t places;
    if (!stats)
        return clt_fail(CLT_INVALID_ARGUMENT, "the place for the statistics is NULL");
    CLT_TRY(clt_reservoir_of(reservoir, &r));
    CLT_TRY(CLT_CHECK_STRUCT(stats, clt_reservoir_stats));
    pthread_mutex_lock(&r->lock);
    *stats = (clt_reservoir_stats){.struct_size = sizeof *stats,
                                   .capacity = r->capacity,
                                   .bytes = bytes_of(reservoir, r, &places),
                                   .seen = r->seen,
                                   .kept = r->kept,
                                   .replaced = r->replaced,
                                   .declined = r->declined,
                                   .dropped = r->dropped};
    pthread_mutex_unlock(&r->lock);
    return CLT_OK;
}
