/* Pushes samples of arrays of the host, and draws samples to arrays of the host. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/error.h"
#include "data/reservoir/reservoir.h"

/* The most samples that a push copies before it publishes them, and the most that it decides about
 * while it keeps the lock. */
enum { MOST_COPIED = 64, MOST_DECIDED = 256 };

clt_array clt_reservoir_slice(const clt_array *array, int64_t first, int64_t count)
{
    clt_array a = *array;
    if (a.host) /* an offset must not be negative, as it would be with a negative stride */
        a.host = (char *)a.host + first * a.strides[0];
    else
        a.offset += first * a.strides[0];
    a.shape[0] = count;
    a.bytes = 0; /* the whole array was checked */
    return a;
}

clt_status clt_reservoir_check(const clt_dataset *d, const clt_array *fields, int n_fields,
                               int64_t *count)
{
    if (n_fields != d->field_count || !fields)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "reservoir '%s' has %d fields, and %d arrays were given: give an array for "
                        "each field, in the order in which the fields were added",
                        d->name, d->field_count, fields ? n_fields : 0);
    for (int f = 0; f < n_fields; f++) {
        const clt_data_field *field = &d->fields[f];
        int64_t shape[CLT_MAX_RANK] = {*count >= 0 ? *count : fields[0].shape[0]};
        char what[300];
        snprintf(what, sizeof what, "reservoir '%.120s', field '%.120s': the array", d->name,
                 field->name);
        memcpy(shape + 1, field->shape, (size_t)field->rank * sizeof *shape);
        if (fields[f].whole || fields[f].rank < 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "%s needs a shape, whose first dimension counts the samples", what);
        CLT_TRY(clt_array_fits(&fields[f], what, field->dtype, field->rank + 1, shape));
    }
    *count = fields[0].shape[0];
    return CLT_OK;
}

clt_status clt_reservoir_check_weights(const clt_dataset *d, const double *weights, int64_t count)
{
    const clt_reservoir *r = d->payload;
    const bool weighted = r->options.policy == CLT_RESERVOIR_WEIGHTED;
    if (count && weighted != (weights != NULL))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        weighted ? "reservoir '%s' keeps samples by weight: give a weight for each"
                                 : "reservoir '%s' has a policy without weights: give NULL for "
                                   "them, or take CLT_RESERVOIR_WEIGHTED",
                        d->name);
    for (int64_t i = 0; weights && i < count; i++)
        if (!isfinite(weights[i]) || weights[i] < 0)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "reservoir '%s': the weight of sample %lld of this push is %g: it must "
                            "be finite and not negative",
                            d->name, (long long)i, weights[i]);
    return CLT_OK;
}

/* --- values ------------------------------------------------------------------------------------
 */

/* Reads element `index`, counted row-major, of an array of u8, i32 or i64. */
static int64_t label_at(const clt_array *a, int64_t index)
{
    int64_t at = a->offset;
    for (int d = a->rank - 1; d >= 0; d--) {
        at += index % a->shape[d] * a->strides[d];
        index /= a->shape[d];
    }
    const char *from = (const char *)a->host + at;
    int32_t narrow;
    int64_t wide;
    if (a->dtype == CLT_U8)
        return *(const unsigned char *)from;
    if (a->dtype == CLT_I64) {
        memcpy(&wide, from, sizeof wide);
        return wide;
    }
    memcpy(&narrow, from, sizeof narrow);
    return narrow;
}

static clt_status check_labels(const clt_dataset *d, const clt_data_field *field,
                               const clt_array *array, int64_t before)
{
    const clt_reservoir *r = d->payload;
    const int64_t n = array->shape[0] * field->elements;
    for (int64_t i = 0; i < n; i++) {
        const int64_t label = label_at(array, i);
        if (label != r->options.ignore_index && (label < 0 || label >= field->classes))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "reservoir '%s', field '%s': label %lld of sample %lld of this push is "
                            "out of range: 0 to %lld",
                            d->name, field->name, (long long)label,
                            (long long)(before + i / field->elements),
                            (long long)field->classes - 1);
    }
    return CLT_OK;
}

/* Fails if an i64 does not fit into a field of i32: copies all elements to one. */
static clt_status check_range(const clt_dataset *d, const clt_data_field *field,
                              const clt_array *array)
{
    int32_t any;
    clt_array to = {.host = &any, .dtype = CLT_I32, .rank = array->rank};
    memcpy(to.shape, array->shape, sizeof to.shape);
    const clt_status status = clt_array_copy(array, &to);
    if (status != CLT_OK)
        return clt_fail_prefix(status, "reservoir '%s', field '%s': ", d->name, field->name);
    return CLT_OK;
}

static clt_status check_values(const clt_dataset *d, const clt_array *fields, int64_t before)
{
    for (int f = 0; f < d->field_count; f++) {
        const clt_data_field *field = &d->fields[f];
        if (fields[f].dtype == CLT_I64)
            CLT_TRY(check_range(d, field, &fields[f]));
        if (field->classes)
            CLT_TRY(check_labels(d, field, &fields[f], before));
    }
    return CLT_OK;
}

/* --- copies ------------------------------------------------------------------------------------
 */

/* Returns a field's sample at a place, as an array of one sample. */
static clt_array at_place(const clt_data_field *field, int64_t place)
{
    int64_t shape[CLT_MAX_RANK] = {1};
    memcpy(shape + 1, field->shape, (size_t)field->rank * sizeof *shape);
    return clt_array_dense((const char *)field->owned + place * field->bytes, field->dtype,
                           field->rank + 1, shape);
}

