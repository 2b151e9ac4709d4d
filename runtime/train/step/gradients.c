/* Gradients of parameters in the caller's hands: reads them, and sets them between the parts of a
 * step. */
#include "train/core/trainer.h"

#include "base/alloc.h"
#include "exec/update/convert.h"
#include "train/store/copies.h"
#include "train/store/parts.h"

/* --- reading --------------------------------------------------------------------------------- */

/* The place in the step status of the scale by which the gradients are multiplied. */
static int scale_of(bool updated)
{
    return updated ? CLT_STEP_STATUS_USED : CLT_STEP_STATUS_SCALE;
}

clt_status clt_gradients_scale(const clt_trainer *t, int device, bool updated, float *scale)
{
    float floats[CLT_STEP_STATUS];
    *scale = 1;
    if (t->options.precision != CLT_F16)
        return CLT_OK;
    CLT_TRY(clt_replica_read(&t->store->replicas[device],
                             clt_update_status_buffer(t->devices[device].update), 0, sizeof floats,
                             floats));
    *scale = floats[scale_of(updated)];
    return CLT_OK;
}

/* The type of the gradients that are there: before the reduction the plan's, and then that of the
 * exchange. */
static clt_dtype present_type(const clt_trainer *t)
{
    const clt_dtype wire = t->exchange.wire.dtype;
    const bool own =
        wire == CLT_F32 || t->phase == CLT_PHASE_FORWARD || t->phase == CLT_PHASE_BACKWARD;
    return own ? t->options.precision : wire;
}

/* Reads the bytes [at, at + bytes) of a bucket's gradients, as if they were f32. */
static clt_status read_gradient(const clt_trainer *t, int device, int bucket, int64_t at,
                                int64_t bytes, float *data)
{
    const clt_dtype precision = present_type(t);
    const clt_replica *r = &t->store->replicas[device];
    const cl_mem buffer = clt_replica_gradients(r, precision)[bucket];
    const int64_t count = bytes / 4;
    float scale;
    CLT_TRY(clt_gradients_scale(t, device, t->phase == CLT_PHASE_NONE, &scale));
    CLT_TRY(clt_replica_read_floats(r, (clt_view){buffer, at / 4 * clt_dtype_size(precision)},
                                    precision, count, data));
    for (int64_t i = 0; scale != 1 && i < count; i++)
        data[i] /= scale;
    return CLT_OK;
}

/* Adds what a device has of a tensor's gradient: its part, or its shard of the part. *found grows
 * by the bytes. */
static clt_status add_gradient(const clt_trainer *t, int device, const clt_slot *tensor,
                               bool sharded, float *whole, int64_t *found)
{
    const clt_replica *r = &t->store->replicas[device];
    const clt_held h = clt_store_held(t->store, tensor, r->at, clt_store_stage(t->store, device),
                                      r->shard, sharded ? r->shards : 1);
    const int64_t at = clt_store_part(t->store, device, tensor)->offset + h.from;
    *found += h.bytes;
    if (!tensor->sharding.blocks)
        return read_gradient(t, device, tensor->bucket, at, h.bytes, whole + h.from / 4);
    float *data = clt_alloc((size_t)h.bytes + 1);
    clt_status status =
        data ? read_gradient(t, device, tensor->bucket, at, h.bytes, data) : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK)
        clt_part_put(tensor, r->at, h.from, h.bytes, data, whole);
    clt_free(data);
    return status;
}

/* Fails unless the buffers have gradients of the last batch. */
static clt_status check_present(const clt_trainer *t, const char *name)
{
    if (t->phase == CLT_PHASE_FORWARD)
        return clt_fail(CLT_STATE,
                        "gradient of %s: backward has not run since clt_trainer_forward: call "
                        "clt_trainer_backward first",
                        name);
    return t->has_gradients
               ? CLT_OK
               : clt_fail(CLT_STATE,
                          "gradient of %s: no backward has run yet: read it after "
                          "clt_trainer_backward, clt_trainer_gradients or clt_trainer_step",
                          name);
}

clt_status clt_trainer_gradient(clt_trainer *t, int device, const char *name, void *data,
                                size_t bytes)
{
    const clt_slot *where;
    int64_t found = 0;
    CLT_TRY(clt_store_slot(t->store, name, &where));
    if (device < 0 || device >= t->all.own || where->state || (int64_t)bytes != where->bytes)
        return clt_fail(CLT_INVALID_ARGUMENT, "device %d has no gradient %s of %zu bytes", device,
                        name, bytes);
    CLT_TRY(clt_slot_check_data(where, data));
    CLT_TRY(check_present(t, name));
    const bool sharded = t->sharded && t->phase != CLT_PHASE_BACKWARD;
    for (int d = 0; d < t->all.own; d++) {
        const bool part =
            where->sharding.blocks &&
            clt_store_neighbours(t->store, clt_mesh_split_axis(&t->all.mesh), device, d);
        if (sharded ? clt_store_first_with(t->store, 0, where, d) == d : d == device || part)
            CLT_TRY(add_gradient(t, d, where, sharded, data, &found));
    }
    return found == where->bytes
               ? CLT_OK
               : clt_fail(CLT_UNSUPPORTED, "%s: devices of other ranks have %s of its gradient%s",
                          name, sharded ? "shards" : "parts",
                          sharded ? ": read it before clt_trainer_reduce, or train without shards"
                                  : "");
}

