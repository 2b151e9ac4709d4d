/* Gradients and the optimizer's tensors in arrays of the caller (<cltrain/array.h>). */
#include "train/core/trainer.h"
#include "train/store/whole_arrays.h"

/* A tensor of a trainer: a gradient, or a slot of the optimizer. */
typedef struct tensor {
    clt_trainer *trainer;
    const char *name;
    int device; /* of gradients */
    int slot;   /* -1: the gradient */
} tensor;

static clt_status read_host(const tensor *t, void *data, size_t bytes)
{
    return t->slot < 0 ? clt_trainer_gradient(t->trainer, t->device, t->name, data, bytes)
                       : clt_trainer_slot_get(t->trainer, t->slot, t->name, data, bytes);
}

static clt_status write_host(const tensor *t, const void *data, size_t bytes)
{
    return t->slot < 0 ? clt_trainer_set_gradient(t->trainer, t->device, t->name, data, bytes)
                       : clt_trainer_slot_set(t->trainer, t->slot, t->name, data, bytes);
}

/* Copies within devices, and waits. Slots are equal on all devices that have all of them. */
static clt_status copy_buffer(const tensor *t, const clt_array *array, bool in)
{
    clt_tensor_copy copy;
    clt_tensor_copy_init(&copy);
    copy.name = t->name;
    copy.of = t->slot < 0 ? CLT_COPY_GRADIENT : CLT_COPY_SLOT;
    copy.slot = t->slot < 0 ? 0 : t->slot;
    copy.device = t->slot < 0 ? t->device : in ? -1 : 0;
    copy.array = *array;
    CLT_TRY(in ? clt_trainer_copy_in(t->trainer, &copy, NULL)
               : clt_trainer_copy_out(t->trainer, &copy, NULL));
    return clt_trainer_wait(t->trainer);
}

static clt_status get(const tensor *t, const clt_array *to)
{
    const clt_slot *slot;
    clt_tensor_dense dense;
    CLT_TRY(clt_store_check_devices(t->trainer->store));
    CLT_TRY(clt_store_slot(t->trainer->store, t->name, &slot));
    if (to->buffer && !to->host)
        return copy_buffer(t, to, false);
    CLT_TRY(clt_tensor_dense_make(to, slot, CLT_F32, &dense));
    clt_status status = read_host(t, clt_tensor_dense_data(&dense), (size_t)dense.view.bytes);
    if (dense.own)
        CLT_NEXT(status, clt_array_copy(&dense.view, to));
    clt_tensor_dense_free(&dense);
    return status;
}

static clt_status set(const tensor *t, const clt_array *from)
{
    const clt_slot *slot;
    clt_tensor_dense dense;
    CLT_TRY(clt_store_check_devices(t->trainer->store));
    CLT_TRY(clt_store_slot(t->trainer->store, t->name, &slot));
    const clt_store *store = t->trainer->store;
    const bool buffer = from->buffer && !from->host, all = t->slot >= 0 || t->device < 0;
    if (buffer && !(all && clt_store_contexts_differ(store)))
        return copy_buffer(t, from, true);
    CLT_TRY(buffer ? clt_tensor_dense_read(store, from, slot, CLT_F32, &dense)
                   : clt_tensor_dense_make(from, slot, CLT_F32, &dense));
    clt_status status = dense.own && !buffer ? clt_array_copy(from, &dense.view) : CLT_OK;
    CLT_NEXT(status, write_host(t, clt_tensor_dense_data(&dense), (size_t)dense.view.bytes));
    clt_tensor_dense_free(&dense);
    return status;
}

clt_status clt_trainer_gradient_array(clt_trainer *t, int device, const char *name,
                                      const clt_array *to)
{
    return get(&(tensor){t, name, device, -1}, to);
}

clt_status clt_trainer_set_gradient_array(clt_trainer *t, int device, const char *name,
                                          const clt_array *from)
{
    return set(&(tensor){t, name, device, -1}, from);
}

static clt_status check_slot(const clt_trainer *t, int slot)
{
    return clt_trainer_slot_name(t, slot)
               ? CLT_OK
               : clt_fail(CLT_INVALID_ARGUMENT, "the optimizer has no slot %d", slot);
}

clt_status clt_trainer_slot_get_array(clt_trainer *t, int slot, const char *name,
                                      const clt_array *to)
{
    CLT_TRY(check_slot(t, slot));
    return get(&(tensor){t, name, 0, slot}, to);
}

clt_status clt_trainer_slot_set_array(clt_trainer *t, int slot, const char *name,
                                      const clt_array *from)
{
    CLT_TRY(check_slot(t, slot));
    return set(&(tensor){t, name, 0, slot}, from);
}
