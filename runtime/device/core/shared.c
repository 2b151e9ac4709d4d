/* The rest of the library needs OpenCL 1.2 only. */
#undef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 200

#include "device/core/shared.h"

/* Loaders of OpenCL 1.2 lack these functions. */
#pragma weak clSVMAlloc
#pragma weak clSVMFree

/* Enough for all types and for whole cache lines. */
enum { ALIGN = 128 };

bool clt_shared_supported(const clt_device *device)
{
    cl_device_svm_capabilities has = 0;
    if (!clSVMAlloc || !clSVMFree || !device->caps.host_memory)
        return false;
    /* A device of OpenCL 1.2 does not know the question. */
    return clGetDeviceInfo(device->id, CL_DEVICE_SVM_CAPABILITIES, sizeof has, &has, NULL) ==
               CL_SUCCESS &&
           has & CL_DEVICE_SVM_FINE_GRAIN_BUFFER;
}

clt_status clt_shared_create(clt_device *device, int64_t bytes, const char *what, clt_shared *out)
{
    cl_int code = CL_SUCCESS;
    clt_shared s = {.context = device->context};
    s.data = clSVMAlloc(s.context, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER, (size_t)bytes,
                        ALIGN);
    if (!s.data)
        return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                        "%s: %s gives no %lld bytes of shared virtual memory", what, device->label,
                        (long long)bytes);
    s.buffer = clCreateBuffer(s.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, (size_t)bytes,
                              s.data, &code);
    if (code != CL_SUCCESS) {
        clSVMFree(s.context, s.data);
        return clt_fail_prefix(clt_cl_fail(code, "clCreateBuffer", device), "%s: ", what);
    }
    clt_object_created(CLT_OBJECT_BUFFER);
    *out = s;
    return CLT_OK;
}

void clt_shared_destroy(clt_shared *s)
{
    clt_release_buffer(s->buffer);
    if (s->data)
        clSVMFree(s->context, s->data);
    *s = (clt_shared){0};
}
