#include "train/store/copies.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/error.h"
#include "train/store/parts.h"

CLT_STRUCT_INIT(clt_tensor_copy, )

/* --- checks ---------------------------------------------------------------------------------- */

static int64_t elements_of(const clt_slot *slot)
{
    return clt_type_elements(&slot->whole, 0);
}

/* Elements of a row along the first dimension. */
static int64_t row_of(const clt_slot *slot)
{
    return slot->whole.rank && slot->whole.dims[0] ? elements_of(slot) / slot->whole.dims[0] : 1;
}

/* The elements that are copied. */
static int64_t copied(const clt_tensor_copy *copy, const clt_slot *slot)
{
    if (copy->rows)
        return copy->n_rows * row_of(slot);
    return copy->count ? copy->count : elements_of(slot) - copy->first;
}

static clt_status check_elements(const clt_tensor_copy *copy, const clt_slot *slot)
{
    const int64_t all = elements_of(slot), rows = slot->whole.rank ? slot->whole.dims[0] : 0;
    if (copy->rows && (copy->first || copy->count))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "copy of %s: it has rows and elements: leave first and count 0",
                        copy->name);
    if (copy->n_rows < 0 || (copy->n_rows && !copy->rows))
        return clt_fail(CLT_INVALID_ARGUMENT, "copy of %s: it has %lld rows, and rows is %s",
                        copy->name, (long long)copy->n_rows, copy->rows ? "given" : "NULL");
    for (int64_t i = 0; i < copy->n_rows; i++)
        if (copy->rows[i] < 0 || copy->rows[i] >= rows)
            return clt_fail(CLT_INVALID_ARGUMENT, "copy of %s: there is no row %lld of %lld",
                            copy->name, (long long)copy->rows[i], (long long)rows);
    if (copy->first < 0 || copy->count < 0 || copy->first > all || copy->count > all - copy->first)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "copy of %s: elements %lld to %lld are not within its %lld", copy->name,
                        (long long)copy->first, (long long)(copy->first + copy->count),
                        (long long)all);
    return CLT_OK;
}

/* Describes dense memory of the elements that are copied. */
static clt_array dense_of(const clt_tensor_copy *copy, const clt_slot *slot, const void *host)
{
    const bool all = !copy->rows && !copy->first && !copy->count;
    int64_t dims[CLT_MAX_RANK] = {copied(copy, slot)};
    if (copy->rows || all)
        memcpy(dims, slot->whole.dims, sizeof dims);
    if (copy->rows)
        dims[0] = copy->n_rows;
    return clt_array_dense(host, slot->whole.dtype, copy->rows || all ? slot->whole.rank : 1, dims);
}

static clt_status check_memory(const clt_tensor_copy *copy, const clt_slot *slot,
                               const clt_device *device)
{
    const clt_array *array = &copy->array, wanted = dense_of(copy, slot, NULL);
    char what[200];
    snprintf(what, sizeof what, "copy of %s: its array", copy->name);
    CLT_TRY(clt_array_fits(array, what, wanted.dtype, wanted.rank, wanted.shape));
    if (!array->buffer)
        return CLT_OK;
    return clt_buffer_check(device, array->buffer, false, array->offset, wanted.bytes,
                            clt_dtype_size(wanted.dtype), what);
}

clt_status clt_copy_check(const clt_store *store, const clt_tensor_copy *copy, bool in, bool event,
                          const clt_slot **slot)
{
    CLT_TRY(CLT_CHECK_STRUCT(copy, clt_tensor_copy));
    CLT_TRY(clt_store_check_devices(store));
    if (!copy->name)
        return clt_fail(CLT_INVALID_ARGUMENT, "a copy has no name of a tensor");
    CLT_TRY(clt_store_slot(store, copy->name, slot));
    if (copy->device < (in ? -1 : 0) || copy->device >= store->n_devices)
        return clt_fail(CLT_INVALID_ARGUMENT, "copy of %s: there is no device %d of %d", copy->name,
                        copy->device, store->n_devices);
    if (event && (!copy->array.buffer || (copy->device < 0 && store->n_devices > 1)))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "copy of %s: an event needs a buffer and one device: pass NULL",
                        copy->name);
    if (copy->n_wait < 0 || (copy->n_wait && !copy->wait))
        return clt_fail(CLT_INVALID_ARGUMENT, "copy of %s: it has no list of %d events", copy->name,
                        copy->n_wait);
    CLT_TRY(check_elements(copy, *slot));
    for (int d = 0; d < store->n_devices; d++)
        if (copy->device < 0 || d == copy->device)
            CLT_TRY(check_memory(copy, *slot, store->replicas[d].device));
    return CLT_OK;
}

