/*
 * Memory that the host and a device use at the same addresses: fine-grained shared virtual memory
 * of OpenCL 2.0. What the host has written before it enqueues a command is seen by the command.
 * What a command has written is seen by the host once the command has ended. So transfers are not
 * needed.
 */
#ifndef CLT_DEVICE_CORE_SHARED_H
#define CLT_DEVICE_CORE_SHARED_H

#include "device/core/device.h"

typedef struct clt_shared {
    void *data;
    cl_mem buffer; /* the same memory, for kernels */
    cl_context context;
} clt_shared;

/* Whether the device has such memory, and shares the host's. */
bool clt_shared_supported(const clt_device *device);

/* Allocates memory with unspecified content. `what` names it in messages. Errors:
 * OUT_OF_DEVICE_MEMORY, OPENCL. */
clt_status clt_shared_create(clt_device *device, int64_t bytes, const char *what, clt_shared *out);

/* Frees the memory and zeroes the struct, which may be zeroed already. No command may use it. */
void clt_shared_destroy(clt_shared *shared);

#endif
