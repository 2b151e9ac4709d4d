/* The commands of a step other than kernels, on a device's compute queue, in order. */
#ifndef CLT_EXEC_COMMANDS_H
#define CLT_EXEC_COMMANDS_H

#include "device/core/device.h"

/* A place in a buffer: the offset is in bytes. */
typedef struct clt_view {
    cl_mem buffer;
    int64_t offset;
} clt_view;

/* Copies host memory to the device. The memory must not change until the copy has run. */
clt_status clt_enqueue_upload(clt_device *device, clt_view to, const void *from, int64_t bytes);

/* Copies to host memory. *event is released and replaced; `event` may be NULL. */
clt_status clt_enqueue_download(clt_device *device, clt_view from, void *to, int64_t bytes,
                                cl_event *event);

/* Copies within the device. */
clt_status clt_enqueue_copy(clt_device *device, clt_view from, clt_view to, int64_t bytes);

/* Writes one small value (4, 8 or 16 bytes), which is copied at the call. */
clt_status clt_enqueue_value(clt_device *device, clt_view to, const void *value, int64_t bytes);

/* Writes `value` everywhere. Offset and bytes are multiples of 4. */
clt_status clt_enqueue_fill(clt_device *device, clt_view to, float value, int64_t bytes);

/* Writes zeros. Offset and bytes are multiples of 2. */
clt_status clt_enqueue_zeros(clt_device *device, clt_view to, int64_t bytes);

/* Makes commands enqueued later wait for the events. */
clt_status clt_enqueue_wait(clt_device *device, int n_wait, const cl_event *wait);

clt_status clt_device_flush(clt_device *device);

/* Adds a reference to an event, which the caller releases. */
clt_status clt_event_share(clt_device *device, cl_event event, cl_event *shared);

#endif
