#include "device/core/device.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

/* Reads a file with one number, as control groups have. Returns -1 if there is none or it says
 * "max". */
static int64_t read_number(const char *path)
{
    long long value = -1;
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    if (fscanf(f, "%lld", &value) != 1)
        value = -1;
    fclose(f);
    return value;
}

/* Returns the memory that the system can give without swapping. */
static int64_t system_available(void)
{
    char line[256];
    long long kib = -1;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemAvailable: %lld", &kib) == 1)
            break;
    }
    if (f)
        fclose(f);
    return kib < 0 ? -1 : (int64_t)kib * 1024;
}

/* Returns the memory that a container's control group (version 2 or 1) leaves; -1 if there is no
 * limit. */
static int64_t group_available(void)
{
    int64_t limit = read_number("/sys/fs/cgroup/memory.max");
    int64_t used = read_number("/sys/fs/cgroup/memory.current");
    if (limit < 0) {
        limit = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
        used = read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes");
    }
    return limit < 0 || used < 0 || limit < used ? -1 : limit - used;
}

int64_t clt_device_memory_available(const clt_device *device)
{
    int64_t available = device->caps.memory_bytes;
    if (!device->caps.host_memory)
        return available;
    int64_t system = system_available(), group = group_available();
    if (system >= 0 && system < available)
        available = system;
    if (group >= 0 && group < available)
        available = group;
    return available;
}

static clt_status too_large(const clt_device *device, int64_t bytes, const char *what)
{
    const double mib = 1.0 / (1024 * 1024);
    return clt_fail(
        CLT_OUT_OF_DEVICE_MEMORY,
        "%s: %.1f MiB are needed on %s, which has %.1f MiB, %.1f of them available, and "
        "at most %.1f MiB in one buffer; use a smaller batch or more devices",
        what, (double)bytes * mib, device->label, (double)device->caps.memory_bytes * mib,
        (double)clt_device_memory_available(device) * mib,
        (double)device->caps.max_alloc_bytes * mib);
}

/* Whether a code means that an allocation failed, at once or later. */
static bool means_full(cl_int code)
{
    return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
           code == CL_INVALID_BUFFER_SIZE || code == CL_OUT_OF_HOST_MEMORY;
}

clt_status clt_device_buffer_create_raw(clt_device *device, int64_t bytes, cl_mem_flags flags,
                                        const char *what, cl_mem *out)
{
    if (bytes <= 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: a buffer of %lld bytes was asked for", what,
                        (long long)bytes);
    if (bytes > device->caps.max_alloc_bytes)
        return too_large(device, bytes, what);
    /* In host memory a driver accepts allocations of any size. Using one that is too large would
     * end the process. */
    if (device->caps.host_memory && bytes > clt_device_memory_available(device))
        return too_large(device, bytes, what);
    cl_int code = CL_SUCCESS;
    cl_mem buffer = clCreateBuffer(device->context, flags, (size_t)bytes, NULL, &code);
    if (means_full(code))
        return too_large(device, bytes, what);
    if (code != CL_SUCCESS)
        return clt_fail_prefix(clt_cl_fail(code, "clCreateBuffer", device), "%s: ", what);
    clt_object_created(CLT_OBJECT_BUFFER);
    *out = buffer;
    return CLT_OK;
}

/* Smaller buffers have few whole huge pages, which are not worth a wait for the queue. */
static const int64_t huge_bytes = (int64_t)4 << 20;

/* Asks the system for huge pages for a large buffer of a CPU. Commands before it in the queue end
 * first. If the buffer cannot be mapped, filling it reports why. */
static void advise_huge(clt_device *device, cl_mem buffer, int64_t bytes)
{
    cl_int code = CL_SUCCESS;
    if (bytes < huge_bytes || !clt_caps_is_cpu(&device->caps))
        return;
    void *data = clEnqueueMapBuffer(device->queue, buffer, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION,
                                    0, (size_t)bytes, 0, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return;
    clt_advise_huge(data, (size_t)bytes);
    clEnqueueUnmapMemObject(device->queue, buffer, data, 0, NULL, NULL);
}

clt_status clt_device_buffer_create(clt_device *device, int64_t bytes, cl_mem_flags flags,
                                    const char *what, cl_mem *out)
{
    cl_mem buffer = NULL;
    CLT_TRY(clt_device_buffer_create_raw(device, bytes, flags, what, &buffer));
    advise_huge(device, buffer, bytes);
    /* The pattern's size must divide the buffer's size, so use one byte for odd sizes. */
    const cl_uint zero = 0;
    size_t pattern = bytes % 4 == 0 ? 4 : 1;
    cl_int code =
        clEnqueueFillBuffer(device->queue, buffer, &zero, pattern, 0, (size_t)bytes, 0, NULL, NULL);
    if (code == CL_SUCCESS && !device->caps.host_memory)
        code = clFinish(device->queue);
    if (code == CL_SUCCESS) {
        *out = buffer;
        return CLT_OK;
    }
    clt_release_buffer(buffer);
    if (means_full(code))
        return too_large(device, bytes, what);
    return clt_fail_prefix(clt_cl_fail(code, "clEnqueueFillBuffer", device), "%s: ", what);
}

clt_status clt_buffer_check(const clt_device *device, cl_mem buffer, bool kernels_read,
                            int64_t offset, int64_t bytes, int element, const char *what)
{
    cl_context context = NULL;
    cl_mem_object_type type = 0;
    cl_mem_flags flags = 0;
    size_t size = 0;
    int64_t end = 0;
    if (!buffer ||
        clGetMemObjectInfo(buffer, CL_MEM_CONTEXT, sizeof context, &context, NULL) != CL_SUCCESS ||
        clGetMemObjectInfo(buffer, CL_MEM_TYPE, sizeof type, &type, NULL) != CL_SUCCESS ||
        clGetMemObjectInfo(buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL) != CL_SUCCESS ||
        clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, NULL) != CL_SUCCESS)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: its buffer is not a valid cl_mem object", what);
    if (type != CL_MEM_OBJECT_BUFFER)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: its memory object is an image, not a buffer",
                        what);
    if (kernels_read && flags & CL_MEM_WRITE_ONLY)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s: its buffer is CL_MEM_WRITE_ONLY, so kernels cannot read it", what);
    if (device && context != device->context)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: its buffer is of another context than %s", what,
                        device->label);
    if (offset % element)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s begins at byte %lld of its buffer, which is no multiple of the %d "
                        "bytes of an element",
                        what, (long long)offset, element);
    if (offset < 0 || __builtin_add_overflow(offset, bytes, &end) || (uint64_t)end > size)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s has a buffer of %lld bytes, and needs %lld from byte %lld on", what,
                        (long long)size, (long long)bytes, (long long)offset);
    return CLT_OK;
}
