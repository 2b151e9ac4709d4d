/* Kernels outside of plans, for measurements: arguments, launches, their ends by the device's
 * clock. */
#ifndef CLT_EXEC_TIMED_KERNEL_H
#define CLT_EXEC_TIMED_KERNEL_H

#include "device/core/device.h"

clt_status clt_timed_set_arg(clt_device *device, cl_kernel kernel, cl_uint index, size_t size,
                             const void *value);

/* Enqueues `items` work-items. The caller releases *event; `event` may be NULL. */
clt_status clt_timed_run(clt_device *device, cl_kernel kernel, size_t items, cl_event *event);

/* When the event's command ended, in seconds by the device's clock: its queue must profile. */
clt_status clt_timed_end(clt_device *device, cl_event event, double *seconds);

/* Waits for the queue and copies the buffer's first `bytes` bytes to `to`. */
clt_status clt_timed_read(clt_device *device, cl_mem buffer, size_t bytes, void *to);

#endif
