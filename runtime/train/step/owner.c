/*
 * Devices of different kinds round differently: if each updated its own replica, they would drift
 * apart. Then each bucket has one owner, which gets the sum of its gradients, updates it and ships
 * the parameters' bytes to all others (reduce, update, broadcast: the volume of an all-reduce).
 */
#include "base/alloc.h"
#include "base/error.h"
#include "train/step/programs.h"

/* Large buckets are alike in size, so that turns share the work. */
int clt_owner_of(int bucket, int participants)
{
    return bucket % participants;
}

clt_status clt_owners_create(clt_trainer *t, bool alike)
{
    const clt_buckets *layout = &t->store->layout;
    if (alike)
        return CLT_OK;
    t->owners = clt_calloc((size_t)layout->n_buckets + 1, sizeof *t->owners);
    if (!t->owners)
        return CLT_OUT_OF_MEMORY;
    for (int b = 0; b < layout->n_buckets; b++)
        t->owners[b] = clt_owner_of(b, t->all.total);
    return CLT_OK;
}

clt_status clt_owners_share_slots(clt_trainer *t)
{
    return t->owners ? clt_programs_copy(t, -1, t->owners) : CLT_OK;
}
