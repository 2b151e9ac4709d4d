#include "exec/replica.h"

#include <stdio.h>

#include "base/alloc.h"
#include "exec/commands.h"

int64_t clt_replica_buffer_bytes(const clt_bucket *bucket, clt_dtype dtype, int shard, int shards)
{
    if (shards > 1)
        return clt_shard_size(bucket, shard, shards);
    return clt_bucket_gradient_bytes(bucket, dtype) +
           (bucket->state ? 0 : CLT_SHARD_ROOM / 4 * clt_dtype_size(dtype));
}

/* `shards`: 1 for whole buckets with room for shards, else buffers are of the replica's shard. */
static clt_status create_set(const clt_replica *replica, const char *what, bool states,
                             clt_dtype dtype, int shards, cl_mem **out)
{
    if (*out)
        return CLT_OK;
    const clt_buckets *layout = replica->layout;
    cl_mem *set = clt_calloc((size_t)layout->n_buckets + 1, sizeof(cl_mem));
    CLT_TRY_MEMORY(set);
    *out = set;
    for (int i = 0; i < layout->n_buckets; i++) {
        char name[64];
        if (layout->buckets[i].state && !states)
            continue;
        snprintf(name, sizeof name, "%s, bucket %d", what, i);
        const int64_t bytes =
            clt_replica_buffer_bytes(&layout->buckets[i], dtype, replica->shard, shards);
        if (bytes)
            CLT_TRY(
                clt_device_buffer_create(replica->device, bytes, CL_MEM_READ_WRITE, name, &set[i]));
    }
    return CLT_OK;
}

static void destroy_set(const clt_replica *replica, cl_mem **set)
{
    for (int i = 0; *set && i < replica->layout->n_buckets; i++)
        clt_release_buffer((*set)[i]);
    clt_free(*set);
    *set = NULL;
}

clt_status clt_replica_create(clt_device *device, const clt_buckets *layout, clt_replica *out)
{
    clt_replica replica = {.device = device, .layout = layout, .at = {0, 1}};
    clt_status status = create_set(&replica, "parameters", true, CLT_F32, 1, &replica.values);
    if (status != CLT_OK)
        clt_replica_destroy(&replica);
    else
        *out = replica;
    return status;
}

clt_status clt_replica_for_training(clt_replica *replica, clt_dtype precision, int n_slots,
                                    int shard, int shards)
{
    if (n_slots > CLT_MAX_OPTIMIZER_SLOTS)
        return clt_fail(CLT_INTERNAL, "an optimizer wants %d slots", n_slots);
    if (replica->n_slots && (replica->shard != shard || replica->shards != shards))
        return clt_fail(CLT_STATE,
                        "the store has the optimizer's state of shard %d of %d, not of %d of %d: "
                        "destroy its other trainers first",
                        replica->shard, replica->shards, shard, shards);
    replica->shard = shard;
    replica->shards = shards;
    CLT_TRY(create_set(replica, "gradients", false, precision, 1,
                       precision == CLT_F32 ? &replica->gradients : &replica->half_gradients));
    for (; replica->n_slots < n_slots; replica->n_slots++)
        CLT_TRY(create_set(replica, "optimizer state", false, CLT_F32, shards,
                           &replica->slots[replica->n_slots]));
    return CLT_OK;
}

clt_status clt_replica_fill_slots(const clt_replica *replica, float value)
{
    const clt_buckets *layout = replica->layout;
    for (int k = 0; k < replica->n_slots; k++)
        for (int i = 0; i < layout->n_buckets; i++)
            if (replica->slots[k][i])
                CLT_TRY(
                    clt_enqueue_fill(replica->device, (clt_view){replica->slots[k][i], 0}, value,
                                     clt_replica_buffer_bytes(&layout->buckets[i], CLT_F32,
                                                              replica->shard, replica->shards)));
    return CLT_OK;
}

void clt_replica_forget_slots(clt_replica *replica)
{
    for (int i = 0; i < replica->n_slots; i++)
        destroy_set(replica, &replica->slots[i]);
    replica->n_slots = 0;
}

cl_mem *clt_replica_gradients(const clt_replica *replica, clt_dtype precision)
{
    return precision == CLT_F32 ? replica->gradients : replica->half_gradients;
}

clt_status clt_replica_for_gradient_sums(clt_replica *replica)
{
    return create_set(replica, "sums of gradients", false, CLT_F32, 1, &replica->gradient_sums);
}

clt_status clt_replica_for_wire(clt_replica *replica, clt_dtype wire, bool rounds)
{
    CLT_TRY(create_set(replica, "gradients in 16 bits", false, wire, 1, &replica->half_gradients));
    return rounds ? create_set(replica, "residuals of gradients", false, CLT_F32, 1,
                               &replica->residuals)
                  : CLT_OK;
}

void clt_replica_forget_residuals(clt_replica *replica)
{
    destroy_set(replica, &replica->residuals);
}

clt_status clt_replica_for_averages(clt_replica *replica)
{
    CLT_TRY(create_set(replica, "averages", true, CLT_F32, 1, &replica->averages));
    return replica->averaged
               ? CLT_OK
               : clt_device_buffer_create(replica->device, sizeof(cl_int), CL_MEM_READ_WRITE,
                                          "number of averages", &replica->averaged);
}

void clt_replica_forget_averages(clt_replica *replica)
{
    destroy_set(replica, &replica->averages);
    clt_release_buffer(replica->averaged);
    replica->averaged = NULL;
}

void clt_replica_destroy(clt_replica *replica)
{
    if (!replica->device)
        return;
    destroy_set(replica, &replica->values);
    destroy_set(replica, &replica->gradients);
    destroy_set(replica, &replica->half_gradients);
    destroy_set(replica, &replica->gradient_sums);
    destroy_set(replica, &replica->residuals);
    clt_replica_forget_averages(replica);
    for (int i = 0; i < CLT_MAX_OPTIMIZER_SLOTS; i++)
        destroy_set(replica, &replica->slots[i]);
    *replica = (clt_replica){0};
}

clt_status clt_replica_read(const clt_replica *replica, cl_mem buffer, int64_t offset,
                            int64_t bytes, void *host)
{
    if (!bytes)
        return CLT_OK;
    CLT_CL(clEnqueueReadBuffer(replica->device->queue, buffer, CL_TRUE, (size_t)offset,
                               (size_t)bytes, host, 0, NULL, NULL),
           "clEnqueueReadBuffer", replica->device);
    return CLT_OK;
}

clt_status clt_replica_write(const clt_replica *replica, cl_mem buffer, int64_t offset,
                             int64_t bytes, const void *host)
{
    if (!bytes)
        return CLT_OK;
    CLT_CL(clEnqueueWriteBuffer(replica->device->queue, buffer, CL_TRUE, (size_t)offset,
                                (size_t)bytes, host, 0, NULL, NULL),
           "clEnqueueWriteBuffer", replica->device);
    return CLT_OK;
}
