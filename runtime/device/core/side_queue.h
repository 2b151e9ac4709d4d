/* A queue beside a device's own, for threads that read buffers while another thread enqueues
 * steps. */
#ifndef CLT_DEVICE_CORE_SIDE_QUEUE_H
#define CLT_DEVICE_CORE_SIDE_QUEUE_H

#include "device/core/device.h"

typedef struct clt_side_queue clt_side_queue;

/* Creates a queue. The device must outlive it. Errors: OPENCL, OUT_OF_MEMORY. */
clt_status clt_side_queue_create(clt_device *device, clt_side_queue **out);

/* Destroys the queue. NULL is allowed. */
void clt_side_queue_destroy(clt_side_queue *queue);

/* Reads bytes of a buffer of the device's context, and waits for them. One thread at a time.
 * Errors: those of OpenCL. */
clt_status clt_side_queue_read(clt_side_queue *queue, cl_mem buffer, int64_t offset, int64_t bytes,
                               void *to);

#endif