clt_status clt_copy_of_part(const clt_store *store, int device, const clt_slot *slot,
                            const char *instead)
{
    return clt_fail(CLT_UNSUPPORTED, "copy of %s: %s does not have all of it: %s", slot->name,
                    store->replicas[device].device->label, instead);
}

/* --- copies ---------------------------------------------------------------------------------- */

/* Elements that lie one after the other in the tensor and in the caller's memory. */
typedef struct piece {
    int64_t tensor, caller, count;
} piece;

/* Finds the piece behind `p`; the first, if its count is 0. Neighbouring rows are one piece. */
static bool next_piece(const clt_tensor_copy *copy, const clt_slot *slot, piece *p)
{
    const int64_t row = row_of(slot), all = copied(copy, slot);
    p->caller += p->count;
    if (p->caller >= all)
        return false;
    if (!copy->rows) {
        *p = (piece){copy->first, 0, all};
        return true;
    }
    int64_t at = p->caller / row, end = at + 1;
    while (end < copy->n_rows && copy->rows[end] == copy->rows[end - 1] + 1)
        end++;
    p->tensor = copy->rows[at] * row;
    p->count = (end - at) * row;
    return true;
}

static clt_view element(clt_view view, int64_t index, int64_t size)
{
    return (clt_view){view.buffer, view.offset + index * size};
}

/* A tensor whose elements are those of the caller's memory. */
static clt_status run_plain(clt_device *device, const clt_tensor_copy *copy, const clt_slot *slot,
                            clt_view tensor, bool in)
{
    const int64_t size = clt_dtype_size(slot->whole.dtype);
    for (piece p = {0}; next_piece(copy, slot, &p);) {
        const clt_view at = element(tensor, p.tensor, size);
        const clt_view own =
            element((clt_view){copy->array.buffer, copy->array.offset}, p.caller, size);
        char *host = (char *)copy->array.host + copy->array.offset + p.caller * size;
        const int64_t bytes = p.count * size;
        if (copy->array.buffer)
            CLT_TRY(in ? clt_enqueue_copy(device, own, at, bytes)
                       : clt_enqueue_copy(device, at, own, bytes));
        else
            CLT_TRY(in ? clt_enqueue_upload(device, at, host, bytes)
                       : clt_enqueue_download(device, at, host, bytes, NULL));
    }
    return CLT_OK;
}

static clt_status convert_pieces(const clt_convert *convert, const clt_tensor_copy *copy,
                                 const clt_slot *slot, clt_view tensor, clt_view floats)
{
    for (piece p = {0}; next_piece(copy, slot, &p);) {
        const clt_view at = element(tensor, p.tensor, 2), own = element(floats, p.caller, 4);
        CLT_TRY(clt_convert_enqueue(convert, convert->rounds ? own : at, convert->rounds ? at : own,
                                    p.count));
    }
    return CLT_OK;
}

/* A tensor in 16 bits. Memory of the host is converted in a buffer of floats on the device. */
static clt_status run_half(clt_device *device, const clt_tensor_copy *copy, const clt_slot *slot,
                           const clt_copy_place *place, bool in)
{
    const int64_t bytes = copied(copy, slot) * 4;
    char *host = (char *)copy->array.host + copy->array.offset;
    clt_view floats = {copy->array.buffer, copy->array.offset};
    clt_convert convert = {0};
    if (!bytes)
        return CLT_OK;
    clt_status status =
        clt_convert_create(device, place->dtype, in, place->status, place->scale, &convert);
    if (status == CLT_OK && !copy->array.buffer) {
        floats.offset = 0;
        status = clt_device_buffer_create(device, bytes, CL_MEM_READ_WRITE, "a gradient in f32",
                                          &floats.buffer);
    }
    if (!copy->array.buffer && in)
        CLT_NEXT(status, clt_enqueue_upload(device, floats, host, bytes));
    CLT_NEXT(status, convert_pieces(&convert, copy, slot, place->at, floats));
    if (!copy->array.buffer && !in)
        CLT_NEXT(status, clt_enqueue_download(device, floats, host, bytes, NULL));
    if (!copy->array.buffer) {
        CLT_NEXT(status, clt_device_finish(device));
        clt_release_buffer(floats.buffer);
    }
    clt_convert_destroy(&convert);
    return status;
}

