#include "train/step/shards.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/core/trainer.h"
#include "train/ranks/world.h"
#include "train/store/parts.h"

/* Bytes of a message between ranks, for each device. */
enum { PIECE = 4 << 20 };

static bool on_other_ranks(const clt_trainer *t)
{
    return t->sharded && t->all.ranks > 1;
}

static int slots_of(const clt_trainer *t)
{
    return clt_optimizer_find(t->options.optimizer)->n_slots;
}

static void **kept(const clt_trainer *t, int slot, const clt_slot *tensor)
{
    const clt_buckets *layout = &t->store->layout;
    return &t->whole->tensors[slot * layout->n_slots + (int)(tensor - layout->slots)];
}

void clt_shards_drop(clt_trainer *t)
{
    for (int i = 0; t->whole && t->whole->tensors && i < t->whole->count; i++)
        clt_free(t->whole->tensors[i]);
    if (t->whole)
        clt_free(t->whole->tensors);
    clt_free(t->whole);
    t->whole = NULL;
}

static clt_status make_whole(clt_trainer *t)
{
    if (t->whole)
        return CLT_OK;
    t->whole = CLT_NEW(clt_whole_slots);
    CLT_TRY_MEMORY(t->whole);
    t->whole->count = slots_of(t) * t->store->layout.n_slots;
    t->whole->tensors = clt_calloc((size_t)t->whole->count + 1, sizeof *t->whole->tensors);
    if (!t->whole->tensors)
        clt_shards_drop(t);
    CLT_TRY_MEMORY(t->whole);
    return CLT_OK;
}

static clt_status keep(clt_trainer *t, int slot, const clt_slot *tensor)
{
    void **at = kept(t, slot, tensor);
    if (!*at)
        *at = clt_alloc((size_t)tensor->bytes);
    CLT_TRY_MEMORY(*at);
    return CLT_OK;
}

/* Copies what a device has of a slot of a tensor to the whole tensor, or from there. *bytes gets
 * its size. */
static clt_status transfer(const clt_trainer *t, int device, int slot, const clt_slot *tensor,
                           bool reads, char *whole, int64_t *bytes)
{
    const clt_replica *r = &t->store->replicas[device];
    const clt_slot *part = clt_store_part(t->store, device, tensor);
    const clt_bucket *bucket = &r->layout->buckets[part->bucket];
    const cl_mem buffer = r->slots[slot][part->bucket];
    int64_t begin, end;
    *bytes = 0;
    if (!clt_shard_part(bucket, r->shard, r->shards, part->offset,
                        part->offset + clt_slot_part_bytes(tensor, r->at), &begin, &end))
        return CLT_OK;
    const int64_t at = begin - r->shard * clt_shard_bytes(bucket, r->shards);
    const int64_t from = begin - part->offset;
    *bytes = end - begin;
    if (!tensor->sharding.blocks)
        return reads ? clt_replica_read(r, buffer, at, *bytes, whole + from)
                     : clt_replica_write(r, buffer, at, *bytes, whole + from);
    void *data = clt_alloc((size_t)*bytes);
    clt_status status = data ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (data && !reads)
        clt_part_take(tensor, r->at, from, *bytes, whole, data);
    CLT_NEXT(status, reads ? clt_replica_read(r, buffer, at, *bytes, data)
                           : clt_replica_write(r, buffer, at, *bytes, data));
    if (status == CLT_OK && reads)
        clt_part_put(tensor, r->at, from, *bytes, data, whole);
    clt_free(data);
    return status;
}

clt_status clt_shards_read(const clt_trainer *t, int slot, const clt_slot *tensor, void *data)
{
    int64_t found = 0;
    if (t->whole && t->whole->collected && *kept(t, slot, tensor)) {
        memcpy(data, *kept(t, slot, tensor), (size_t)tensor->bytes);
        return CLT_OK;
    }
    for (int d = 0; d < t->all.own && found < tensor->bytes; d++) {
        int64_t bytes;
        if (clt_store_repeats(t->store, tensor, d))
            continue;
        CLT_TRY(transfer(t, d, slot, tensor, true, data, &bytes));
        found += bytes;
    }
    return found == tensor->bytes
               ? CLT_OK
               : clt_fail(CLT_INTERNAL, "%s: its slot is on other ranks", tensor->name);
}

static clt_status write_own(const clt_trainer *t, int slot, const clt_slot *tensor, void *data)
{
    int64_t bytes;
    for (int d = 0; d < t->all.own; d++)
        CLT_TRY(transfer(t, d, slot, tensor, false, data, &bytes));
    return CLT_OK;
}

clt_status clt_shards_write(clt_trainer *t, int slot, const clt_slot *tensor, const void *data)
{
    CLT_TRY(write_own(t, slot, tensor, (void *)data));
    if (!on_other_ranks(t))
        return CLT_OK;
    CLT_TRY(make_whole(t));
    CLT_TRY(keep(t, slot, tensor));
    memcpy(*kept(t, slot, tensor), data, (size_t)tensor->bytes);
    return CLT_OK;
}

/* --- from all ranks -------------------------------------------------------------------------- */

