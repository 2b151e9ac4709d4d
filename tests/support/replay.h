/* Records the OpenCL objects and launches of a part of a program, and repeats them without the
 * library: what the driver itself keeps is then known. These definitions replace those of the
 * OpenCL loader, so the calls of the library are recorded. Include this header in one file of a
 * program with one thread that uses OpenCL. */
#ifndef CLT_TESTS_SUPPORT_REPLAY_H
#define CLT_TESTS_SUPPORT_REPLAY_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CL/cl.h>

enum { REPLAY_MOST = 512, REPLAY_ARGS = 64, REPLAY_NAME = 128, REPLAY_VALUE = 128 };

typedef enum replay_kind {
    REPLAY_CONTEXT,
    REPLAY_QUEUE,
    REPLAY_PROGRAM,
    REPLAY_KERNEL,
    REPLAY_BUFFER,
    REPLAY_KINDS
} replay_kind;

/* An object, and the number of that which it was made of. */
typedef struct replay_object {
    replay_kind kind;
    void *handle; /* while recording, and while replaying */
    int of;       /* the context; of a kernel the program */
    uint64_t flags;
    size_t bytes;
    unsigned char *binary;
    char text[REPLAY_NAME]; /* a kernel's name */
    char *options;          /* NULL: not built */
    bool released;
} replay_object;

typedef struct replay_arg {
    size_t bytes;
    int buffer; /* -1: the value is no buffer */
    bool local; /* local memory of so many bytes */
    unsigned char value[REPLAY_VALUE];
} replay_arg;

typedef struct replay_launch {
    int kernel, queue, n_args;
    cl_uint rank;
    size_t offset[3], global[3], local[3];
    bool has_offset, has_local;
    replay_arg args[REPLAY_ARGS];
} replay_launch;

static struct replay {
    pthread_mutex_t lock;
    bool recording;
    cl_device_id device;
    int n_objects, n_launches;
    replay_object objects[REPLAY_MOST];
    replay_launch launches[REPLAY_MOST];
    replay_arg args[REPLAY_MOST][REPLAY_ARGS]; /* by kernel: its arguments now */
} replay = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void replay_find(const char *name, void *function)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    memcpy(function, &found, sizeof found);
}

/* Returns the number of an object that is not released, or -1. */
static inline int replay_of(replay_kind kind, const void *handle)
{
    for (int i = replay.n_objects - 1; i >= 0; i--)
        if (replay.objects[i].kind == kind && replay.objects[i].handle == handle &&
            !replay.objects[i].released)
            return i;
    return -1;
}

/* Adds an object, unless nothing is recorded. */
static inline replay_object *replay_add(replay_kind kind, void *handle, replay_kind of,
                                        const void *maker)
{
    if (!replay.recording || !handle)
        return NULL;
    if (replay.n_objects == REPLAY_MOST)
        abort();
    replay_object *o = &replay.objects[replay.n_objects];
    *o = (replay_object){.kind = kind, .handle = handle, .of = maker ? replay_of(of, maker) : -1};
    replay.n_objects++;
    return o;
}

/* --- recording -------------------------------------------------------------------------------- */

cl_context clCreateContext(const cl_context_properties *properties, cl_uint count,
                           const cl_device_id *devices,
                           void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                           void *user, cl_int *error)
{
    cl_context (*next)(const cl_context_properties *, cl_uint, const cl_device_id *,
                       void(CL_CALLBACK *)(const char *, const void *, size_t, void *), void *,
                       cl_int *);
    replay_find("clCreateContext", &next);
    cl_context made = next(properties, count, devices, notify, user, error);
    pthread_mutex_lock(&replay.lock);
    if (replay_add(REPLAY_CONTEXT, made, REPLAY_CONTEXT, NULL))
        replay.device = devices[0];
    pthread_mutex_unlock(&replay.lock);
    return made;
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties flags, cl_int *error)
{
    cl_command_queue (*next)(cl_context, cl_device_id, cl_command_queue_properties, cl_int *);
    replay_find("clCreateCommandQueue", &next);
    cl_command_queue made = next(context, device, flags, error);
    pthread_mutex_lock(&replay.lock);
    replay_object *o = replay_add(REPLAY_QUEUE, made, REPLAY_CONTEXT, context);
    if (o)
        o->flags = flags;
    pthread_mutex_unlock(&replay.lock);
    return made;
}