/* Gives the caller an event of the commands so far. */
static clt_status mark(clt_device *device, cl_event *event)
{
    cl_event own = NULL;
    if (!event)
        return CLT_OK;
    clt_status status = clt_enqueue_download(device, (clt_view){0}, NULL, 0, &own);
    CLT_NEXT(status, clt_event_share(device, own, event));
    clt_release_event(own);
    return status;
}

static clt_status copy_dense(clt_device *on, const clt_tensor_copy *copy, const clt_slot *slot,
                             const clt_copy_place *place, bool in, cl_event *event)
{
    const bool half = place->dtype == CLT_F16 || place->dtype == CLT_BF16;
    CLT_TRY(clt_enqueue_wait(on, copy->n_wait, copy->wait));
    const clt_status status =
        half ? run_half(on, copy, slot, place, in) : run_plain(on, copy, slot, place->at, in);
    if (!copy->array.buffer) { /* also if it failed: the caller may free its memory now */
        const clt_status finished = clt_device_finish(on);
        return status != CLT_OK ? status : finished;
    }
    CLT_TRY(status);
    CLT_TRY(mark(on, event));
    return clt_device_flush(on);
}

/* Memory with gaps, or of another type, goes through dense memory. */
clt_status clt_copy_run(const clt_store *store, const clt_tensor_copy *copy, int device,
                        const clt_slot *slot, const clt_copy_place *place, bool in, cl_event *event)
{
    clt_device *on = store->replicas[device].device;
    if (clt_array_in_place(&copy->array, slot->whole.dtype))
        return copy_dense(on, copy, slot, place, in, event);
    clt_tensor_copy own = *copy;
    own.array = dense_of(copy, slot, NULL);
    own.array.host = clt_alloc((size_t)own.array.bytes + 1);
    CLT_TRY_MEMORY(own.array.host);
    clt_status status = CLT_OK;
    if (in)
        status = clt_array_copy(&copy->array, &own.array);
    CLT_NEXT(status, copy_dense(on, &own, slot, place, in, event));
    if (!in)
        CLT_NEXT(status, clt_array_copy(&own.array, &copy->array));
    clt_free(own.array.host);
    return status == CLT_OK ? CLT_OK : clt_fail_prefix(status, "copy of %s: ", copy->name);
}

/* --- parameters and states ------------------------------------------------------------------- */

static clt_status copy_value(const clt_store *store, const clt_tensor_copy *copy, bool in,
                             cl_event *event)
{
    const clt_slot *slot;
    CLT_TRY(clt_copy_check(store, copy, in, event != NULL, &slot));
    if (copy->of != CLT_COPY_VALUE)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "copy of %s: gradients and slots are the trainer's: call "
                        "clt_trainer_copy_%s",
                        copy->name, in ? "in" : "out");
    for (int d = 0; d < store->n_devices; d++) {
        const clt_slot *part = clt_store_part(store, d, slot);
        const clt_copy_place place = {
            .at = {clt_store_buffer(store, d, CLT_VALUES, slot), part->offset}, .dtype = CLT_F32};
        if (copy->device >= 0 && d != copy->device)
            continue;
        if (slot->sharding.blocks || part->bytes != slot->bytes)
            return clt_copy_of_part(store, d, slot,
                                    in ? "call clt_store_set" : "call clt_store_get");
        CLT_TRY(clt_copy_run(store, copy, d, slot, &place, in, event));
    }
    return CLT_OK;
}

clt_status clt_store_copy_out(clt_store *store, const clt_tensor_copy *copy,
                              struct _cl_event **event)
{
    return copy_value(store, copy, false, event);
}

clt_status clt_store_copy_in(clt_store *store, const clt_tensor_copy *copy,
                             struct _cl_event **event)
{
    return copy_value(store, copy, true, event);
}
