/* Devices for the tests: parts of one device, in one context or with a context each. */
#ifndef TESTS_COMM_FIXTURE_H
#define TESTS_COMM_FIXTURE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/comm.h>

enum { FIXTURE_MAX = 8 };

typedef struct fixture {
    int count;
    bool one_context;
    cl_device_id devices[FIXTURE_MAX];
    bool split; /* the devices are sub-devices */
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

enum { FIXTURE_PLATFORMS = 2, FIXTURE_UNITS = 256 };

/* A device and its parts of one core each. They are made once for the process and never released:
 * PoCL's worker threads use a sub-device a moment after its last command has ended, and would
 * crash. */
typedef struct fixture_root {
    cl_device_id id;
    cl_device_id parts[FIXTURE_UNITS];
    int units; /* 0 if it cannot be split */
} fixture_root;

/* Returns the first platform, or the one whose vendor has this name ("pocl", "intel"). */
static inline cl_platform_id fixture_platform(const char *name)
{
    cl_platform_id platforms[16];
    cl_uint count = 0;
    FIXTURE_CL(clGetPlatformIDs(16, platforms, &count));
    for (cl_uint i = 0; i < count && i < 16; i++) {
        char vendor[128] = "";
        clGetPlatformInfo(platforms[i], CL_PLATFORM_VENDOR, sizeof vendor, vendor, NULL);
        if (!*name || strcasestr(vendor, name))
            return platforms[i];
    }
    fprintf(stderr, "there is no platform '%s'\n", name);
    abort();
}

/* Returns the devices that participants take in turn. CLT_TEST_DEVICES names their platforms,
 * separated by commas. The default is the device of the first platform. */
static inline fixture_root *fixture_roots(int *count)
{
    static fixture_root roots[FIXTURE_PLATFORMS];
    static int found;
    const char *list = getenv("CLT_TEST_DEVICES");
    while (!found || (list && found < FIXTURE_PLATFORMS && (list = strchr(list, ',')) && list++)) {
        fixture_root *r = &roots[found++];
        char name[32];
        cl_uint units = 0;
        const cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
        snprintf(name, sizeof name, "%.*s", list ? (int)strcspn(list, ",") : 0, list ? list : "");
        FIXTURE_CL(clGetDeviceIDs(fixture_platform(name), CL_DEVICE_TYPE_ALL, 1, &r->id, NULL));
        FIXTURE_CL(clGetDeviceInfo(r->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL));
        if (units <= FIXTURE_UNITS &&
            clCreateSubDevices(r->id, equally, units, r->parts, NULL) == CL_SUCCESS)
            r->units = (int)units;
        if (!list)
            break;
    }
    *count = found;
    return roots;
}

/* Opens `count` participants. They are sub-devices of one core each if the CPU can be split so
 * often. Otherwise they share the whole device, with different contexts and queues. Devices of
 * several platforms have a context each. */
static inline void fixture_open(fixture *f, int count, bool one_context, bool transfer_queues)
{
    int platforms;
    cl_int error;
    const fixture_root *roots = fixture_roots(&platforms);
    one_context = one_context && platforms == 1;
    *f = (fixture){.count = count, .one_context = one_context};
    f->split = true;
    for (int i = 0; i < count; i++) {
        const fixture_root *r = &roots[i % platforms];
        const bool split = r->units >= (count + platforms - 1) / platforms;
        f->devices[i] = split ? r->parts[i / platforms] : r->id;
        f->split = f->split && split;
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
