/*
 * Devices of different kinds round differently: if each updated its own replica, they would drift
 * apart. Then each bucket has one owner, which gets the sum of its gradients, updates it and ships
 * the parameters' bytes to all others (reduce, update, broadcast: the volume of an all-reduce).
 */
#include "base/alloc.h"
#include "base/error.h"
#include "train/reduce.h"

clt_status clt_owners_create(clt_trainer *t, bool alike)
{
    const clt_buckets *layout = &t->store->layout;
    if (alike)
        return CLT_OK;
    t->owners = clt_calloc((size_t)layout->n_buckets + 1, sizeof *t->owners);
    if (!t->owners)
        return CLT_OUT_OF_MEMORY;
    /* Large buckets are alike in size, so that turns share the work. */
    for (int b = 0; b < layout->n_buckets; b++)
        t->owners[b] = b % t->total;
    return CLT_OK;
}

static bool ships(const clt_trainer *t, int bucket)
{
    return !t->store->layout.buckets[bucket].state || t->graph->n_assigns > 0;
}

clt_status clt_owners_ship(clt_trainer *t, int d)
{
    const clt_buckets *layout = &t->store->layout;
    const clt_replica *replica = &t->store->replicas[d];
    if (!t->owners)
        return CLT_OK;
    for (int b = 0; b < layout->n_buckets; b++) {
        const clt_collective what = {.kind = CLT_COLLECTIVE_BROADCAST,
                                     .buffer = replica->values[b],
                                     .count = layout->buckets[b].bytes,
                                     .dtype = CLT_U8,
                                     .root = t->owners[b],
                                     .whole = true,
                                     .label = t->labels[b]};
        if (ships(t, b))
            CLT_TRY(clt_reduce_begin(t, d, &what, &t->devices[d].shipped[b]));
    }
    for (int b = 0; b < layout->n_buckets; b++) {
        clt_collective_result result;
        if (ships(t, b))
            CLT_TRY(
                t->collectives.complete(t->collectives.self, d, t->devices[d].shipped[b], &result));
    }
    return CLT_OK;
}

static clt_status share_part(void *arg, int d)
{
    clt_trainer *t = arg;
    const clt_buckets *layout = &t->store->layout;
    const clt_replica *replica = &t->store->replicas[d];
    for (int k = 0; k < replica->n_slots; k++)
        for (int b = 0; b < layout->n_buckets; b++) {
            const clt_collective what = {.kind = CLT_COLLECTIVE_BROADCAST,
                                         .buffer = replica->slots[k][b],
                                         .count = layout->buckets[b].bytes,
                                         .dtype = CLT_U8,
                                         .root = t->owners[b],
                                         .whole = true,
                                         .label = t->labels[b]};
            if (!layout->buckets[b].state)
                CLT_TRY(clt_reduce_one(t, d, &what));
        }
    return CLT_OK;
}

clt_status clt_owners_share_slots(clt_trainer *t)
{
    return t->owners ? clt_step_run(t, share_part) : CLT_OK;
}