/* Puts bytes [from, from + bytes) of a bucket into the tensors that they belong to. */
static void put(const clt_trainer *t, int slot, int bucket, int64_t from, int64_t bytes,
                const char *data)
{
    const clt_buckets *layout = &t->store->layout;
    for (int i = layout->buckets[bucket].first; i < layout->buckets[bucket].end; i++) {
        const clt_slot *tensor = &layout->slots[i];
        const int64_t end = tensor->offset + tensor->bytes;
        const int64_t begin = tensor->offset > from ? tensor->offset : from;
        const int64_t stop = end < from + bytes ? end : from + bytes;
        if (begin < stop)
            memcpy((char *)*kept(t, slot, tensor) + (begin - tensor->offset), data + (begin - from),
                   (size_t)(stop - begin));
    }
}

static int most_devices(const clt_participants *all)
{
    int most = 1;
    for (int r = 0; r < all->ranks; r++)
        if (all->begins[r + 1] - all->begins[r] > most)
            most = all->begins[r + 1] - all->begins[r];
    return most;
}

/* Gathers bytes [at, at + bytes) of each device's shard. `mine` has room for this rank's. */
static clt_status gather_piece(clt_trainer *t, int slot, int bucket, int64_t at, int64_t bytes,
                               char *mine, int most, bool keeps)
{
    const clt_participants *all = &t->all;
    const int64_t shard =
        clt_shard_bytes(&t->store->layout.buckets[bucket], t->store->replicas[0].shards);
    clt_status status = CLT_OK;
    void *told;
    for (int d = 0; d < all->own && status == CLT_OK; d++) {
        const clt_replica *replica = &t->store->replicas[d];
        status =
            clt_replica_read(replica, replica->slots[slot][bucket], at, bytes, mine + d * bytes);
    }
    CLT_TRY(clt_world_agree(all, status));
    CLT_TRY(clt_ranks_gather(all->world, mine, (size_t)(most * bytes), &told));
    for (int r = 0; r < all->ranks && keeps; r++)
        for (int p = all->begins[r]; p < all->begins[r + 1]; p++)
            put(t, slot, bucket, p * shard + at, bytes,
                (const char *)told + (r * most + p - all->begins[r]) * bytes);
    clt_free(told);
    return CLT_OK;
}

static clt_status keep_all(clt_trainer *t)
{
    const clt_buckets *layout = &t->store->layout;
    CLT_TRY(make_whole(t));
    for (int k = 0; k < slots_of(t); k++)
        for (int i = 0; i < layout->n_slots; i++)
            if (!layout->slots[i].state)
                CLT_TRY(keep(t, k, &layout->slots[i]));
    return CLT_OK;
}

clt_status clt_shards_collect(clt_trainer *t, int keeper)
{
    const clt_buckets *layout = &t->store->layout;
    if (!on_other_ranks(t) || !slots_of(t))
        return CLT_OK;
    const bool keeps = keeper < 0 || keeper == t->all.rank;
    const int most = most_devices(&t->all);
    char *mine = clt_calloc((size_t)most, PIECE);
    clt_status status = mine ? clt_trainer_wait(t) : CLT_OUT_OF_MEMORY;
    if (keeps)
        CLT_NEXT(status, keep_all(t));
    status = clt_world_agree(&t->all, status);
    for (int b = 0; b < layout->n_buckets && status == CLT_OK; b++) {
        const int64_t shard = clt_shard_bytes(&layout->buckets[b], t->store->replicas[0].shards);
        for (int k = 0; k < slots_of(t) && !layout->buckets[b].state; k++)
            for (int64_t at = 0; at < shard && status == CLT_OK; at += PIECE)
                status = gather_piece(t, k, b, at, shard - at < PIECE ? shard - at : PIECE, mine,
                                      most, keeps);
    }
    clt_free(mine);
    if (keeps && t->whole)
        t->whole->collected = status == CLT_OK;
    return status;
}

/* Tells all ranks a tensor of the root, and writes it to the devices. */
static clt_status tell_tensor(clt_trainer *t, int root, int slot, const clt_slot *tensor)
{
    CLT_TRY(clt_world_agree(&t->all, keep(t, slot, tensor)));
    for (int64_t at = 0; at < tensor->bytes; at += PIECE)
        CLT_TRY(clt_world_tell(&t->all, root, (char *)*kept(t, slot, tensor) + at,
                               tensor->bytes - at < PIECE ? tensor->bytes - at : PIECE));
    if (t->all.rank != root)
        CLT_TRY(write_own(t, slot, tensor, *kept(t, slot, tensor)));
    void **at = kept(t, slot, tensor);
    clt_free(*at);
    *at = NULL;
    return CLT_OK;
}

clt_status clt_shards_tell(clt_trainer *t, int root)
{
    const clt_buckets *layout = &t->store->layout;
    const int count = slots_of(t) * layout->n_slots;
    if (!on_other_ranks(t) || !count)
        return CLT_OK;
    char *have = clt_calloc((size_t)count, 1);
    clt_status status = have ? make_whole(t) : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < count; i++)
        have[i] = t->whole->tensors[i] != NULL;
    status = clt_world_agree(&t->all, status);
    CLT_NEXT(status, clt_world_tell(&t->all, root, have, count));
    for (int i = 0; status == CLT_OK && i < count; i++)
        if (have[i])
            status = tell_tensor(t, root, i / layout->n_slots, &layout->slots[i % layout->n_slots]);
    clt_free(have);
    clt_shards_drop(t);
    return status;
}
