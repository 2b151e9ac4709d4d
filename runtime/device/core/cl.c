#include "device/core/cl.h"

#include <stdatomic.h>

/* One row for each code: name without CL_, value. From Khronos' cl.h and cl_ext.h, and codes that
 * drivers return. */
#define CODE_LIST(X)                                                                               \
    X(SUCCESS, 0)                                                                                  \
    X(DEVICE_NOT_FOUND, -1)                                                                        \
    X(DEVICE_NOT_AVAILABLE, -2)                                                                    \
    X(COMPILER_NOT_AVAILABLE, -3)                                                                  \
    X(MEM_OBJECT_ALLOCATION_FAILURE, -4)                                                           \
    X(OUT_OF_RESOURCES, -5)                                                                        \
    X(OUT_OF_HOST_MEMORY, -6)                                                                      \
    X(PROFILING_INFO_NOT_AVAILABLE, -7)                                                            \
    X(MEM_COPY_OVERLAP, -8)                                                                        \
    X(IMAGE_FORMAT_MISMATCH, -9)                                                                   \
    X(IMAGE_FORMAT_NOT_SUPPORTED, -10)                                                             \
    X(BUILD_PROGRAM_FAILURE, -11)                                                                  \
    X(MAP_FAILURE, -12)                                                                            \
    X(MISALIGNED_SUB_BUFFER_OFFSET, -13)                                                           \
    X(EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, -14)                                              \
    X(COMPILE_PROGRAM_FAILURE, -15)                                                                \
    X(LINKER_NOT_AVAILABLE, -16)                                                                   \
    X(LINK_PROGRAM_FAILURE, -17)                                                                   \
    X(DEVICE_PARTITION_FAILED, -18)                                                                \
    X(KERNEL_ARG_INFO_NOT_AVAILABLE, -19)                                                          \
    X(INVALID_VALUE, -30)                                                                          \
    X(INVALID_DEVICE_TYPE, -31)                                                                    \
    X(INVALID_PLATFORM, -32)                                                                       \
    X(INVALID_DEVICE, -33)                                                                         \
    X(INVALID_CONTEXT, -34)                                                                        \
    X(INVALID_QUEUE_PROPERTIES, -35)                                                               \
    X(INVALID_COMMAND_QUEUE, -36)                                                                  \
    X(INVALID_HOST_PTR, -37)                                                                       \
    X(INVALID_MEM_OBJECT, -38)                                                                     \
    X(INVALID_BINARY, -42)                                                                         \
    X(INVALID_BUILD_OPTIONS, -43)                                                                  \
    X(INVALID_PROGRAM, -44)                                                                        \
    X(INVALID_PROGRAM_EXECUTABLE, -45)                                                             \
    X(INVALID_KERNEL_NAME, -46)                                                                    \
    X(INVALID_KERNEL_DEFINITION, -47)                                                              \
    X(INVALID_KERNEL, -48)                                                                         \
    X(INVALID_ARG_INDEX, -49)                                                                      \
    X(INVALID_ARG_VALUE, -50)                                                                      \
    X(INVALID_ARG_SIZE, -51)                                                                       \
    X(INVALID_KERNEL_ARGS, -52)                                                                    \
    X(INVALID_WORK_DIMENSION, -53)                                                                 \
    X(INVALID_WORK_GROUP_SIZE, -54)                                                                \
    X(INVALID_WORK_ITEM_SIZE, -55)                                                                 \
    X(INVALID_GLOBAL_OFFSET, -56)                                                                  \
    X(INVALID_EVENT_WAIT_LIST, -57)                                                                \
    X(INVALID_EVENT, -58)                                                                          \
    X(INVALID_OPERATION, -59)                                                                      \
    X(INVALID_BUFFER_SIZE, -61)                                                                    \
    X(INVALID_GLOBAL_WORK_SIZE, -63)                                                               \
    X(INVALID_PROPERTY, -64)                                                                       \
    X(INVALID_COMPILER_OPTIONS, -66)                                                               \
    X(INVALID_DEVICE_PARTITION_COUNT, -68)                                                         \
    X(PLATFORM_NOT_FOUND_KHR, -1001)                                                               \
    X(DEVICE_PARTITION_FAILED_EXT, -1057)                                                          \
    X(NVIDIA_ILLEGAL_ACCESS, -9999)

const char *clt_cl_code_name(cl_int code)
{
    switch (code) {
#define CODE_CASE(name, value)                                                                     \
    case value:                                                                                    \
        return "CL_" #name;
        CODE_LIST(CODE_CASE)
#undef CODE_CASE
    }
    return "unknown code";
}

/* Returns the status of a code: OUT_OF_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_LOST, BUILD, OPENCL. */
static clt_status cl_status(cl_int code)
{
    switch (code) {
    case CL_SUCCESS:
        return CLT_OK;
    case CL_OUT_OF_HOST_MEMORY:
        return CLT_OUT_OF_MEMORY;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
        return CLT_OUT_OF_DEVICE_MEMORY;
    case CL_DEVICE_NOT_AVAILABLE:
    case -9999:
        return CLT_DEVICE_LOST;
    case CL_BUILD_PROGRAM_FAILURE:
        return CLT_BUILD;
    default:
        return CLT_OPENCL;
    }
}

clt_status clt_cl_fail(cl_int code, const char *call, const clt_device *device)
{
    if (device)
        return clt_fail(cl_status(code), "%s failed on %s: %s (%d)", call, clt_device_label(device),
                        clt_cl_code_name(code), (int)code);
    return clt_fail(cl_status(code), "%s failed: %s (%d)", call, clt_cl_code_name(code), (int)code);
}

static _Atomic int64_t created[CLT_OBJECT_KINDS];
static _Atomic int64_t released[CLT_OBJECT_KINDS];

void clt_object_created(clt_object kind)
{
    atomic_fetch_add_explicit(&created[kind], 1, memory_order_relaxed);
}

void clt_object_released(clt_object kind)
{
    atomic_fetch_add_explicit(&released[kind], 1, memory_order_relaxed);
}

static int64_t total(_Atomic int64_t *counts, clt_object kind)
{
    int64_t sum = 0;
    for (int i = 0; i < CLT_OBJECT_KINDS; i++) {
        if (kind == CLT_OBJECT_KINDS || i == (int)kind)
            sum += atomic_load_explicit(&counts[i], memory_order_relaxed);
    }
    return sum;
}

int64_t clt_device_object_count(clt_object kind)
{
    return total(created, kind);
}

int64_t clt_device_object_live(clt_object kind)
{
    return total(created, kind) - total(released, kind);
}

void clt_release_event(cl_event event)
{
    if (!event)
        return;
    clReleaseEvent(event);
    clt_object_released(CLT_OBJECT_EVENT);
}

void clt_release_kernel(cl_kernel kernel)
{
    if (!kernel)
        return;
    clReleaseKernel(kernel);
    clt_object_released(CLT_OBJECT_KERNEL);
}

void clt_release_buffer(cl_mem buffer)
{
    if (!buffer)
        return;
    clReleaseMemObject(buffer);
    clt_object_released(CLT_OBJECT_BUFFER);
}
