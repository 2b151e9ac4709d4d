/* Helpers for OpenCL calls: messages of errors, and counts of the objects that the library
 * creates. */
#ifndef CLT_DEVICE_CORE_CL_H
#define CLT_DEVICE_CORE_CL_H

#include <stdint.h>

#include <CL/cl.h>

#include "base/error.h"
#include <cltrain/device.h>

/* Returns a code's name, as "CL_OUT_OF_RESOURCES"; "unknown code" for codes outside the table. */
const char *clt_cl_code_name(cl_int code);

/* Stores "CALL failed on DEVICE: NAME (code)" and returns the status. `device` may be NULL. */
clt_status clt_cl_fail(cl_int code, const char *call, const clt_device *device);

/* Returns from the calling function if an OpenCL call that returns a code failed. */
#define CLT_CL(expression, call, device)                                                           \
    do {                                                                                           \
        cl_int cl_code_ = (expression);                                                            \
        if (cl_code_ != CL_SUCCESS)                                                                \
            return clt_cl_fail(cl_code_, call, device);                                            \
    } while (0)

/* Kinds of OpenCL objects. Code outside device/ that creates or releases an object calls
 * clt_object_created and clt_object_released. A test checks with these counts that a step creates
 * only events. */
typedef enum clt_object {
    CLT_OBJECT_CONTEXT = 0,
    CLT_OBJECT_QUEUE = 1,
    CLT_OBJECT_BUFFER = 2,
    CLT_OBJECT_PROGRAM = 3,
    CLT_OBJECT_KERNEL = 4,
    CLT_OBJECT_EVENT = 5,
    CLT_OBJECT_DEVICE = 6, /* sub-devices */
    CLT_OBJECT_KINDS = 7
} clt_object;

void clt_object_created(clt_object kind);
void clt_object_released(clt_object kind);

/* Returns how many objects of a kind, or of all kinds (CLT_OBJECT_KINDS), this process has created
 * so far. Thread-safe. */
int64_t clt_device_object_count(clt_object kind);

/* Returns how many of them are not yet released. Thread-safe. */
int64_t clt_device_object_live(clt_object kind);

/* Release an object and count it. NULL is allowed. */
void clt_release_event(cl_event event);
void clt_release_kernel(cl_kernel kernel);
void clt_release_buffer(cl_mem buffer);

#endif
