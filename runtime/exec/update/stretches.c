#include "exec/update/stretches.h"

#include "base/alloc.h"
#include "base/vec.h"

int clt_stretches_shares(const clt_stretches *s, int64_t bytes)
{
    if (s->gpu) {
        const int64_t share =
            (int64_t)CLT_UPDATE_GPU_GROUP * CLT_UPDATE_GPU_CHUNK * CLT_UPDATE_GPU_ROUNDS;
        const int64_t count = (bytes / 4 + share - 1) / share;
        return count < CLT_UPDATE_GPU_SHARES ? (int)count : CLT_UPDATE_GPU_SHARES;
    }
    const int64_t chunks = bytes / 4 / CLT_UPDATE_CHUNK;
    return chunks < CLT_UPDATE_SHARES ? (int)chunks : CLT_UPDATE_SHARES;
}

static clt_status add(clt_stretches *s, clt_stretch stretch)
{
    s->partials += clt_stretches_shares(s, stretch.to - stretch.from);
    return CLT_PUSH(s->all, s->count, s->room, stretch);
}

/* How a tensor counts in norms. */
typedef enum counted { WHOLE, PARTS, ELSEWHERE } counted;

static counted counts_as(const clt_replica *r, const clt_slot *slot)
{
    if (clt_slot_tied(slot) && clt_slot_next_stage(slot, -1) < r->stage)
        return ELSEWHERE;
    return slot->sharding.blocks ? PARTS : WHOLE;
}

/* Parts of split tensors and whole tensors, which count differently, are added up by themselves, as
 * far as they lie in the replica's shard. Tensors that an earlier stage has too are left out. */
static clt_status add_bucket(clt_stretches *list, const clt_replica *r, bool all, int bucket)
{
    const int shard = all ? 0 : r->shard, shards = all ? 1 : r->shards;
    const clt_bucket *b = &r->layout->buckets[bucket];
    const clt_slot *slots = r->layout->slots;
    for (int first = b->first, end; first < b->end; first = end) {
        const counted as = counts_as(r, &slots[first]);
        clt_stretch s = {.bucket = bucket, .parts = as == PARTS};
        for (end = first + 1; end < b->end && counts_as(r, &slots[end]) == as;)
            end++;
        if (as != ELSEWHERE &&
            clt_shard_part(b, shard, shards, slots[first].offset,
                           slots[end - 1].offset + clt_slot_padded(&slots[end - 1]), &s.from,
                           &s.to))
            CLT_TRY(add(list, s));
    }
    return CLT_OK;
}

clt_status clt_stretches_list(const clt_replica *r, bool whole, clt_stretches *out)
{
    const clt_caps *caps = &r->device->caps;
    const bool split =
        clt_buckets_split(r->layout) || clt_buckets_tied(r->layout) || (r->shards > 1 && !whole);
    *out = (clt_stretches){.gpu = !clt_caps_is_cpu(caps) &&
                                  caps->max_work_group >= CLT_UPDATE_GPU_GROUP};
    for (int i = 0; i < r->layout->n_buckets; i++) {
        const clt_bucket *bucket = &r->layout->buckets[i];
        if (!bucket->state)
            CLT_TRY(split ? add_bucket(out, r, whole, i)
                          : add(out, (clt_stretch){.bucket = i, .to = bucket->bytes}));
    }
    return CLT_OK;
}