cl_program clCreateProgramWithBinary(cl_context context, cl_uint count, const cl_device_id *devices,
                                     const size_t *bytes, const unsigned char **binaries,
                                     cl_int *states, cl_int *error)
{
    cl_program (*next)(cl_context, cl_uint, const cl_device_id *, const size_t *,
                       const unsigned char **, cl_int *, cl_int *);
    replay_find("clCreateProgramWithBinary", &next);
    cl_program made = next(context, count, devices, bytes, binaries, states, error);
    pthread_mutex_lock(&replay.lock);
    replay_object *o = replay_add(REPLAY_PROGRAM, made, REPLAY_CONTEXT, context);
    if (o) {
        o->bytes = bytes[0];
        o->binary = malloc(bytes[0]);
        if (!o->binary)
            abort();
        memcpy(o->binary, binaries[0], bytes[0]);
    }
    pthread_mutex_unlock(&replay.lock);
    return made;
}

cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                      const char *options, void(CL_CALLBACK *notify)(cl_program, void *),
                      void *user)
{
    cl_int (*next)(cl_program, cl_uint, const cl_device_id *, const char *,
                   void(CL_CALLBACK *)(cl_program, void *), void *);
    replay_find("clBuildProgram", &next);
    pthread_mutex_lock(&replay.lock);
    const int i = replay.recording ? replay_of(REPLAY_PROGRAM, program) : -1;
    if (i >= 0)
        replay.objects[i].options = strdup(options ? options : "");
    pthread_mutex_unlock(&replay.lock);
    return next(program, count, devices, options, notify, user);
}

cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *error)
{
    cl_kernel (*next)(cl_program, const char *, cl_int *);
    replay_find("clCreateKernel", &next);
    cl_kernel made = next(program, name, error);
    pthread_mutex_lock(&replay.lock);
    replay_object *o = replay_add(REPLAY_KERNEL, made, REPLAY_PROGRAM, program);
    if (o)
        snprintf(o->text, sizeof o->text, "%s", name);
    pthread_mutex_unlock(&replay.lock);
    return made;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host,
                      cl_int *error)
{
    cl_mem (*next)(cl_context, cl_mem_flags, size_t, void *, cl_int *);
    replay_find("clCreateBuffer", &next);
    cl_mem made = next(context, flags, size, host, error);
    pthread_mutex_lock(&replay.lock);
    replay_object *o = replay_add(REPLAY_BUFFER, made, REPLAY_CONTEXT, context);
    if (o) {
        o->flags = flags & ~(cl_mem_flags)(CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR);
        o->bytes = size;
    }
    pthread_mutex_unlock(&replay.lock);
    return made;
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t bytes, const void *value)
{
    cl_int (*next)(cl_kernel, cl_uint, size_t, const void *);
    replay_find("clSetKernelArg", &next);
    pthread_mutex_lock(&replay.lock);
    const int i = replay.recording ? replay_of(REPLAY_KERNEL, kernel) : -1;
    if (i >= 0) {
        replay_arg *a = &replay.args[i][index];
        void *handle = NULL;
        if (index >= REPLAY_ARGS || (value && bytes > REPLAY_VALUE))
            abort();
        *a = (replay_arg){.bytes = bytes, .buffer = -1, .local = !value};
        if (value) {
            memcpy(a->value, value, bytes);
            if (bytes == sizeof handle)
                memcpy(&handle, value, sizeof handle);
        }
        if (handle)
            a->buffer = replay_of(REPLAY_BUFFER, handle);
    }
    pthread_mutex_unlock(&replay.lock);
    return next(kernel, index, bytes, value);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint rank,
                              const size_t *offset, const size_t *global, const size_t *local,
                              cl_uint n_waits, const cl_event *waits, cl_event *event)
{
    cl_int (*next)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *,
                   const size_t *, cl_uint, const cl_event *, cl_event *);
    replay_find("clEnqueueNDRangeKernel", &next);
    pthread_mutex_lock(&replay.lock);
    const int i = replay.recording ? replay_of(REPLAY_KERNEL, kernel) : -1;
    if (i >= 0) {
        if (replay.n_launches == REPLAY_MOST)
            abort();
        replay_launch *l = &replay.launches[replay.n_launches++];
        *l = (replay_launch){.kernel = i,
                             .queue = replay_of(REPLAY_QUEUE, queue),
                             .rank = rank,
                             .has_offset = offset != NULL,
                             .has_local = local != NULL};
        for (cl_uint d = 0; d < rank; d++) {
            l->offset[d] = offset ? offset[d] : 0;
            l->global[d] = global[d];
            l->local[d] = local ? local[d] : 0;
        }
        for (int a = 0; a < REPLAY_ARGS; a++) {
            l->args[a] = replay.args[i][a];
            if (l->args[a].bytes)
                l->n_args = a + 1;
        }
    }
    pthread_mutex_unlock(&replay.lock);
    return next(queue, kernel, rank, offset, global, local, n_waits, waits, event);
}

