/*
 * Page-aligned host memory for transfers, pinned where the driver pins memory. It is a host pointer
 * only: never give its cl_mem to a kernel or a copy. Pinned for one context: each device has its
 * own.
 */
#ifndef CLT_DEVICE_CORE_STAGING_H
#define CLT_DEVICE_CORE_STAGING_H

#include "device/core/device.h"

typedef struct clt_staging {
    void *data;
    int64_t bytes;
    bool pinned;   /* `data` is mapped from `object`; otherwise it is plain memory */
    cl_mem object; /* internal, as the next */
    cl_command_queue queue;
} clt_staging;

/* `what` names it in messages. The device must outlive it. Its content is unspecified. Errors:
 * OUT_OF_MEMORY, INVALID_ARGUMENT. */
clt_status clt_staging_create(clt_device *device, int64_t bytes, const char *what,
                              clt_staging *out);

/* Takes what create filled, or a zeroed one; zeroes it. No transfer may be running. */
void clt_staging_destroy(clt_staging *staging);

#endif
