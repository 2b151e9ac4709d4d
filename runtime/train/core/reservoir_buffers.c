/* Reservoirs whose samples may come from OpenCL buffers. Buffers are read into memory of the host
 * piece by piece, and the pieces are pushed. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "data/reservoir/reservoir.h"
#include "device/core/side_queue.h"

/* Bytes of a piece, unless a sample is larger. */
enum { PIECE = 4 << 20 };

/* What a reservoir needs for buffers. */
typedef struct side {
    pthread_mutex_t lock; /* guards the rest: one push of buffers at a time */
    clt_side_queue *queue;
    char *memory; /* a piece; NULL until the first push of buffers */
    int64_t most; /* samples of a piece */
} side;

static void side_free(void *user)
{
    side *s = user;
    clt_side_queue_destroy(s->queue);
    pthread_mutex_destroy(&s->lock);
    CLT_FREE(s->memory, s);
}

clt_status clt_dataset_create_reservoir(const char *name, int64_t capacity,
                                        const clt_reservoir_options *options, clt_dataset **out)
{
    clt_dataset *d;
    CLT_TRY(clt_reservoir_create(name, capacity, options, &d));
    clt_reservoir *r = d->payload;
    if (r->options.device) {
        side *s = CLT_NEW(side);
        clt_status status = s ? CLT_OK : CLT_OUT_OF_MEMORY;
        CLT_NEXT(status, clt_side_queue_create(r->options.device, &s->queue));
        if (status != CLT_OK) {
            clt_free(s);
            clt_dataset_free(d);
            return status;
        }
        pthread_mutex_init(&s->lock, NULL);
        r->side = s;
        r->side_free = side_free;
    }
    *out = d;
    return CLT_OK;
}

/* Checks the buffers of a push. *any becomes true if there are some. */
static clt_status check_buffers(const clt_dataset *d, const clt_array *fields, int64_t count,
                                bool *any)
{
    const clt_reservoir *r = d->payload;
    const clt_device *device = r->options.device;
    *any = false;
    for (int f = 0; f < d->field_count; f++) {
        const clt_data_field *field = &d->fields[f];
        int64_t needed;
        char what[300];
        if (!fields[f].buffer)
            continue;
        *any = true;
        snprintf(what, sizeof what, "reservoir '%.120s', field '%.120s'", d->name, field->name);
        if (!device)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "%s: a buffer was given, but clt_reservoir_options.device names no "
                            "device of its context",
                            what);
        if (__builtin_mul_overflow(count, field->bytes, &needed))
            needed = INT64_MAX;
        CLT_TRY(
            clt_buffer_check(device, fields[f].buffer, false, fields[f].offset, needed, 1, what));
    }
    return CLT_OK;
}

static clt_status make_memory(const clt_dataset *d, side *s)
{
    int64_t bytes = 0;
    if (s->memory)
        return CLT_OK;
    for (int f = 0; f < d->field_count; f++)
        bytes += d->fields[f].bytes;
    s->most = bytes < PIECE ? PIECE / bytes : 1;
    s->memory = clt_alloc_pages((size_t)(s->most * bytes));
    return s->memory ? CLT_OK : CLT_OUT_OF_MEMORY;
}

/* Reads the buffers of a piece, and pushes the piece. */
static clt_status push_piece(clt_dataset *d, side *s, const clt_array *fields,
                             const double *weights, int64_t first, int64_t count)
{
    clt_array piece[CLT_DATA_MAX_FIELDS];
    char *memory = s->memory;
    for (int f = 0; f < d->field_count; f++) {
        const clt_data_field *field = &d->fields[f];
        piece[f] = clt_reservoir_slice(&fields[f], first, count);
        if (!fields[f].buffer)
            continue;
        const clt_status status =
            clt_side_queue_read(s->queue, fields[f].buffer, fields[f].offset + first * field->bytes,
                                count * field->bytes, memory);
        if (status != CLT_OK)
            return clt_fail_prefix(status, "reservoir '%s', field '%s': ", d->name, field->name);
        piece[f] = clt_array_dense(memory, field->dtype, field->rank + 1, piece[f].shape);
        memory += s->most * field->bytes;
    }
    return clt_reservoir_put(d, piece, weights ? weights + first : NULL, count, first);
}

static clt_status push_buffers(clt_dataset *d, side *s, const clt_array *fields,
                               const double *weights, int64_t count)
{
    CLT_TRY(make_memory(d, s));
    for (int64_t first = 0; first < count; first += s->most) {
        const int64_t n = count - first < s->most ? count - first : s->most;
        const clt_status status = push_piece(d, s, fields, weights, first, n);
        if (status == CLT_OK || !first)
            CLT_TRY(status);
        else
            return clt_fail(status, "%s; %lld samples of this push were taken before",
                            clt_error_message(), (long long)first);
    }
    return CLT_OK;
}

clt_status clt_dataset_push(clt_dataset *reservoir, const clt_array *fields, int n_fields,
                            const double *weights)
{
    clt_reservoir *r = NULL;
    int64_t count = -1;
    bool buffers;
    CLT_TRY(clt_reservoir_of(reservoir, &r));
    CLT_TRY(clt_reservoir_make(reservoir));
    CLT_TRY(clt_reservoir_check(reservoir, fields, n_fields, &count));
    CLT_TRY(clt_reservoir_check_weights(reservoir, weights, count));
    CLT_TRY(check_buffers(reservoir, fields, count, &buffers));
    if (!buffers)
        return clt_reservoir_put(reservoir, fields, weights, count, 0);
    side *s = r->side;
    pthread_mutex_lock(&s->lock);
    const clt_status status = push_buffers(reservoir, s, fields, weights, count);
    pthread_mutex_unlock(&s->lock);
    return status;
}
