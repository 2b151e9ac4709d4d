/* Reservoirs whose samples may come from OpenCL buffers. Buffers are read into memory of the host
 * piece by piece, and the pieces are pushed. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "data/reservoir/reservoir.h"
#include "device/core/side_queue.h"
#include "train/core/reservoir_buffers.h"

/* Bytes of a piece, unless a sample is larger. */
enum { PIECE = 4 << 20 };

struct clt_reservoir_side {
    _Atomic int owners;    /* the reservoir, and who lends a device */
    pthread_mutex_t lock;  /* guards the rest: one push of buffers at a time */
    clt_device *device;    /* of the buffers' context; NULL: none is known */
    const void *lender;    /* who lent the device; NULL: it is clt_reservoir_options.device */
    clt_side_queue *queue; /* of the device; NULL until the first push of buffers */
    char *memory;          /* a piece; NULL until the first push of buffers */
    int64_t most;          /* samples of a piece */
};

static void set_device(clt_reservoir_side *s, clt_device *device, const void *lender)
{
    clt_side_queue_destroy(s->queue);
    s->queue = NULL;
    s->device = device;
    s->lender = lender;
}

static void leave(clt_reservoir_side *s)
{
    if (--s->owners > 0)
        return;
    pthread_mutex_destroy(&s->lock);
    CLT_FREE(s->memory, s);
}

static void side_free(void *user)
{
    clt_reservoir_side *s = user;
    pthread_mutex_lock(&s->lock);
    set_device(s, NULL, NULL);
    pthread_mutex_unlock(&s->lock);
    leave(s);
}

clt_status clt_dataset_create_reservoir(const char *name, int64_t capacity,
                                        const clt_reservoir_options *options, clt_dataset **out)
{
    clt_dataset *d;
    CLT_TRY(clt_reservoir_create(name, capacity, options, &d));
    clt_reservoir *r = d->payload;
    clt_reservoir_side *s = CLT_NEW(clt_reservoir_side);
    clt_status status = s ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (r->options.device)
        CLT_NEXT(status, clt_side_queue_create(r->options.device, &s->queue));
    if (status != CLT_OK) {
        clt_free(s);
        clt_dataset_free(d);
        return status;
    }
    s->owners = 1;
    s->device = r->options.device;
    pthread_mutex_init(&s->lock, NULL);
    r->side = s;
    r->side_free = side_free;
    *out = d;
    return CLT_OK;
}

clt_reservoir_side *clt_reservoir_lend(clt_dataset *reservoir, clt_device *device,
                                       const void *lender)
{
    clt_reservoir *r = reservoir->payload;
    clt_reservoir_side *s = r->side;
    s->owners++;
    pthread_mutex_lock(&s->lock);
    if (!r->options.device)
        set_device(s, device, lender);
    pthread_mutex_unlock(&s->lock);
    return s;
}

void clt_reservoir_take_back(clt_reservoir_side *s, const void *lender)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    if (s->lender == lender)
        set_device(s, NULL, NULL);
    pthread_mutex_unlock(&s->lock);
    leave(s);
}

static bool any_buffer(const clt_dataset *d, const clt_array *fields)
{
    for (int f = 0; f < d->field_count; f++)
        if (fields[f].buffer)
            return true;
    return false;
}

/* Checks the buffers of a push. */
static clt_status check_buffers(const clt_dataset *d, const clt_device *device,
                                const clt_array *fields, int64_t count)
{
    for (int f = 0; f < d->field_count; f++) {
        const clt_data_field *field = &d->fields[f];
        int64_t needed;
        char what[300];
        if (!fields[f].buffer)
            continue;
        snprintf(what, sizeof what, "reservoir '%.120s', field '%.120s'", d->name, field->name);
        if (!device)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "%s: a buffer was given, but clt_reservoir_options.device names no "
                            "device of its context, and no trainer has the reservoir "
                            "(clt_trainer_set_reservoir)",
                            what);
        if (__builtin_mul_overflow(count, field->bytes, &needed))
            needed = INT64_MAX;
        CLT_TRY(
            clt_buffer_check(device, fields[f].buffer, false, fields[f].offset, needed, 1, what));
    }
    return CLT_OK;
}

static clt_status make_memory(const clt_dataset *d, clt_reservoir_side *s)
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
static clt_status push_piece(clt_dataset *d, clt_reservoir_side *s, const clt_array *fields,
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

static clt_status push_buffers(clt_dataset *d, clt_reservoir_side *s, const clt_array *fields,
                               const double *weights, int64_t count)
{
    CLT_TRY(check_buffers(d, s->device, fields, count));
    CLT_TRY(make_memory(d, s));
    if (!s->queue)
        CLT_TRY(clt_side_queue_create(s->device, &s->queue));
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
    CLT_TRY(clt_reservoir_of(reservoir, &r));
    CLT_TRY(clt_reservoir_make(reservoir));
    CLT_TRY(clt_reservoir_check(reservoir, fields, n_fields, &count));
    CLT_TRY(clt_reservoir_check_weights(reservoir, weights, count));
    if (!any_buffer(reservoir, fields))
        return clt_reservoir_put(reservoir, fields, weights, count, 0);
    clt_reservoir_side *s = r->side;
    pthread_mutex_lock(&s->lock);
    const clt_status status = push_buffers(reservoir, s, fields, weights, count);
    pthread_mutex_unlock(&s->lock);
    return status;
}
