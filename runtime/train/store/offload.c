#include "train/store/offload.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"

clt_status clt_offload_check(const clt_store_options *options)
{
    if (options->offload < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "offload to %d devices is not possible",
                        options->offload);
    if (options->offload && options->zero)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "offload and zero %d divide the optimizer's state in two ways: choose one",
                        options->zero);
    return CLT_OK;
}

static clt_status check_devices(const clt_store *store, clt_device *const *devices, int count,
                                int owners)
{
    if (store->mesh.size[CLT_AXIS_DATA] != store->total)
        return clt_fail(CLT_UNSUPPORTED, "offload needs a mesh that has no other axis than dp");
    for (int d = count > owners ? count - owners : 0; d < count; d++)
        if (!clt_caps_is_cpu(&devices[d]->caps))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "offload needs a CPU device at the end of the list of devices, and %s "
                            "is none",
                            devices[d]->label);
    if (count <= owners)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "offload needs %s CPU device%s beside the devices that train, and there "
                        "%s %d device%s in all",
                        owners == 1 ? "a" : "several", owners == 1 ? "" : "s",
                        count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    return CLT_OK;
}

/* What a rank tells the others: "" if its devices will do. */
enum { TEXT = 256 };

static clt_status agree(const clt_world *world, clt_status status)
{
    char mine[TEXT] = "", *all = clt_calloc((size_t)world->ranks, TEXT);
    CLT_TRY_MEMORY(all);
    if (status != CLT_OK)
        snprintf(mine, sizeof mine, "%s", clt_error_message());
    const clt_status told = world->gather(world->user, mine, TEXT, all);
    for (int r = 0; told == CLT_OK && status == CLT_OK && r < world->ranks; r++)
        if (all[r * TEXT])
            status = clt_fail(CLT_ABORTED, "rank %d failed: %s", r, all + r * TEXT);
    clt_free(all);
    CLT_TRY(told);
    if (*mine)
        clt_error_restore(mine);
    return status;
}

clt_status clt_offload_devices(clt_store *store, clt_device *const *devices, int count, int owners)
{
    if (!owners)
        return CLT_OK;
    const clt_status status = check_devices(store, devices, count, owners);
    store->owners = owners;
    return store->world.ranks > 1 ? agree(&store->world, status) : status;
}

bool clt_store_owns(const clt_store *store, int participant)
{
    int rank = 0;
    if (!store->owners)
        return false;
    while (participant >= store->begins[rank + 1])
        rank++;
    return participant >= store->begins[rank + 1] - store->owners;
}

void clt_store_weigh(const clt_store *store, bool given, double *weights)
{
    for (int p = 0; store->owners && p < store->total; p++)
        weights[p] = clt_store_owns(store, p) ? 0 : given ? weights[p] : 1;
}

clt_status clt_offload_share(clt_store *store)
{
    if (!store->owners)
        return CLT_OK;
    int64_t *bytes = clt_calloc((size_t)store->total, sizeof *bytes);
    CLT_TRY_MEMORY(bytes);
    for (int b = 0; b < store->layout.n_buckets; b++) {
        clt_bucket *bucket = &store->layout.buckets[b];
        for (int p = 0; p < store->total && !bucket->state; p++)
            if (clt_store_owns(store, p) && (!bucket->owner || bytes[p] < bytes[bucket->owner]))
                bucket->owner = p;
        bytes[bucket->owner] += bucket->bytes;
    }
    clt_free(bytes);
    return CLT_OK;
}