/* A handle may be used again after its release. */
#define REPLAY_RELEASE(name, type, kind)                                                           \
    cl_int name(type object)                                                                       \
    {                                                                                              \
        cl_int (*next)(type);                                                                      \
        replay_find(#name, &next);                                                                 \
        pthread_mutex_lock(&replay.lock);                                                          \
        const int i = replay.recording ? replay_of(kind, object) : -1;                             \
        if (i >= 0)                                                                                \
            replay.objects[i].released = true;                                                     \
        pthread_mutex_unlock(&replay.lock);                                                        \
        return next(object);                                                                       \
    }

REPLAY_RELEASE(clReleaseKernel, cl_kernel, REPLAY_KERNEL)
REPLAY_RELEASE(clReleaseMemObject, cl_mem, REPLAY_BUFFER)

static inline void replay_record(bool on)
{
    replay.recording = on;
}

/* --- replaying -------------------------------------------------------------------------------- */

static inline void replay_check(cl_int code, const char *call)
{
    if (code != CL_SUCCESS) {
        fprintf(stderr, "replay: %s gave %d\n", call, code);
        abort();
    }
}

static inline void replay_make(replay_object *o)
{
    void *of = o->of >= 0 ? replay.objects[o->of].handle : NULL;
    cl_int code = CL_SUCCESS, state = CL_SUCCESS;
    const unsigned char *binary = o->binary;
    switch (o->kind) {
    case REPLAY_CONTEXT:
        o->handle = clCreateContext(NULL, 1, &replay.device, NULL, NULL, &code);
        break;
    case REPLAY_QUEUE:
        o->handle = clCreateCommandQueue(of, replay.device, o->flags, &code);
        break;
    case REPLAY_PROGRAM:
        o->handle =
            clCreateProgramWithBinary(of, 1, &replay.device, &o->bytes, &binary, &state, &code);
        if (o->options)
            replay_check(clBuildProgram(o->handle, 1, &replay.device, o->options, NULL, NULL),
                         "build");
        break;
    case REPLAY_KERNEL:
        o->handle = clCreateKernel(of, o->text, &code);
        break;
    case REPLAY_BUFFER:
        o->handle = clCreateBuffer(of, o->flags, o->bytes, NULL, &code);
        break;
    case REPLAY_KINDS:
        break;
    }
    replay_check(code, "a call that creates an object");
}

static inline void replay_start(const replay_launch *l)
{
    cl_kernel kernel = replay.objects[l->kernel].handle;
    for (int a = 0; a < l->n_args; a++) {
        const replay_arg *arg = &l->args[a];
        const void *value = arg->local ? NULL : arg->value;
        if (arg->buffer >= 0)
            value = &replay.objects[arg->buffer].handle;
        replay_check(clSetKernelArg(kernel, (cl_uint)a, arg->bytes, value), "clSetKernelArg");
    }
    replay_check(clEnqueueNDRangeKernel(replay.objects[l->queue].handle, kernel, l->rank,
                                        l->has_offset ? l->offset : NULL, l->global,
                                        l->has_local ? l->local : NULL, 0, NULL, NULL),
                 "clEnqueueNDRangeKernel");
}

static inline void replay_end(const replay_object *o)
{
    cl_int code = CL_SUCCESS;
    switch (o->kind) {
    case REPLAY_CONTEXT:
        code = clReleaseContext(o->handle);
        break;
    case REPLAY_QUEUE:
        code = clReleaseCommandQueue(o->handle);
        break;
    case REPLAY_PROGRAM:
        code = clReleaseProgram(o->handle);
        break;
    case REPLAY_KERNEL:
        code = clReleaseKernel(o->handle);
        break;
    case REPLAY_BUFFER:
        code = clReleaseMemObject(o->handle);
        break;
    case REPLAY_KINDS:
        break;
    }
    replay_check(code, "a release");
}

/* Makes all recorded objects, starts all recorded launches, waits, and releases the objects. */
static inline void replay_once(void)
{
    for (int i = 0; i < replay.n_objects; i++)
        replay_make(&replay.objects[i]);
    for (int i = 0; i < replay.n_launches; i++)
        replay_start(&replay.launches[i]);
    for (int i = 0; i < replay.n_objects; i++)
        if (replay.objects[i].kind == REPLAY_QUEUE)
            replay_check(clFinish(replay.objects[i].handle), "clFinish");
    for (int i = replay.n_objects - 1; i >= 0; i--)
        replay_end(&replay.objects[i]);
}

#endif
