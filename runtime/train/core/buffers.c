#include "train/core/buffers.h"

#include <stdio.h>

#include "base/alloc.h"

/* The payload of a data set of buffers: for each field, the place of sample 0. */
typedef struct buffers {
    clt_view views[CLT_DATA_MAX_FIELDS];
} buffers;

static void free_buffers(void *payload)
{
    buffers *b = payload;
    for (int i = 0; i < CLT_DATA_MAX_FIELDS; i++)
        if (b->views[i].buffer)
            clt_buffer_return(b->views[i].buffer);
    clt_free(b);
}

clt_status clt_dataset_create_buffers(const char *name, int64_t count, clt_dataset **out)
{
    buffers *b = CLT_NEW(buffers);
    CLT_TRY_MEMORY(b);
    clt_status status = clt_dataset_new_device(name, count, b, free_buffers, out);
    if (status != CLT_OK)
        clt_free(b);
    return status;
}

clt_status clt_dataset_add_buffer(clt_dataset *dataset, const char *name, clt_dtype dtype, int rank,
                                  const int64_t *shape, cl_mem buffer, int64_t offset, int *out)
{
    clt_data_field field;
    int64_t total;
    int index;
    CLT_TRY(clt_dataset_measure_field(dataset, name, dtype, rank, shape, &field, &total));
    if (dataset->kind != CLT_DATA_DEVICE)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s', field '%s': a buffer was given, but the data set was not "
                        "made by clt_dataset_create_buffers",
                        dataset->name, name);
    char what[300];
    snprintf(what, sizeof what, "data set '%.120s', field '%.120s'", dataset->name, name);
    CLT_TRY(clt_buffer_borrow(buffer, offset, total, clt_dtype_size(dtype), what));
    const clt_status status = clt_dataset_append_field(dataset, name, &field, &index);
    if (status != CLT_OK) {
        clt_buffer_return(buffer);
        return status;
    }
    buffers *b = dataset->payload;
    b->views[index] = (clt_view){buffer, offset};
    if (out)
        *out = index;
    return CLT_OK;
}

clt_status clt_dataset_add_array(clt_dataset *dataset, const char *name, const clt_array *samples,
                                 clt_data_ownership ownership, int *out)
{
    if (!dataset || !samples)
        return clt_fail(CLT_INVALID_ARGUMENT, "the %s is NULL", dataset ? "array" : "data set");
    if (!samples->buffer || samples->host)
        return clt_dataset_add_host_array(dataset, name, samples, ownership, out);
    CLT_TRY(clt_array_check(samples, "an array of samples"));
    if (samples->whole || samples->rank < 1 || samples->shape[0] != dataset->count)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s', field '%s': the first dimension of the array must be its "
                        "%lld samples",
                        dataset->name, name ? name : "", (long long)dataset->count);
    return clt_dataset_add_buffer(dataset, name, samples->dtype, samples->rank - 1,
                                  samples->shape + 1, samples->buffer, samples->offset, out);
}

clt_status clt_buffers_gather(const clt_gather *gather, clt_device *device, int64_t samples,
                              clt_device_gather **out)
{
    const clt_dataset *d = gather->dataset;
    const buffers *b = d->payload;
    clt_gather_field fields[CLT_DATA_MAX_FIELDS];
    for (int i = 0; i < gather->count; i++) {
        const clt_data_output *o = &gather->outputs[i];
        const clt_data_field *f = &d->fields[o->field];
        bool usable;
        CLT_TRY(clt_buffer_usable(device, b->views[o->field].buffer, &usable));
        if (!usable)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "data set '%s', field '%s': its buffer is not of the context of %s; "
                            "adopt or open all the trainer's devices in the buffers' context",
                            d->name, f->name, device->label);
        fields[i] = (clt_gather_field){.name = f->name,
                                       .from = b->views[o->field],
                                       .from_dtype = f->dtype,
                                       .dtype = o->dtype,
                                       .elements = f->elements,
                                       .channels = o->channels ? o->channels : 1,
                                       .table = o->table,
                                       .scale = o->scale,
                                       .shift = o->shift};
    }
    clt_status status = clt_device_gather_create(device, fields, gather->count, samples, out);
    if (status != CLT_OK)
        return clt_fail_prefix(status, "data set '%s': ", d->name);
    return CLT_OK;
}
