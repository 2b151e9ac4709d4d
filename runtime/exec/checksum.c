#include "exec/checksum.h"

#include "base/alloc.h"

/* Work-items that share a tensor. CPUs have few, so that each reads a contiguous stream. */
enum { CPU_ITEMS = 8, GPU_ITEMS = 4096, GPU_GROUP = 64 };

struct clt_checksum {
    const clt_replica *replica;
    cl_kernel kernel;
    cl_mem sums;
    cl_uint *host;
    size_t items, group;
    int64_t bytes;
};

static bool is_cpu(const clt_caps *caps)
{
    return clt_caps_is_cpu(caps) || caps->max_work_group < GPU_GROUP;
}

int64_t clt_checksum_bytes(const clt_replica *replica)
{
    const int items = is_cpu(&replica->device->caps) ? CPU_ITEMS : GPU_ITEMS;
    return items * 2 * (int64_t)sizeof(cl_uint) * (replica->layout->n_slots + 1);
}

clt_status clt_checksum_create(const clt_replica *replica, clt_checksum **out)
{
    clt_checksum *c = CLT_NEW(clt_checksum);
    CLT_TRY_MEMORY(c);
    clt_device *device = replica->device;
    const bool cpu = is_cpu(&device->caps);
    c->replica = replica;
    c->items = cpu ? CPU_ITEMS : GPU_ITEMS;
    c->group = cpu ? 1 : GPU_GROUP;
    c->bytes = clt_checksum_bytes(replica);
    c->host = clt_alloc_pages((size_t)c->bytes);
    clt_status status = c->host ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status,
             clt_device_kernel(device, cpu ? "train/portable/checksum.cl" : "train/gpu/checksum.cl",
                               "", "checksum", &c->kernel));
    CLT_NEXT(status,
             clt_device_buffer_create(device, c->bytes, CL_MEM_READ_WRITE, "checksums", &c->sums));
    if (status != CLT_OK) {
        clt_checksum_destroy(c);
        return status;
    }
    *out = c;
    return CLT_OK;
}

void clt_checksum_destroy(clt_checksum *c)
{
    if (!c)
        return;
    clt_release_kernel(c->kernel);
    clt_release_buffer(c->sums);
    CLT_FREE(c->host, c);
}

/* `set`: buffers by bucket, whose elements have `size` bytes. */
static clt_status enqueue(clt_checksum *c, int slot, const cl_mem *set, int64_t size)
{
    const clt_slot *s = &c->replica->layout->slots[slot];
    const cl_long first = s->offset / 4 * size / 4, count = (s->bytes / 4 * size + 3) / 4;
    const cl_int tensor = slot;
    cl_int code = clSetKernelArg(c->kernel, 0, sizeof(cl_mem), &set[s->bucket]);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(c->kernel, 1, sizeof first, &first);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(c->kernel, 2, sizeof count, &count);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(c->kernel, 3, sizeof c->sums, &c->sums);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(c->kernel, 4, sizeof tensor, &tensor);
    if (code == CL_SUCCESS)
        code = clEnqueueNDRangeKernel(c->replica->device->queue, c->kernel, 1, NULL, &c->items,
                                      &c->group, 0, NULL, NULL);
    return code == CL_SUCCESS ? CLT_OK
                              : clt_cl_fail(code, "clEnqueueNDRangeKernel", c->replica->device);
}

/* Whether the device has a gradient of the slot. */
static bool has_gradient(const clt_replica *r, const clt_slot *s)
{
    return !s->state && (!s->stages || s->stages >> r->stage & 1);
}

static clt_status run(clt_checksum *c, const cl_mem *set, clt_dtype dtype, bool gradients,
                      uint64_t *sums)
{
    const clt_slot *slots = c->replica->layout->slots;
    const int n = c->replica->layout->n_slots;
    for (int i = 0; i < n; i++)
        if (!gradients || has_gradient(c->replica, &slots[i]))
            CLT_TRY(enqueue(c, i, set, clt_dtype_size(dtype)));
    if (n)
        CLT_TRY(clt_replica_read(c->replica, c->sums, 0,
                                 (int64_t)c->items * 2 * (int64_t)sizeof(cl_uint) * n, c->host));
    for (int i = 0; i < n; i++) {
        const cl_uint *part = c->host + 2 * c->items * (size_t)i;
        const bool summed = !gradients || has_gradient(c->replica, &slots[i]);
        cl_uint a = 0, b = 0;
        for (size_t k = 0; k < c->items && summed; k++) {
            a += part[2 * k];
            b += part[2 * k + 1];
        }
        sums[i] = (uint64_t)b << 32 | a;
    }
    return CLT_OK;
}

clt_status clt_checksum_run(clt_checksum *c, uint64_t *sums)
{
    return run(c, c->replica->values, CLT_F32, false, sums);
}

clt_status clt_checksum_gradients(clt_checksum *c, clt_dtype precision, uint64_t *sums)
{
    return run(c, clt_replica_gradients(c->replica, precision), precision, true, sums);
}
