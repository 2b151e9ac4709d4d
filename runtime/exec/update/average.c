#include "exec/update/average.h"

#include "base/alloc.h"

enum { K_AVERAGE, K_FOLLOW, K_COUNTED, K_EXCHANGE, N_KERNELS };

struct clt_averager {
    clt_replica *replica;
    clt_average how;
    cl_mem status;
    cl_kernel kernels[N_KERNELS];
};

/* An argument of a kernel. */
typedef struct argument {
    size_t bytes;
    const void *value;
} argument;

static clt_status run(const clt_averager *a, int kernel, const argument *args, int n, int64_t items)
{
    const clt_device *device = a->replica->device;
    const size_t global = (size_t)items;
    cl_int code = CL_SUCCESS;
    if (!items)
        return CLT_OK;
    for (int i = 0; code == CL_SUCCESS && i < n; i++)
        code = clSetKernelArg(a->kernels[kernel], (cl_uint)i, args[i].bytes, args[i].value);
    if (code == CL_SUCCESS)
        code = clEnqueueNDRangeKernel(device->queue, a->kernels[kernel], 1, NULL, &global, NULL, 0,
                                      NULL, NULL);
    return code == CL_SUCCESS ? CLT_OK : clt_cl_fail(code, "clEnqueueNDRangeKernel", device);
}

clt_status clt_averager_create(clt_replica *replica, const clt_average *how, cl_mem status,
                               clt_averager **out)
{
    static const char *const names[N_KERNELS] = {"average", "follow", "counted", "exchange"};
    CLT_TRY(clt_replica_for_averages(replica));
    clt_averager *a = CLT_NEW(clt_averager);
    CLT_TRY_MEMORY(a);
    *a = (clt_averager){.replica = replica, .how = *how, .status = status};
    clt_status made = CLT_OK;
    for (int k = 0; made == CLT_OK && k < N_KERNELS; k++)
        made = clt_device_kernel(replica->device, "train/portable/average.cl", "", names[k],
                                 &a->kernels[k]);
    if (made != CLT_OK) {
        clt_averager_destroy(a);
        return made;
    }
    *out = a;
    return CLT_OK;
}

void clt_averager_destroy(clt_averager *a)
{
    for (int k = 0; a && k < N_KERNELS; k++)
        clt_release_kernel(a->kernels[k]);
    clt_free(a);
}

/* Averages `bytes` bytes at `offset` of a bucket, or copies them. */
static clt_status average(clt_averager *a, int bucket, int64_t offset, int64_t bytes, bool floats)
{
    const clt_replica *r = a->replica;
    const cl_int first = (cl_int)(offset / 4), count = (cl_int)(bytes / 4);
    const cl_float weight = a->how.kind == CLT_AVERAGE_EMA ? (cl_float)(1 - a->how.decay) : 0;
    const argument status = {sizeof a->status, &a->status};
    const argument values = {sizeof(cl_mem), &r->values[bucket]};
    const argument averages = {sizeof(cl_mem), &r->averages[bucket]};
    if (!floats) {
        const argument args[] = {
            status, values, averages, {sizeof first, &first}, {sizeof count, &count}};
        return run(a, K_FOLLOW, args, 5, count);
    }
    const argument args[] = {status,
                             {sizeof r->averaged, &r->averaged},
                             values,
                             averages,
                             {sizeof first, &first},
                             {sizeof count, &count},
                             {sizeof weight, &weight}};
    return run(a, K_AVERAGE, args, 7, count);
}

/* Tensors of a bucket of states may have several types. */
static clt_status average_states(clt_averager *a, int bucket)
{
    const clt_bucket *b = &a->replica->layout->buckets[bucket];
    for (int s = b->first; s < b->end; s++) {
        const clt_slot *slot = &a->replica->layout->slots[s];
        CLT_TRY(average(a, bucket, slot->offset, slot->bytes / 4 * 4,
                        slot->type.dtype == CLT_F32 && !slot->frozen));
        if (slot->bytes % 4) /* a whole number of words, with the padding behind it */
            CLT_TRY(average(a, bucket, slot->offset, clt_slot_padded(slot), false));
    }
    return CLT_OK;
}

static bool takes(const clt_average *how, int64_t done)
{
    return how->kind == CLT_AVERAGE_EMA ||
           (done >= how->from && (done - how->from) % how->every == 0);
}

clt_status clt_averager_step(clt_averager *a, int64_t step)
{
    const clt_buckets *layout = a->replica->layout;
    if (!takes(&a->how, step + 1))
        return CLT_OK;
    for (int b = 0; b < layout->n_buckets; b++)
        CLT_TRY(layout->buckets[b].state ? average_states(a, b)
                                         : average(a, b, 0, layout->buckets[b].bytes, true));
    const argument args[] = {{sizeof a->status, &a->status},
                             {sizeof a->replica->averaged, &a->replica->averaged}};
    return run(a, K_COUNTED, args, 2, 1);
}

clt_status clt_averager_exchange(clt_averager *a)
{
    const clt_replica *r = a->replica;
    for (int b = 0; b < r->layout->n_buckets; b++) {
        const cl_int count = (cl_int)(r->layout->buckets[b].bytes / 4);
        const argument args[] = {{sizeof(cl_mem), &r->values[b]},
                                 {sizeof(cl_mem), &r->averages[b]},
                                 {sizeof count, &count}};
        CLT_TRY(run(a, K_EXCHANGE, args, 3, count));
    }
    return CLT_OK;
}

clt_status clt_averager_count(clt_averager *a, int64_t *steps)
{
    cl_int count;
    CLT_TRY(clt_replica_read(a->replica, a->replica->averaged, 0, sizeof count, &count));
    *steps = count;
    return CLT_OK;
}

clt_status clt_averager_set_count(clt_averager *a, int64_t steps)
{
    const cl_int count = (cl_int)steps;
    return clt_replica_write(a->replica, a->replica->averaged, 0, sizeof count, &count);
}
