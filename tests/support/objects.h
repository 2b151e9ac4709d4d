/* Counts all OpenCL objects of this program, except events, and the bytes of buffers. These
 * definitions replace those of the OpenCL loader, so calls of the library are counted too. Include
 * this header in one file of a program. */
#ifndef CLT_TESTS_SUPPORT_OBJECTS_H
#define CLT_TESTS_SUPPORT_OBJECTS_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
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

/* Bytes of the buffers of a context: now, and the most since objects_forget_most. Pinned memory of
 * the host (CL_MEM_ALLOC_HOST_PTR) is counted by itself. */
typedef struct objects_buffers {
    _Atomic(cl_context) context;
    atomic_llong bytes, most, pinned;
} objects_buffers;

enum { OBJECTS_CONTEXTS = 1024 };
static objects_buffers objects_contexts[OBJECTS_CONTEXTS];

/* Finds a context's entry, and makes it if there is none. */
static inline objects_buffers *objects_in(cl_context context)
{
    for (int i = 0; i < OBJECTS_CONTEXTS; i++) {
        cl_context found = NULL;
        if (atomic_compare_exchange_strong(&objects_contexts[i].context, &found, context) ||
            found == context)
            return &objects_contexts[i];
    }
    abort();
}

/* Returns the bytes of a context's buffers that exist, and the most that existed at once. */
static inline int64_t objects_bytes(cl_context context)
{
    return atomic_load(&objects_in(context)->bytes);
}

static inline int64_t objects_most_bytes(cl_context context)
{
    return atomic_load(&objects_in(context)->most);
}

static inline int64_t objects_pinned_bytes(cl_context context)
{
    return atomic_load(&objects_in(context)->pinned);
}

static inline void objects_forget_most(cl_context context)
{
    objects_buffers *b = objects_in(context);
    atomic_store(&b->most, atomic_load(&b->bytes));
}

/* A buffer of this many bytes is gone. Drivers release it after the last command that uses it. */
typedef struct objects_gone {
    objects_buffers *of;
    size_t bytes;
    bool pinned;
} objects_gone;

static void CL_CALLBACK objects_subtract(cl_mem buffer, void *argument)
{
    objects_gone *gone = argument;
    (void)buffer;
    atomic_fetch_sub(gone->pinned ? &gone->of->pinned : &gone->of->bytes, (long long)gone->bytes);
    free(gone);
}

static inline void objects_count_bytes(cl_context context, cl_mem buffer, size_t bytes, bool pinned)
{
    objects_gone *gone = malloc(sizeof *gone);
    if (!gone)
        abort();
    *gone = (objects_gone){objects_in(context), bytes, pinned};
    const long long now =
        atomic_fetch_add(pinned ? &gone->of->pinned : &gone->of->bytes, (long long)bytes) +
        (long long)bytes;
    long long most = atomic_load(&gone->of->most);
    while (!pinned && most < now && !atomic_compare_exchange_weak(&gone->of->most, &most, now))
        ;
    if (clSetMemObjectDestructorCallback(buffer, objects_subtract, gone) != CL_SUCCESS)
        abort();
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

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host,
                      cl_int *error)
{
    cl_mem (*next)(cl_context, cl_mem_flags, size_t, void *, cl_int *);
    objects_find("clCreateBuffer", &next);
    atomic_fetch_add(&objects_created, 1);
    atomic_fetch_add(&buffers_and_kernels, 1);
    cl_mem buffer = next(context, flags, size, host, error);
    if (buffer)
        objects_count_bytes(context, buffer, size, (flags & CL_MEM_ALLOC_HOST_PTR) != 0);
    return buffer;
}

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
