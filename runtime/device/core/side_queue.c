#include "device/core/side_queue.h"

#include "base/alloc.h"

struct clt_side_queue {
    clt_device *device;
    cl_command_queue queue;
};

clt_status clt_side_queue_create(clt_device *device, clt_side_queue **out)
{
    cl_int code;
    clt_side_queue *q = CLT_NEW(clt_side_queue);
    CLT_TRY_MEMORY(q);
    q->device = device;
    q->queue = clCreateCommandQueue(device->context, device->id, 0, &code);
    if (code != CL_SUCCESS) {
        clt_free(q);
        return clt_cl_fail(code, "clCreateCommandQueue", device);
    }
    clt_object_created(CLT_OBJECT_QUEUE);
    *out = q;
    return CLT_OK;
}

void clt_side_queue_destroy(clt_side_queue *queue)
{
    if (!queue)
        return;
    clReleaseCommandQueue(queue->queue);
    clt_object_released(CLT_OBJECT_QUEUE);
    clt_free(queue);
}

clt_status clt_side_queue_read(clt_side_queue *queue, cl_mem buffer, int64_t offset, int64_t bytes,
                               void *to)
{
    cl_event event;
    CLT_CL(clEnqueueReadBuffer(queue->queue, buffer, CL_FALSE, (size_t)offset, (size_t)bytes, to, 0,
                               NULL, &event),
           "clEnqueueReadBuffer", queue->device);
    clt_object_created(CLT_OBJECT_EVENT);
    const cl_int flushed = clFlush(queue->queue);
    clt_status status = clt_device_wait(queue->device, 1, &event);
    clt_release_event(event);
    if (status == CLT_OK && flushed != CL_SUCCESS)
        status = clt_cl_fail(flushed, "clFlush", queue->device);
    return status;
}
