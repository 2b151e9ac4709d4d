#include "exec/update/shard_sums.h"

#include <stdio.h>

#include "base/alloc.h"

struct clt_shard_sums {
    const cl_mem *result;
    cl_mem *sets; /* [level][buffer]: complete nodes of the tree */
    int64_t *elements;
    int count, levels;
    bool floats;
};

int clt_shard_sums_sets(int64_t shards)
{
    int levels = 0;
    while ((int64_t)1 << levels < shards)
        levels++;
    return levels;
}

static cl_mem *set_of(const clt_shard_sums *s, int level)
{
    return s->sets + level * s->count;
}

/* Padding is added too, so the sets begin with zeros. */
static clt_status make_set(clt_shard_sums *s, clt_device *device, const int64_t *bytes, int level)
{
    for (int i = 0; i < s->count; i++) {
        char name[64];
        if (!bytes[i])
            continue;
        snprintf(name, sizeof name, "sums of shards, level %d, buffer %d", level, i);
        CLT_TRY(clt_device_buffer_create(device, bytes[i], CL_MEM_READ_WRITE, name,
                                         &set_of(s, level)[i]));
    }
    return CLT_OK;
}

clt_status clt_shard_sums_create(clt_device *device, const cl_mem *result, const int64_t *bytes,
                                 int count, bool floats, clt_dtype precision, int64_t shards,
                                 clt_shard_sums **out)
{
    const int levels = clt_shard_sums_sets(shards);
    *out = NULL;
    if (!levels || !count)
        return CLT_OK;
    clt_shard_sums *s = CLT_NEW(clt_shard_sums);
    CLT_TRY_MEMORY(s);
    *s = (clt_shard_sums){.result = result, .count = count, .levels = levels, .floats = floats};
    s->sets = clt_calloc((size_t)levels * (size_t)count, sizeof(cl_mem));
    s->elements = clt_calloc((size_t)count, sizeof *s->elements);
    clt_status status = s->sets && s->elements ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < count; i++)
        s->elements[i] = bytes[i] / clt_dtype_size(floats ? CLT_F32 : precision);
    for (int level = 0; status == CLT_OK && level < levels; level++)
        status = make_set(s, device, bytes, level);
    if (status != CLT_OK) {
        clt_shard_sums_destroy(s);
        return status;
    }
    *out = s;
    return CLT_OK;
}

clt_status clt_shard_sums_of_gradients(const clt_replica *replica, clt_dtype precision,
                                       int64_t shards, clt_shard_sums **out)
{
    const clt_buckets *layout = replica->layout;
    int64_t *bytes = clt_calloc((size_t)layout->n_buckets + 1, sizeof *bytes);
    CLT_TRY_MEMORY(bytes);
    for (int i = 0; i < layout->n_buckets; i++)
        if (!layout->buckets[i].state)
            bytes[i] = clt_bucket_gradient_bytes(&layout->buckets[i], precision);
    const clt_status status =
        clt_shard_sums_create(replica->device, clt_replica_gradients(replica, precision), bytes,
                              layout->n_buckets, false, precision, shards, out);
    clt_free(bytes);
    return status;
}

void clt_shard_sums_destroy(clt_shard_sums *s)
{
    if (!s)
        return;
    for (int i = 0; s->sets && i < s->levels * s->count; i++)
        clt_release_buffer(s->sets[i]);
    CLT_FREE(s->sets, s->elements, s);
}

/* An even shard waits for its neighbour, where the neighbour finds it. */
const cl_mem *clt_shard_sums_target(const clt_shard_sums *s, int shard)
{
    return shard % 2 == 0 ? set_of(s, 0) : s->result;
}

clt_status clt_shard_sums_add(const clt_shard_sums *s, clt_update *update, int shard)
{
    for (int level = 0; shard >> level & 1; level++) {
        /* The node is complete: does a neighbour of it wait already, or is it the last one? */
        const bool goes_on = shard >> (level + 1) & 1 || level + 1 == s->levels;
        const cl_mem *sum = goes_on ? s->result : set_of(s, level + 1);
        for (int i = 0; i < s->count; i++)
            if (s->elements[i])
                CLT_TRY(clt_update_merge(update, s->floats, sum[i], set_of(s, level)[i],
                                         s->result[i], s->elements[i]));
    }
    return CLT_OK;
}