/* --- setting --------------------------------------------------------------------------------- */

/* Rounds floats of the host to gradients in 16 bits, through a buffer on the device. */
static clt_status write_half(const clt_trainer *t, int device, clt_view to, int64_t bytes,
                             const float *data)
{
    const clt_replica *r = &t->store->replicas[device];
    const cl_mem status_buffer = clt_update_status_buffer(t->devices[device].update);
    clt_convert convert = {0};
    cl_mem floats = NULL;
    clt_status status = clt_device_buffer_create(r->device, bytes, CL_MEM_READ_WRITE,
                                                 "a gradient to round", &floats);
    CLT_NEXT(status, clt_convert_create(r->device, t->options.precision, true, status_buffer,
                                        CLT_STEP_STATUS_SCALE, &convert));
    CLT_NEXT(status, clt_replica_write(r, floats, 0, bytes, data));
    CLT_NEXT(status, clt_convert_enqueue(&convert, (clt_view){floats, 0}, to, bytes / 4));
    CLT_NEXT(status, clt_device_finish(r->device));
    clt_convert_destroy(&convert);
    clt_release_buffer(floats);
    return status;
}

/* Writes the bytes [at, at + bytes) of a bucket's gradients, as if they were f32. */
static clt_status write_gradient(const clt_trainer *t, int device, int bucket, int64_t at,
                                 int64_t bytes, const float *data)
{
    const clt_dtype precision = t->options.precision;
    const clt_replica *r = &t->store->replicas[device];
    const clt_view to = {clt_replica_gradients(r, precision)[bucket],
                         at / 4 * clt_dtype_size(precision)};
    if (precision == CLT_F32 || !bytes)
        return clt_replica_write(r, to.buffer, to.offset, bytes, data);
    return write_half(t, device, to, bytes, data);
}

/* Writes a device's part of a tensor's gradient. */
static clt_status put_gradient(const clt_trainer *t, int device, const clt_slot *tensor,
                               const float *whole)
{
    const clt_replica *r = &t->store->replicas[device];
    const clt_held h =
        clt_store_held(t->store, tensor, r->at, clt_store_stage(t->store, device), 0, 1);
    const int64_t at = clt_store_part(t->store, device, tensor)->offset + h.from;
    if (!tensor->sharding.blocks)
        return write_gradient(t, device, tensor->bucket, at, h.bytes, whole + h.from / 4);
    float *data = clt_alloc((size_t)h.bytes + 1);
    CLT_TRY_MEMORY(data);
    clt_part_take(tensor, r->at, h.from, h.bytes, whole, data);
    const clt_status status = write_gradient(t, device, tensor->bucket, at, h.bytes, data);
    clt_free(data);
    return status;
}

clt_status clt_gradients_may_set(const clt_trainer *t)
{
    if (t->exchange.wire.dtype != CLT_F32 && t->phase > CLT_PHASE_BACKWARD)
        return clt_fail(CLT_UNSUPPORTED,
                        "with wire %s gradients cannot be set after their reduction, which leaves "
                        "residuals: set them before clt_trainer_reduce, or choose wire f32",
                        clt_dtype_name(t->exchange.wire.dtype));
    return t->phase >= CLT_PHASE_BACKWARD
               ? CLT_OK
               : clt_fail(CLT_STATE, "a gradient is set between clt_trainer_backward and "
                                     "clt_trainer_apply: backward has not run");
}

/* If one device has a gradient of a parameter that no loss depends on, all replicas update it. */
void clt_gradients_note(clt_trainer *t, const clt_slot *tensor)
{
    for (int d = 0; d < t->all.own; d++)
        clt_update_give(t->devices[d].update, (int)(tensor - t->store->layout.slots));
    t->call.given = true;
    t->measured = false;
}

void clt_gradients_forget(clt_trainer *t)
{
    for (int d = 0; t->call.given && d < t->all.own; d++)
        clt_update_give(t->devices[d].update, -1);
    t->call.given = false;
}

