#include "exec/commands.h"

static void watch(const clt_device *device, const char *name, int64_t bytes, cl_event event)
{
    const clt_command command = {name, NULL, 0, bytes, true};
    clt_watch(device, &command, event);
}

clt_status clt_enqueue_upload(clt_device *device, clt_view to, const void *from, int64_t bytes)
{
    if (!bytes)
        return CLT_OK;
    cl_event event;
    CLT_CL(clEnqueueWriteBuffer(device->queue, to.buffer, CL_FALSE, (size_t)to.offset,
                                (size_t)bytes, from, 0, NULL, clt_watch_event(device, &event)),
           "clEnqueueWriteBuffer", device);
    watch(device, "upload", bytes, event);
    return CLT_OK;
}

clt_status clt_enqueue_download(clt_device *device, clt_view from, void *to, int64_t bytes,
                                cl_event *event)
{
    if (event) {
        clt_release_event(*event);
        *event = NULL;
    }
    if (bytes)
        CLT_CL(clEnqueueReadBuffer(device->queue, from.buffer, CL_FALSE, (size_t)from.offset,
                                   (size_t)bytes, to, 0, NULL, event),
               "clEnqueueReadBuffer", device);
    else if (event)
        CLT_CL(clEnqueueMarkerWithWaitList(device->queue, 0, NULL, event),
               "clEnqueueMarkerWithWaitList", device);
    if (event)
        clt_object_created(CLT_OBJECT_EVENT);
    if (event && device->watcher && clRetainEvent(*event) == CL_SUCCESS)
        watch(device, "download", bytes, *event);
    return CLT_OK;
}

clt_status clt_enqueue_copy(clt_device *device, clt_view from, clt_view to, int64_t bytes)
{
    if (!bytes)
        return CLT_OK;
    cl_event event;
    CLT_CL(clEnqueueCopyBuffer(device->queue, from.buffer, to.buffer, (size_t)from.offset,
                               (size_t)to.offset, (size_t)bytes, 0, NULL,
                               clt_watch_event(device, &event)),
           "clEnqueueCopyBuffer", device);
    watch(device, "copy", bytes, event);
    return CLT_OK;
}

/* Fills with a pattern. */
static clt_status fill(clt_device *device, clt_view to, const void *pattern, size_t size,
                       int64_t bytes)
{
    cl_event event;
    CLT_CL(clEnqueueFillBuffer(device->queue, to.buffer, pattern, size, (size_t)to.offset,
                               (size_t)bytes, 0, NULL, clt_watch_event(device, &event)),
           "clEnqueueFillBuffer", device);
    watch(device, "fill", bytes, event);
    return CLT_OK;
}

clt_status clt_enqueue_value(clt_device *device, clt_view to, const void *value, int64_t bytes)
{
    return fill(device, to, value, (size_t)bytes, bytes);
}

clt_status clt_enqueue_fill(clt_device *device, clt_view to, float value, int64_t bytes)
{
    return bytes ? fill(device, to, &value, sizeof value, bytes) : CLT_OK;
}

clt_status clt_enqueue_zeros(clt_device *device, clt_view to, int64_t bytes)
{
    const float zero = 0;
    const size_t size = (to.offset | bytes) % 4 ? 2 : 4;
    return bytes ? fill(device, to, &zero, size, bytes) : CLT_OK;
}

clt_status clt_enqueue_wait(clt_device *device, int n_wait, const cl_event *wait)
{
    if (n_wait)
        CLT_CL(clEnqueueBarrierWithWaitList(device->queue, (cl_uint)n_wait, wait, NULL),
               "clEnqueueBarrierWithWaitList", device);
    return CLT_OK;
}

clt_status clt_device_flush(clt_device *device)
{
    CLT_CL(clFlush(device->queue), "clFlush", device);
    return CLT_OK;
}

clt_status clt_event_share(clt_device *device, cl_event event, cl_event *shared)
{
    CLT_CL(clRetainEvent(event), "clRetainEvent", device);
    *shared = event;
    return CLT_OK;
}
