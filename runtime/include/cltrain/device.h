/*
 * The devices of this machine: what was found, and opening some of them.
 *
 *     clt_runtime *runtime;
 *     clt_device **devices;
 *     int count;
 *     clt_runtime_create(NULL, &runtime);
 *     clt_devices_open(runtime, "gpu", NULL, &devices, &count);
 *     ...
 *     clt_devices_close(devices, count);
 *     clt_runtime_destroy(runtime);
 *
 * A host program that owns OpenCL objects adopts them instead: see <cltrain/opencl.h>.
 */
#ifndef CLTRAIN_DEVICE_H
#define CLTRAIN_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <cltrain/export.h>
#include <cltrain/status.h>

CLT_BEGIN_DECLS

/* What was found on this machine. Immutable once created: every function on it is thread-safe. */
typedef struct clt_runtime clt_runtime;

/* One opened device with its context and queues. One thread at a time enqueues on it. */
typedef struct clt_device clt_device;

typedef struct clt_runtime_options {
    size_t struct_size; /* set by clt_runtime_options_init */
    /* Folder of compiled programs and tuning records. NULL: $XDG_CACHE_HOME/cltrain, else
     * ~/.cache/cltrain; "": nothing is read or written. Files of it that are damaged, stale or not
     * accessible count as absent. Compiled programs are neither read nor written, with one warning
     * to the log, where another user owns the folder or others may write to it. PoCL keeps a cache
     * of its own (~/.cache/pocl), which only the environment variable POCL_CACHE_DIR, set before
     * the first OpenCL call, can move: the library does not change the environment, so this option
     * does not move it. */
    const char *cache_dir;
} clt_runtime_options;

/* Fills in the defaults. */
CLT_API void clt_runtime_options_init(clt_runtime_options *options);

/* Finds all platforms and devices through the OpenCL loader. `options` may be NULL. A machine
 * without any device is no error here: the runtime then has 0 rows and clt_devices_open says what
 * to install. Concurrent calls run one after the other. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT. */
CLT_API clt_status clt_runtime_create(const clt_runtime_options *options, clt_runtime **out);

/* Takes NULL. Opened devices stay valid. */
CLT_API void clt_runtime_destroy(clt_runtime *runtime);

/* Number of rows, those that cannot be used included. */
CLT_API int clt_runtime_device_count(const clt_runtime *runtime);

/* Why there are no rows or fewer than expected, and what to install, in one line; "" if nothing is
 * wrong. The string lives as long as the runtime. */
CLT_API const char *clt_runtime_remark(const clt_runtime *runtime);

/* One device as `cltrain devices` prints it. */
typedef struct clt_device_info {
    size_t struct_size;        /* set by clt_device_info_init */
    int index;                 /* row, and the number by which --devices names it */
    int platform_index;        /* place among the devices of its platform: pocl:0 */
    char suffix[32];           /* the platform's ICD suffix, lower case, as "pocl"; may be "" */
    char platform[128];        /* CL_PLATFORM_NAME */
    char platform_vendor[128]; /* CL_PLATFORM_VENDOR */
    char name[128];            /* CL_DEVICE_NAME */
    char vendor[128];          /* CL_DEVICE_VENDOR */
    char driver[128];          /* CL_DRIVER_VERSION */
    char version[128];         /* CL_DEVICE_VERSION */
    int kind;                  /* 0 CPU, 1 GPU, 2 other accelerator */
    int64_t memory_bytes;      /* global memory */
    int64_t max_alloc_bytes;   /* largest single buffer */
    int64_t local_bytes;
    int compute_units;
    int vector_width; /* f32 lanes */
    int fp16, fp64;   /* 1 if the device claims arithmetic of that type */
    int subgroups;
    int host_memory;   /* 1 if mapping a buffer copies nothing */
    int splittable;    /* 1 if the driver offers parts (/N and @C); kept or not shows when opened */
    int usable;        /* 0: `skip` says why */
    char skip[160];    /* "" if usable */
    int duplicate_of;  /* row of the same physical device on another platform; -1 if none */
    char quirks[256];  /* remarks on the driver; "" if none */
    char identity[64]; /* of the physical device: "host", "pci:0000:65:00.0" or "uuid:..."; may be
                          "" */
} clt_device_info;

CLT_API void clt_device_info_init(clt_device_info *info);

/* Copies row `index` (0 <= index < clt_runtime_device_count) to *info, which was initialised by
 * clt_device_info_init. Errors: INVALID_ARGUMENT. */
CLT_API clt_status clt_runtime_device_info(const clt_runtime *runtime, int index,
                                           clt_device_info *info);

typedef struct clt_device_options {
    size_t struct_size; /* set by clt_device_options_init */
    int profiling;      /* 1: queues record times (slower) */
    int sleep_poll;     /* 1: wait by sleeping and asking, for drivers whose waits spin */
    int share_context;  /* 1: devices of one platform get one context, in which they may copy from
                           each other (<cltrain/comm.h>); default: one for each */
} clt_device_options;

CLT_API void clt_device_options_init(clt_device_options *options);

/*
 * Opens the devices that `list` names (the notation of --devices), in the list's order:
 *
 *     items by comma: all | gpu | cpu | PLATFORM[:INDEX] | INDEX
 *
 * PLATFORM is an ICD suffix (pocl, intel, nv, amd, without regard to case), else a part of the
 * platform's name or vendor; INDEX alone is a row. An item may end in /N (N equal parts) or @C (a
 * part of C cores). Parts of one device get disjoint cores as long as there are enough. NULL or "":
 * all GPUs of the platform with most compute units, else the whole CPU.
 *
 * `options` may be NULL. *devices is an array of *count devices that clt_devices_close frees.
 * Errors: NO_DEVICE, NOT_FOUND and INVALID_ARGUMENT (the message names the item), UNSUPPORTED (a
 * device cannot be split, or does not keep to its part), OPENCL, OUT_OF_MEMORY. Thread-safe.
 */
CLT_API clt_status clt_devices_open(clt_runtime *runtime, const char *list,
                                    const clt_device_options *options, clt_device ***devices,
                                    int *count);

/* Closes the devices and frees the array. Takes NULL. What was made on them must be gone. */
CLT_API void clt_devices_close(clt_device **devices, int count);

/* Closes one adopted device. Takes NULL. */
CLT_API void clt_device_close(clt_device *device);

/* How messages name the device, as "pocl:0#1 (pthread-haswell)". Lives as long as the device. */
CLT_API const char *clt_device_label(const clt_device *device);

/* The row that the device came from, with the values of its part where it is one (compute units).
 * `index` is -1 for an adopted device that discovery did not list. Errors: INVALID_ARGUMENT. */
CLT_API clt_status clt_device_get_info(const clt_device *device, clt_device_info *info);

CLT_END_DECLS

#endif
