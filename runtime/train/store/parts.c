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

int clt_store_first_with(const clt_store *store, int kind, const clt_slot *slot, int device)
{
    const clt_replica *r = store->replicas;
    int d = 0;
    while (d < device && (!clt_store_part(store, d, slot)->bytes ||
                          (slot->sharding.blocks && r[d].at.place != r[device].at.place) ||
                          (clt_kind_has_shards(kind) && r[d].shard != r[device].shard)))
        d++;
    return d;
}

cl_mem clt_store_buffer(const clt_store *store, int device, int kind, const clt_slot *slot)
{
    const clt_replica *r = &store->replicas[device];
    cl_mem *const set = kind == CLT_VALUES     ? r->values
                        : kind == CLT_AVERAGES ? r->averages
                                               : r->slots[kind];
    return set[slot->bucket];
}

clt_held clt_store_held(const clt_store *store, const clt_slot *slot, clt_coordinate at, int stage,
                        int shard, int shards)
{
    const clt_buckets *layout = store->stages ? &store->stages[stage] : store->replicas[0].layout;
    const clt_slot *part = &layout->slots[slot - store->layout.slots];
    const clt_bucket *bucket = &layout->buckets[part->bucket];
    if (!part->bytes)
        return (clt_held){.at = at};
    int64_t begin = part->offset, end = part->offset + clt_slot_part_bytes(slot, at);
    if (shards > 1 && !clt_shard_part(bucket, shard, shards, begin, end, &begin, &end))
        return (clt_held){.at = at};
    const int64_t first = shards > 1 ? clt_shard_begin(bucket, shard, shards) : 0;
    return (clt_held){at, begin - part->offset, end - begin, begin - first};
}

/* What a device of this rank has. */
static clt_held held_by(const clt_store *store, int device, int kind, const clt_slot *slot)
{
    const clt_replica *r = &store->replicas[device];
    return clt_store_held(store, slot, r->at, clt_store_stage(store, device), r->shard,
                          clt_kind_has_shards(kind) ? r->shards : 1);
}

/* Reads or writes what a device has of a tensor. */
static clt_status transfer(const clt_store *store, int device, int kind, const clt_slot *slot,
                           char *whole, bool reads, int64_t *bytes)
{
    const clt_replica *r = &store->replicas[device];
    const clt_held h = held_by(store, device, kind, slot);
    const cl_mem buffer = clt_store_buffer(store, device, kind, slot);
    *bytes = h.bytes;
    if (!slot->sharding.blocks)
        return reads ? clt_replica_read(r, buffer, h.offset, h.bytes, whole + h.from)
                     : clt_replica_write(r, buffer, h.offset, h.bytes, whole + h.from);
    void *part = clt_alloc((size_t)h.bytes + 1);
    clt_status status = part ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (part && !reads)
        clt_part_take(slot, h.at, h.from, h.bytes, whole, part);
    CLT_NEXT(status, reads ? clt_replica_read(r, buffer, h.offset, h.bytes, part)
                           : clt_replica_write(r, buffer, h.offset, h.bytes, part));
    if (status == CLT_OK && reads)
        clt_part_put(slot, h.at, h.from, h.bytes, part, whole);
    clt_free(part);
    return status;
}

clt_status clt_store_read(const clt_store *store, int kind, const clt_slot *slot, void *whole)
{
    int64_t found = 0, bytes;
    for (int d = 0; d < store->n_devices && found < slot->bytes; d++) {
        if (clt_store_first_with(store, kind, slot, d) < d)
            continue;
        CLT_TRY(transfer(store, d, kind, slot, whole, true, &bytes));
        found += bytes;
    }
    return found == slot->bytes
               ? CLT_OK
               : clt_fail(CLT_STATE,
                          "devices of other ranks have parts of %s, which only all ranks together "
                          "can read (clt_store_collect)",
                          slot->name);
}

clt_status clt_store_write(const clt_store *store, int kind, const clt_slot *slot,
                           const void *whole)
{
    int64_t bytes;
    for (int d = 0; d < store->n_devices; d++)
        CLT_TRY(transfer(store, d, kind, slot, (char *)whole, false, &bytes));
    return CLT_OK;
}
