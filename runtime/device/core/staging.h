/*
 * Page-aligned host memory for transfers, pinned if the driver supports pinning. Use it as a host
 * pointer only: never give its cl_mem to a kernel or a copy. Memory is pinned for one context, so
 * each device has its own.
 */
#ifndef CLT_DEVICE_CORE_STAGING_H
#define CLT_DEVICE_CORE_STAGING_H

#include "device/core/device.h"

typedef struct clt_staging {
    void *data;
    int64_t bytes;
    bool pinned;   /* `data` is mapped from `object`; otherwise it is plain memory */
    cl_mem object; /* internal, like `queue` */
    cl_command_queue queue;
} clt_staging;

/* Allocates staging memory with unspecified content. `what` names it in messages. The device must
 * outlive it. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT. */
clt_status clt_staging_create(clt_device *device, int64_t bytes, const char *what,
                              clt_staging *out);

/* Frees the memory and zeroes the struct, which may be zeroed already. No transfer may be
 * running. */
void clt_staging_destroy(clt_staging *staging);

#endif
