#include "device/core/staging.h"

#include "base/alloc.h"
#include "base/log.h"

enum { PAGE_BYTES = 4096 };

/* Creates an object in memory of the driver's choice (pinned on GPUs) and maps it for its whole
 * life. */
static bool map_pinned(clt_device *device, size_t bytes, clt_staging *s)
{
    cl_int code = CL_SUCCESS;
    cl_mem object = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                   bytes, NULL, &code);
    if (code != CL_SUCCESS)
        return false;
    clt_object_created(CLT_OBJECT_BUFFER);
    void *data = clEnqueueMapBuffer(device->transfer, object, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                                    0, bytes, 0, NULL, NULL, &code);
    if (code == CL_SUCCESS && data && (uintptr_t)data % PAGE_BYTES == 0) {
        s->data = data;
        s->object = object;
        s->pinned = true;
        return true;
    }
    if (code == CL_SUCCESS && data) {
        clEnqueueUnmapMemObject(device->transfer, object, data, 0, NULL, NULL);
        clFinish(device->transfer);
    }
    clt_release_buffer(object);
    return false;
}

clt_status clt_staging_create(clt_device *device, int64_t bytes, const char *what, clt_staging *out)
{
    if (bytes <= 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: %lld bytes of staging were asked for", what,
                        (long long)bytes);
    clt_staging s = {.bytes = bytes, .queue = device->transfer};
    /* Devices in host memory read all pointers alike, so pinning is useless. */
    if (device->caps.host_memory || !map_pinned(device, (size_t)bytes, &s)) {
        s.data = clt_alloc_pages((size_t)bytes);
        if (!s.data)
            return clt_fail_prefix(CLT_OUT_OF_MEMORY, "%s: ", what);
        if (!device->caps.host_memory)
            clt_log(CLT_LOG_WARN, "%s: %s gives no pinned memory; transfers may be slow and block",
                    what, device->label);
    }
    *out = s;
    return CLT_OK;
}

void clt_staging_destroy(clt_staging *s)
{
    if (s->pinned) {
        clEnqueueUnmapMemObject(s->queue, s->object, s->data, 0, NULL, NULL);
        clFinish(s->queue);
        clt_release_buffer(s->object);
    } else {
        clt_free(s->data);
    }
    *s = (clt_staging){0};
}
