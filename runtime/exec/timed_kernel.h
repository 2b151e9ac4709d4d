/* Kernels outside of plans, for measurements: sets arguments, launches, and reads end times of the
 * device's clock. */
#ifndef CLT_EXEC_TIMED_KERNEL_H
#define CLT_EXEC_TIMED_KERNEL_H

#include "device/core/device.h"

clt_status clt_timed_set_arg(clt_device *device, cl_kernel kernel, cl_uint index, size_t size,
                             const void *value);

/* Enqueues `items` work-items. The caller releases *event; `event` may be NULL. */
clt_status clt_timed_run(clt_device *device, cl_kernel kernel, size_t items, cl_event *event);

/* Returns the time at which the event's command ended, in seconds of the device's clock. The
 * event's queue must profile. */
clt_status clt_timed_end(clt_device *device, cl_event event, double *seconds);

/* Waits for the queue and maps the buffer's first `bytes` bytes for reading and writing. */
clt_status clt_timed_map(clt_device *device, cl_mem buffer, size_t bytes, void **host);
clt_status clt_timed_unmap(clt_device *device, cl_mem buffer, void *host);

/* Waits for the queue and copies the buffer's first `bytes` bytes to `to`. */
clt_status clt_timed_read(clt_device *device, cl_mem buffer, size_t bytes, void *to);

#endif
