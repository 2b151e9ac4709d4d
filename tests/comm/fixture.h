/* Devices for the tests: parts of one device in one context or in a context each. */
#ifndef TESTS_COMM_FIXTURE_H
#define TESTS_COMM_FIXTURE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <cltrain/comm.h>

enum { FIXTURE_MAX = 4 };

typedef struct fixture {
    int count;
    bool one_context;
    cl_device_id root, devices[FIXTURE_MAX];
    bool split; /* devices are sub-devices of root */
    cl_context contexts[FIXTURE_MAX];
    cl_command_queue queues[FIXTURE_MAX], transfers[FIXTURE_MAX];
} fixture;

#define FIXTURE_CL(call)                                                                           \
    do {                                                                                           \
        cl_int fixture_error_ = (call);                                                            \
        if (fixture_error_ != CL_SUCCESS) {                                                        \
            fprintf(stderr, "%s:%d: OpenCL error %d\n", __FILE__, __LINE__, fixture_error_);       \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The device's parts of one core each, made once for the process: PoCL's worker threads still touch
 * a sub-device for a moment after its last command has ended, and crash where it was released. */
static inline cl_device_id *fixture_parts(cl_device_id root, int units)
{
    static cl_device_id parts[256];
    cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    if (!parts[0] && clCreateSubDevices(root, equally, (cl_uint)units, parts, NULL) != CL_SUCCESS)
        return NULL;
    return parts;
}

/* `count` participants: sub-devices of one core of the first CPU device where it can be split that
 * often, else the whole device several times (its contexts and queues are distinct all the same).
 */
static inline void fixture_open(fixture *f, int count, bool one_context, bool transfer_queues)
{
    cl_platform_id platform;
    cl_uint units = 1;
    cl_int error;
    *f = (fixture){.count = count, .one_context = one_context};
    FIXTURE_CL(clGetPlatformIDs(1, &platform, NULL));
    FIXTURE_CL(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &f->root, NULL));
    FIXTURE_CL(clGetDeviceInfo(f->root, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL));
    if ((int)units >= count && units <= 256 && fixture_parts(f->root, (int)units)) {
        f->split = true;
        for (int i = 0; i < count; i++)
            f->devices[i] = fixture_parts(f->root, (int)units)[i];
    } else {
        for (int i = 0; i < count; i++)
            f->devices[i] = f->root;
    }
    for (int i = 0; i < count; i++) {
        if (!one_context) {
            f->contexts[i] = clCreateContext(NULL, 1, &f->devices[i], NULL, NULL, &error);
        } else if (i == 0) {
            f->contexts[0] = clCreateContext(NULL, f->split ? (cl_uint)count : 1, f->devices, NULL,
                                             NULL, &error);
        } else {
            f->contexts[i] = f->contexts[0];
            error = clRetainContext(f->contexts[0]);
        }
        FIXTURE_CL(error);
        f->queues[i] = clCreateCommandQueue(f->contexts[i], f->devices[i], 0, &error);
        FIXTURE_CL(error);
        if (transfer_queues) {
            f->transfers[i] = clCreateCommandQueue(f->contexts[i], f->devices[i], 0, &error);
            FIXTURE_CL(error);
        }
    }
}

static inline void fixture_close(fixture *f)
{
    for (int i = 0; i < f->count; i++) {
        clFinish(f->queues[i]);
        if (f->transfers[i])
            clReleaseCommandQueue(f->transfers[i]);
        clReleaseCommandQueue(f->queues[i]);
        clReleaseContext(f->contexts[i]);
    }
}

static inline void fixture_device(const fixture *f, int i, clt_comm_device *device)
{
    clt_comm_device_init(device);
    device->context = f->contexts[i];
    device->device = f->devices[i];
    device->compute = f->queues[i];
    device->transfer = f->transfers[i];
}

static inline clt_status fixture_comm(const fixture *f, const clt_comm_options *options,
                                      clt_comm **comm)
{
    clt_comm_device devices[FIXTURE_MAX];
    for (int i = 0; i < f->count; i++)
        fixture_device(f, i, &devices[i]);
    return clt_comm_create(devices, f->count, options, comm);
}

static inline cl_mem fixture_buffer(const fixture *f, int device, size_t bytes)
{
    cl_int error;
    cl_mem mem = clCreateBuffer(f->contexts[device], CL_MEM_READ_WRITE, bytes, NULL, &error);
    FIXTURE_CL(error);
    return mem;
}

#endif
