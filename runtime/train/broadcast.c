/* Making all ranks' replicas equal to one rank's. */
#include "train/reduce.h"
#include "train/world.h"

/* All buffers of one kind, bucket by bucket; roots[bucket], if that is not NULL, gives it. */
static clt_status broadcast_buffers(clt_trainer *t, int d, const int *roots, const cl_mem *buffers,
                                    bool states)
{
    const clt_buckets *layout = &t->store->layout;
    for (int b = 0; b < layout->n_buckets; b++) {
        const clt_collective what = {.kind = CLT_COLLECTIVE_BROADCAST,
                                     .buffer = buffers[b],
                                     .count = layout->buckets[b].bytes,
                                     .dtype = CLT_U8,
                                     .root = roots ? roots[b] : t->root,
                                     .whole = true,
                                     .label = t->labels[b]};
        if (states || !layout->buckets[b].state)
            CLT_TRY(clt_reduce_one(t, d, &what));
    }
    return CLT_OK;
}

static clt_status broadcast_part(void *arg, int d)
{
    clt_trainer *t = arg;
    const clt_replica *r = &t->store->replicas[d];
    if (t->root >= 0)
        CLT_TRY(broadcast_buffers(t, d, NULL, r->values, true));
    for (int k = 0; k < r->n_slots; k++)
        CLT_TRY(broadcast_buffers(t, d, t->slot_roots, r->slots[k], false));
    return clt_device_finish(r->device);
}

clt_status clt_trainer_copy_replica(clt_trainer *t, int participant, const int *slot_roots)
{
    if (t->total == 1 || (participant < 0 && !slot_roots))
        return CLT_OK;
    t->root = participant;
    t->slot_roots = slot_roots;
    const clt_status status = clt_step_run(t, broadcast_part);
    t->slot_roots = NULL;
    return status;
}

clt_status clt_trainer_broadcast(clt_trainer *t, int root)
{
    if (root < 0 || root >= t->ranks)
        return clt_fail(CLT_INVALID_ARGUMENT, "rank %d is not one of %d", root, t->ranks);
    int64_t numbers[] = {t->steps, (int64_t)t->options.seed, t->first};
    CLT_TRY(clt_world_tell(t, root, numbers, sizeof numbers));
    clt_trainer_set_steps(t, numbers[0]);
    t->options.seed = (uint64_t)numbers[1];
    clt_scaling scaling;
    CLT_TRY(clt_update_scaling(t->devices[0].update, &scaling));
    CLT_TRY(clt_world_tell(t, root, &scaling, sizeof scaling));
    CLT_TRY(clt_trainer_set_scaling(t, &scaling));
    CLT_TRY(clt_trainer_copy_replica(t, (int)numbers[2], NULL));
    t->verified = true;
    return CLT_OK;
}
