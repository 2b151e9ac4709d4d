#include "train/step/shards.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/core/trainer.h"
#include "train/ranks/whole.h"
#include "train/store/parts.h"

/* Bytes of a message between ranks. */
enum { PIECE = 4 << 20 };

bool clt_shards_together(const clt_trainer *t)
{
    const bool residuals = t->exchange.wire.dtype != CLT_F32;
    return ((t->sharded || residuals) && t->all.ranks > 1) || clt_whole_spread(&t->all, t->store);
}

/* Whether clt_shards_tell sends tensors that one rank has set. */
static bool are_told(const clt_trainer *t)
{
    return t->sharded && t->all.ranks > 1 && !clt_whole_spread(&t->all, t->store);
}

static int slots_of(const clt_trainer *t)
{
    return clt_optimizer_of(&t->options)->n_slots;
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

clt_status clt_shards_write(clt_trainer *t, int slot, const clt_slot *tensor, const void *data)
{
    CLT_TRY(clt_store_write(t->store, slot, tensor, data));
    if (!are_told(t))
        return CLT_OK;
    CLT_TRY(make_whole(t));
    CLT_TRY(keep(t, slot, tensor));
    memcpy(*kept(t, slot, tensor), data, (size_t)tensor->bytes);
    return CLT_OK;
}

/* Tells all ranks a tensor of the root, and writes it to the devices. */
static clt_status tell_tensor(clt_trainer *t, int root, int slot, const clt_slot *tensor)
{
    CLT_TRY(clt_world_agree(&t->all, keep(t, slot, tensor)));
    for (int64_t at = 0; at < tensor->bytes; at += PIECE)
        CLT_TRY(clt_world_tell(&t->all, root, (char *)*kept(t, slot, tensor) + at,
                               tensor->bytes - at < PIECE ? tensor->bytes - at : PIECE));
    if (t->all.rank != root)
        CLT_TRY(clt_store_write(t->store, slot, tensor, *kept(t, slot, tensor)));
    void **at = kept(t, slot, tensor);
    clt_free(*at);
    *at = NULL;
    return CLT_OK;
}

clt_status clt_shards_tell(clt_trainer *t, int root)
{
    const clt_buckets *layout = &t->store->layout;
    const int count = slots_of(t) * layout->n_slots;
    if (!are_told(t) || !count)
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