static clt_status copy_in(const clt_dataset *d, const clt_array *fields, int64_t sample,
                          int64_t place)
{
    for (int f = 0; f < d->field_count; f++) {
        const clt_data_field *field = &d->fields[f];
        const clt_array from = clt_reservoir_slice(&fields[f], sample, 1);
        if (from.dtype == field->dtype && clt_array_is_dense(&from)) {
            memcpy((char *)field->owned + place * field->bytes,
                   (const char *)from.host + from.offset, (size_t)field->bytes);
            continue;
        }
        const clt_array to = at_place(field, place);
        CLT_TRY(clt_array_copy(&from, &to));
    }
    return CLT_OK;
}

/* A sample between the decision and its publication. */
typedef struct pending {
    clt_reservoir_decision decision;
    int64_t place, sample;
    int64_t restores; /* of the reservoir at the decision */
    bool copied;
} pending;

/* Publishes what was copied, then decides about further samples from *next on. Returns how many are
 * to be copied. Most spare places are left to other threads. */
static int go_on(clt_reservoir *r, pending *batch, int n, const double *weights, int64_t count,
                 int64_t *next)
{
    const int64_t part = (r->places - r->capacity) / 8;
    const int most = part < 1 ? 1 : part > MOST_COPIED ? MOST_COPIED : (int)part;
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < n; i++) {
        const pending *p = &batch[i];
        if (p->restores != r->restores) { /* the samples of a file have replaced all others */
            clt_reservoir_release(r, p->place);
        } else if (p->copied) {
            clt_reservoir_publish(r, p->decision.index, p->decision.number, p->place);
        } else {
            r->dropped++;
            clt_reservoir_release(r, p->place);
        }
    }
    clt_reservoir_await_restore(r);
    n = 0;
    for (int k = 0; k < MOST_DECIDED && n < most && *next < count; k++) {
        const int64_t sample = *next;
        const clt_reservoir_decision d = clt_reservoir_decide(r, weights ? weights[sample] : 1);
        const bool wanted = d.index >= 0;
        if (wanted && !r->n_free && n)
            break;
        r->seen++;
        ++*next;
        if (wanted && !r->n_free) { /* the sample does not get a number */
            r->dropped++;
            continue;
        }
        clt_reservoir_commit(r, &d);
        if (wanted)
            batch[n++] = (pending){d, r->free[--r->n_free], sample, r->restores, false};
        else
            r->declined++;
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}

clt_status clt_reservoir_put(clt_dataset *d, const clt_array *fields, const double *weights,
                             int64_t count, int64_t before)
{
    clt_reservoir *r = d->payload;
    pending batch[MOST_COPIED];
    clt_status status = CLT_OK;
    int64_t next = 0;
    int n = 0;
    if (!count)
        return CLT_OK;
    CLT_TRY(check_values(d, fields, before));
    do {
        n = go_on(r, batch, n, weights, count, &next);
        for (int i = 0; i < n; i++) {
            /* Values were checked. A copy fails only if another thread changes them. */
            const clt_status copied = copy_in(d, fields, batch[i].sample, batch[i].place);
            batch[i].copied = copied == CLT_OK;
            status = status == CLT_OK ? copied : status;
        }
    } while (n || next < count);
    return status;
}

/* --- draws -------------------------------------------------------------------------------------
 */

static clt_status copy_out(const clt_dataset *d, const clt_array *fields, const int64_t *places,
                           int64_t count)
{
    for (int f = 0; f < d->field_count; f++)
        for (int64_t i = 0; i < count; i++) {
            const clt_array from = at_place(&d->fields[f], places[i]);
            const clt_array to = clt_reservoir_slice(&fields[f], i, 1);
            CLT_TRY(clt_array_copy(&from, &to));
        }
    return CLT_OK;
}

clt_status clt_dataset_draw(clt_dataset *reservoir, uint64_t seed, int64_t step, int64_t first,
                            int64_t count, const clt_array *fields, int n_fields, int64_t *drawn)
{
    clt_reservoir *r = NULL;
    CLT_TRY(clt_reservoir_of(reservoir, &r));
    if (step < 0 || first < 0 || count < 0 || !drawn)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "reservoir '%s': %lld samples from position %lld of step %lld: numbers "
                        "must be at least 0, and the place for the number of samples not NULL",
                        reservoir->name, (long long)count, (long long)first, (long long)step);
    CLT_TRY(clt_reservoir_check(reservoir, fields, n_fields, &count));
    for (int f = 0; f < n_fields; f++)
        if (fields[f].buffer)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "reservoir '%s', field '%s': samples are drawn to memory of the host, "
                            "not to buffers",
                            reservoir->name, reservoir->fields[f].name);
    CLT_TRY(clt_reservoir_make(reservoir));
    int64_t *places = clt_calloc((size_t)count + 1, sizeof *places);
    CLT_TRY_MEMORY(places);
    clt_status status = CLT_OK;
    *drawn = 0;
    if (clt_reservoir_pin(r, seed, step, first, count, places, NULL)) {
        status = copy_out(reservoir, fields, places, count);
        clt_reservoir_unpin(r, places, count);
        *drawn = count;
    }
    clt_free(places);
    return status;
}
