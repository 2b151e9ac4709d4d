#include "train/store/whole_arrays.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"

clt_status clt_tensor_dense_make(const clt_array *array, const clt_slot *slot, clt_dtype dtype,
                                 clt_tensor_dense *dense)
{
    const clt_type *type = &slot->whole;
    char what[200];
    snprintf(what, sizeof what, "the array for %s", slot->name);
    CLT_TRY(clt_array_fits(array, what, dtype, type->rank, type->dims));
    *dense = (clt_tensor_dense){clt_array_dense(array->host, dtype, type->rank, type->dims), NULL};
    dense->view.offset = array->offset;
    if (clt_array_in_place(array, dtype))
        return CLT_OK;
    dense->own = clt_alloc((size_t)dense->view.bytes + 1);
    CLT_TRY_MEMORY(dense->own);
    dense->view.host = dense->own;
    dense->view.offset = 0;
    return CLT_OK;
}

void clt_tensor_dense_free(clt_tensor_dense *dense)
{
    clt_free(dense->own);
    dense->own = NULL;
}

bool clt_store_contexts_differ(const clt_store *store)
{
    for (int d = 1; d < store->n_devices; d++)
        if (store->replicas[d].device->context != store->replicas[0].device->context)
            return true;
    return false;
}

clt_status clt_tensor_dense_read(const clt_store *store, const clt_array *buffer,
                                 const clt_slot *slot, clt_dtype dtype, clt_tensor_dense *dense)
{
    const clt_type *type = &slot->whole;
    const clt_replica *first = &store->replicas[0];
    char what[200];
    snprintf(what, sizeof what, "the array for %s", slot->name);
    CLT_TRY(clt_array_fits(buffer, what, dtype, type->rank, type->dims));
    *dense = (clt_tensor_dense){clt_array_dense(NULL, dtype, type->rank, type->dims), NULL};
    const int64_t bytes = dense->view.bytes;
    CLT_TRY(clt_buffer_check(first->device, buffer->buffer, false, buffer->offset, bytes,
                             clt_dtype_size(dtype), what));
    dense->own = clt_alloc((size_t)bytes + 1);
    CLT_TRY_MEMORY(dense->own);
    dense->view.host = dense->own;
    const clt_status status =
        clt_replica_read(first, buffer->buffer, buffer->offset, bytes, dense->own);
    if (status != CLT_OK)
        clt_tensor_dense_free(dense);
    return status;
}

static clt_status copy_buffer(clt_store *store, const char *name, const clt_array *array, bool in)
{
    clt_tensor_copy copy;
    clt_tensor_copy_init(&copy);
    copy.name = name;
    copy.array = *array;
    copy.device = in ? -1 : 0;
    CLT_TRY(in ? clt_store_copy_in(store, &copy, NULL) : clt_store_copy_out(store, &copy, NULL));
    for (int d = 0; d < store->n_devices; d++)
        CLT_TRY(clt_device_finish(store->replicas[d].device));
    return CLT_OK;
}

clt_status clt_store_get_array(clt_store *store, const char *name, const clt_array *to)
{
    const clt_slot *slot;
    clt_tensor_dense dense;
    CLT_TRY(clt_store_slot(store, name, &slot));
    if (to->buffer && !to->host)
        return copy_buffer(store, name, to, false);
    CLT_TRY(clt_tensor_dense_make(to, slot, slot->whole.dtype, &dense));
    clt_status status =
        clt_store_get(store, name, clt_tensor_dense_data(&dense), (size_t)slot->bytes);
    if (dense.own)
        CLT_NEXT(status, clt_array_copy(&dense.view, to));
    clt_tensor_dense_free(&dense);
    return status;
}

clt_status clt_store_set_array(clt_store *store, const char *name, const clt_array *from)
{
    const clt_slot *slot;
    clt_tensor_dense dense;
    CLT_TRY(clt_store_slot(store, name, &slot));
    const bool buffer = from->buffer && !from->host;
    if (buffer && !clt_store_contexts_differ(store))
        return copy_buffer(store, name, from, true);
    CLT_TRY(buffer ? clt_tensor_dense_read(store, from, slot, slot->whole.dtype, &dense)
                   : clt_tensor_dense_make(from, slot, slot->whole.dtype, &dense));
    clt_status status = dense.own && !buffer ? clt_array_copy(from, &dense.view) : CLT_OK;
    CLT_NEXT(status,
             clt_store_set(store, name, clt_tensor_dense_data(&dense), (size_t)slot->bytes));
    clt_tensor_dense_free(&dense);
    return status;
}
