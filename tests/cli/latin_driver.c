/* Preloaded, it gives every device the driver version "Café 1.5" in Latin-1. */
#define _GNU_SOURCE
#include <CL/cl.h>
#include <dlfcn.h>
#include <string.h>

typedef cl_int info_function(cl_device_id, cl_device_info, size_t, void *, size_t *);

__attribute__((visibility("default"))) cl_int
clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room, void *value, size_t *bytes)
{
    static const char text[] = "Caf\xe9 1.5";
    info_function *next = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "clGetDeviceInfo");
    if (what != CL_DRIVER_VERSION)
        return next(device, what, room, value, bytes);
    if (bytes)
        *bytes = sizeof text;
    if (value && room < sizeof text)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, text, sizeof text);
    return CL_SUCCESS;
}