clt_status clt_trainer_set_gradient(clt_trainer *t, int device, const char *name, const void *data,
                                    size_t bytes)
{
    const clt_slot *where;
    CLT_TRY(clt_store_check_devices(t->store));
    CLT_TRY(clt_store_slot(t->store, name, &where));
    if (device < -1 || device >= t->all.own || where->state || (int64_t)bytes != where->bytes)
        return clt_fail(CLT_INVALID_ARGUMENT, "device %d has no gradient %s of %zu bytes", device,
                        name, bytes);
    CLT_TRY(clt_slot_check_data(where, data));
    CLT_TRY(clt_gradients_may_set(t));
    const bool all = device < 0 || (t->sharded && t->phase != CLT_PHASE_BACKWARD);
    for (int d = 0; d < t->all.own; d++) {
        const bool part =
            !all && where->sharding.blocks &&
            clt_store_neighbours(t->store, clt_mesh_split_axis(&t->all.mesh), device, d);
        if (!all && d != device && !part)
            continue;
        clt_gradients_note(t, where);
        CLT_TRY(put_gradient(t, d, where, data));
    }
    return CLT_OK;
}

/* --- copies ---------------------------------------------------------------------------------- */

static clt_status find_copied(const clt_trainer *t, const clt_tensor_copy *copy, bool in,
                              const clt_slot *slot)
{
    if (copy->of != CLT_COPY_GRADIENT && copy->of != CLT_COPY_SLOT)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "copy of %s: values are the store's: call clt_store_copy_%s", copy->name,
                        in ? "in" : "out");
    if (slot->state)
        return clt_fail(CLT_INVALID_ARGUMENT, "copy of %s: it is %s, so it has no gradient",
                        copy->name, slot->frozen ? "frozen" : "a state");
    if (copy->of == CLT_COPY_SLOT && !clt_trainer_slot_name(t, copy->slot))
        return clt_fail(CLT_INVALID_ARGUMENT, "copy of %s: the optimizer has no slot %d",
                        copy->name, copy->slot);
    if (copy->of == CLT_COPY_SLOT)
        return CLT_OK;
    return in ? clt_gradients_may_set(t) : check_present(t, copy->name);
}

/* Copies on one device, which must have all of the tensor. Gradients that are written are whole on
 * all devices, also if each only updates its shard. */
static clt_status copy_on(clt_trainer *t, int d, const clt_tensor_copy *copy, bool in,
                          const clt_slot *slot, cl_event *event)
{
    const clt_replica *r = &t->store->replicas[d];
    const clt_dtype precision = in ? t->options.precision : present_type(t);
    const bool slots = copy->of == CLT_COPY_SLOT;
    const bool sharded = slots || (!in && t->sharded && t->phase != CLT_PHASE_BACKWARD);
    const clt_held h = clt_store_held(t->store, slot, r->at, clt_store_stage(t->store, d), r->shard,
                                      sharded ? r->shards : 1);
    clt_copy_place place = {.dtype = CLT_F32};
    if (slot->sharding.blocks || h.bytes != slot->bytes)
        return clt_copy_of_part(t->store, d, slot,
                                slots ? "call clt_trainer_slot_get or clt_trainer_slot_set"
                                      : "call clt_trainer_gradient or clt_trainer_set_gradient");
    if (slots) {
        place.at = (clt_view){clt_store_buffer(t->store, d, copy->slot, slot), h.offset};
    } else {
        place.dtype = precision;
        place.at =
            (clt_view){clt_replica_gradients(r, precision)[slot->bucket],
                       clt_store_part(t->store, d, slot)->offset / 4 * clt_dtype_size(precision)};
        place.status = clt_update_status_buffer(t->devices[d].update);
        place.scale = scale_of(t->phase == CLT_PHASE_NONE);
    }
    if (in && !slots)
        clt_gradients_note(t, slot);
    return clt_copy_run(t->store, copy, d, slot, &place, in, event);
}

static clt_status copy_tensor(clt_trainer *t, const clt_tensor_copy *copy, bool in, cl_event *event)
{
    const clt_slot *slot;
    CLT_TRY(clt_copy_check(t->store, copy, in, event != NULL, &slot));
    CLT_TRY(find_copied(t, copy, in, slot));
    for (int d = 0; d < t->all.own; d++)
        if (copy->device < 0 || d == copy->device)
            CLT_TRY(copy_on(t, d, copy, in, slot, event));
    return CLT_OK;
}

clt_status clt_trainer_copy_out(clt_trainer *t, const clt_tensor_copy *copy,
                                struct _cl_event **event)
{
    return copy_tensor(t, copy, false, event);
}

clt_status clt_trainer_copy_in(clt_trainer *t, const clt_tensor_copy *copy,
                               struct _cl_event **event)
{
    return copy_tensor(t, copy, true, event);
}
