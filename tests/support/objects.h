/* Counts all OpenCL objects of this program, except events. These definitions replace those of the
 * OpenCL loader, so calls of the library are counted too. Include this header in one file of a
 * program. */
#ifndef CLT_TESTS_SUPPORT_OBJECTS_H
#define CLT_TESTS_SUPPORT_OBJECTS_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <CL/cl.h>

static atomic_llong objects_created, buffers_and_kernels;

/* Returns the number of objects made so far. */
static inline int64_t objects_made(void)
{
    return atomic_load(&objects_created);
}

/* Returns the number of buffers and kernels that are not released. The number is exact unless an
 * object is retained. */
static inline int64_t objects_live(void)
{
    return atomic_load(&buffers_and_kernels);
}

static inline void objects_find(const char *name, void *function)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    memcpy(function, &found, sizeof found);
}

#define OBJECTS_WRAP(result, name, live, parameters, arguments)                                    \
    result name parameters                                                                         \
    {                                                                                              \
        result(*next) parameters;                                                                  \
        objects_find(#name, &next);                                                                \
        atomic_fetch_add(&objects_created, 1);                                                     \
        atomic_fetch_add(&buffers_and_kernels, live);                                              \
        return next arguments;                                                                     \
    }

#define OBJECTS_WRAP_END(name, type, change)                                                       \
    cl_int name(type object)                                                                       \
    {                                                                                              \
        cl_int (*next)(type);                                                                      \
        objects_find(#name, &next);                                                                \
        atomic_fetch_add(&buffers_and_kernels, change);                                            \
        return next(object);                                                                       \
    }

OBJECTS_WRAP(cl_mem, clCreateBuffer, 1,
             (cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *error),
             (context, flags, size, host, error))
OBJECTS_WRAP(cl_mem, clCreateSubBuffer, 1,
             (cl_mem mem, cl_mem_flags flags, cl_buffer_create_type type, const void *info,
              cl_int *error),
             (mem, flags, type, info, error))
OBJECTS_WRAP(cl_kernel, clCreateKernel, 1, (cl_program program, const char *name, cl_int *error),
             (program, name, error))
OBJECTS_WRAP(cl_program, clCreateProgramWithSource, 0,
             (cl_context context, cl_uint count, const char **texts, const size_t *lengths,
              cl_int *error),
             (context, count, texts, lengths, error))
OBJECTS_WRAP(cl_command_queue, clCreateCommandQueue, 0,
             (cl_context context, cl_device_id device, cl_command_queue_properties properties,
              cl_int *error),
             (context, device, properties, error))
OBJECTS_WRAP(cl_event, clCreateUserEvent, 0, (cl_context context, cl_int *error), (context, error))
OBJECTS_WRAP_END(clReleaseMemObject, cl_mem, -1)
OBJECTS_WRAP_END(clRetainMemObject, cl_mem, 1)
OBJECTS_WRAP_END(clReleaseKernel, cl_kernel, -1)

#endif
