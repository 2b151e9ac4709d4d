#include "train/store/parts.h"

#include <string.h>

#include "base/alloc.h"

/* Copies bytes of a part piece by piece: to the whole tensor, or from there. */
static void copy(const clt_slot *slot, clt_coordinate at, int64_t from, int64_t bytes, char *part,
                 char *whole, bool put)
{
    const int64_t size = clt_dtype_size(slot->whole.dtype);
    const int64_t each = clt_sharding_piece(&slot->whole, slot->sharding, at, 0).count * size;
    for (int64_t next = from, end = from + bytes; next < end;) {
        const int64_t index = next / each, in_piece = next % each;
        const clt_piece piece = clt_sharding_piece(&slot->whole, slot->sharding, at, index);
        const int64_t count = each - in_piece < end - next ? each - in_piece : end - next;
        char *in_whole = whole + piece.whole * size + in_piece, *in_part = part + (next - from);
        memcpy(put ? in_whole : in_part, put ? in_part : in_whole, (size_t)count);
        next += count;
    }
}

void clt_part_put(const clt_slot *slot, clt_coordinate at, int64_t from, int64_t bytes,
                  const void *part, void *whole)
{
    copy(slot, at, from, bytes, (char *)part, whole, true);
}

void clt_part_take(const clt_slot *slot, clt_coordinate at, int64_t from, int64_t bytes,
                   const void *whole, void *part)
{
    copy(slot, at, from, bytes, part, (char *)whole, false);
}

const clt_slot *clt_store_part(const clt_store *store, int device, const clt_slot *slot)
{
    return &store->replicas[device].layout->slots[slot - store->layout.slots];
}

bool clt_store_same_part(const clt_store *store, const clt_slot *slot, int a, int b)
{
    return !slot->sharding.blocks || store->replicas[a].at.place == store->replicas[b].at.place;
}

bool clt_store_repeats(const clt_store *store, const clt_slot *slot, int device)
{
    int d = 0;
    while (store->replicas[d].shard != store->replicas[device].shard ||
           !clt_store_same_part(store, slot, d, device))
        d++;
    return d < device;
}

/* Reads or writes a device's part of a tensor. `buffer` has room for the largest part. */
static clt_status transfer(const clt_store *store, int device, const clt_slot *slot, void *whole,
                           void *buffer, bool reads)
{
    const clt_replica *r = &store->replicas[device];
    const clt_slot *part = clt_store_part(store, device, slot);
    const cl_mem values = r->values[part->bucket];
    const int64_t bytes = clt_slot_part_bytes(slot, r->at);
    if (!reads) {
        clt_part_take(slot, r->at, 0, bytes, whole, buffer);
        return clt_replica_write(r, values, part->offset, bytes, buffer);
    }
    CLT_TRY(clt_replica_read(r, values, part->offset, bytes, buffer));
    clt_part_put(slot, r->at, 0, bytes, buffer, whole);
    return CLT_OK;
}

static clt_status read_parts(const clt_store *store, const clt_slot *slot, void *whole,
                             void *buffer)
{
    for (int place = 0; place < store->replicas[0].at.places; place++) {
        int device = 0;
        while (device < store->n_devices && store->replicas[device].at.place != place)
            device++;
        if (device == store->n_devices)
            return clt_fail(
                CLT_STATE,
                "%s is split over tp, and only devices of other ranks have part %d of it",
                slot->name, place);
        CLT_TRY(transfer(store, device, slot, whole, buffer, true));
    }
    return CLT_OK;
}

clt_status clt_store_read(const clt_store *store, const clt_slot *slot, void *whole)
{
    const clt_replica *r = &store->replicas[0];
    const clt_slot *part = clt_store_part(store, 0, slot);
    if (!slot->sharding.blocks)
        return clt_replica_read(r, r->values[part->bucket], part->offset, part->bytes, whole);
    void *buffer = clt_alloc((size_t)part->bytes);
    const clt_status status = buffer ? read_parts(store, slot, whole, buffer) : CLT_OUT_OF_MEMORY;
    clt_free(buffer);
    return status;
}

clt_status clt_store_write(const clt_store *store, const clt_slot *slot, const void *whole)
{
    void *buffer = NULL;
    clt_status status = CLT_OK;
    if (slot->sharding.blocks) {
        buffer = clt_alloc((size_t)clt_store_part(store, 0, slot)->bytes);
        CLT_TRY_MEMORY(buffer);
    }
    for (int d = 0; d < store->n_devices && status == CLT_OK; d++) {
        const clt_replica *r = &store->replicas[d];
        const clt_slot *part = clt_store_part(store, d, slot);
        status = buffer ? transfer(store, d, slot, (void *)whole, buffer, false)
                        : clt_replica_write(r, r->values[part->bucket], part->offset, part->bytes,
                                            whole);
    }
    clt_free(buffer);
    return status;
}
