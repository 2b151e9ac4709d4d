/*
 * The devices of this machine. A runtime lists them, and opens some of them.
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

/* The list of devices of this machine. It does not change: all its functions are thread-safe. */
typedef struct clt_runtime clt_runtime;

/* An open device with its context and queues. One thread at a time enqueues on it. */
typedef struct clt_device clt_device;

typedef struct clt_runtime_options {
    size_t struct_size; /* set by clt_runtime_options_init */
    /* Folder of compiled programs and tuning records. NULL: $XDG_CACHE_HOME/cltrain, else
     * ~/.cache/cltrain. "": nothing is read or written.
     *
     * - Files that are damaged, stale or not accessible count as absent.
     * - If another user owns the folder or others may write to it, compiled programs are neither
     *   read nor written, and a warning is logged.
     * - PoCL keeps a cache of its own (~/.cache/pocl). This option does not move it, because the
     *   library does not change the environment. Set POCL_CACHE_DIR before the first OpenCL call.
     */
    const char *cache_dir;
} clt_runtime_options;

/* Fills in the defaults. */
CLT_API void clt_runtime_options_init(clt_runtime_options *options);

/* Finds all platforms and devices through the OpenCL loader. `options` may be NULL. Without any
 * device the runtime has 0 rows, and clt_devices_open says what to install. Concurrent calls run
 * one after the other. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT. Free *out with
 * clt_runtime_destroy. */
CLT_API clt_status clt_runtime_create(const clt_runtime_options *options, clt_runtime **out);

/* Frees the runtime. Takes NULL. Open devices stay valid. */
CLT_API void clt_runtime_destroy(clt_runtime *runtime);

/* Returns the number of rows, with those that cannot be used. */
CLT_API int clt_runtime_device_count(const clt_runtime *runtime);

/* Returns one line that says why rows are missing and what to install; "" if nothing is wrong.
 * Valid as long as the runtime. */
CLT_API const char *clt_runtime_remark(const clt_runtime *runtime);

/* A row: a device as `cltrain devices` prints it. */
typedef struct clt_device_info {
    size_t struct_size;        /* set by clt_device_info_init */
    int index;                 /* row, and the number by which --devices names it */
    int platform_index;        /* place among the devices of its platform: pocl:0 */
    char suffix[32];           /* the platform's ICD suffix, lower case ("pocl"); may be "" */
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
    int host_memory;  /* 1 if mapping a buffer copies nothing */
    int splittable;   /* 1 if the driver offers parts (/N and @C); opening tells if it keeps them */
    int usable;       /* 0: `skip` says why */
    char skip[160];   /* "" if usable */
    int duplicate_of; /* row of the same physical device on another platform; -1 if none */
    char quirks[256]; /* remarks on the driver; "" if none */
    char identity[64]; /* of the physical device: "host", "pci:0000:65:00.0" or "uuid:..."; may be
                          "" */
    /* Of opened devices: the instruction for products of small matrices that a probe found exact,
     * and its types ("mma.m16n8k16 bf16 f16"); else "". */
    char matrix_unit[48];
} clt_device_info;

/* Sets struct_size. */
CLT_API void clt_device_info_init(clt_device_info *info);

/* Copies row `index` (0 <= index < clt_runtime_device_count) to *info, which was initialised by
 * clt_device_info_init. Errors: INVALID_ARGUMENT. */
CLT_API clt_status clt_runtime_device_info(const clt_runtime *runtime, int index,
                                           clt_device_info *info);

/* How to open devices. Set up by clt_device_options_init; all members are 0 by default. */
typedef struct clt_device_options {
    size_t struct_size; /* set by clt_device_options_init */
    int profiling;      /* 1: queues record times (slower) */
    int sleep_poll;     /* 1: poll and sleep instead of waiting, for drivers whose waits spin */
    int share_context;  /* 1: devices of one platform share a context, in which they may copy from
                           each other (<cltrain/comm.h>); 0: each has a context of its own */
} clt_device_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_device_options_init(clt_device_options *options);

/*
 * Opens the devices that `list` names, in the order of the list. Items are separated by commas:
 *
 *     all | gpu | cpu | PLATFORM[:INDEX] | INDEX
 *
 * - PLATFORM is an ICD suffix (pocl, intel, nv, amd, in any case), else a part of the platform's
 * name or vendor. INDEX alone is a row.
 * - An item may end in /N (N equal parts) or @C (a part of C cores). Parts of one device get
 * disjoint cores as long as there are enough.
 * - NULL or "": all GPUs of the platform with most compute units, else the whole CPU.
 *
 * `options` may be NULL. *devices is an array of *count devices. Free it with clt_devices_close.
 * Errors: NO_DEVICE, NOT_FOUND and INVALID_ARGUMENT (the message names the item), UNSUPPORTED (a
 * device cannot be split, or does not keep to its part), OPENCL, OUT_OF_MEMORY. Thread-safe.
 */
CLT_API clt_status clt_devices_open(clt_runtime *runtime, const char *list,
                                    const clt_device_options *options, clt_device ***devices,
                                    int *count);

/* Closes the devices and frees the array. Takes NULL. Destroy what was made on the devices
 * first. */
CLT_API void clt_devices_close(clt_device **devices, int count);

/* Closes an adopted device. Takes NULL. */
CLT_API void clt_device_close(clt_device *device);

/* Returns the device's name in messages, such as "pocl:0#1 (pthread-haswell)". Valid as long as the
 * device. */
CLT_API const char *clt_device_label(const clt_device *device);

/* Copies the row of the device to *info. A part of a device has its own number of compute units.
 * `index` is -1 for an adopted device that no row lists. Errors: INVALID_ARGUMENT. */
CLT_API clt_status clt_device_get_info(const clt_device *device, clt_device_info *info);

/*
 * Receives how far the compilation of a plan's kernels has come: `done` of `total`. `device` is the
 * label of the device. `kernels` is 0 while the driver builds programs. It is 1 while a driver that
 * compiles late (PoCL) compiles the kernels of these programs, each at its first launch; `done` 0
 * begins a plan. Threads of several devices may call it at once, within any function that makes a
 * trainer or predictor or makes a step. Kernels that the driver's cache has count too, and take
 * little time.
 */
typedef void (*clt_compile_fn)(void *user, const char *device, int kernels, int done, int total);

/* Sets the callback of the process. NULL: none. With a callback the first step of a plan waits for
 * each new kernel on devices that compile late. Call it before all functions that compile: it is
 * not thread-safe. */
CLT_API void clt_compile_set(clt_compile_fn fn, void *user);

/* Starts processes that compile kernels for devices that compile late (PoCL), since that driver
 * compiles one kernel of a process at a time. They are copies of this process (fork), wait for
 * work, and end with this process. A trainer's kernels are then compiled when it is made, by all of
 * them at once, and the driver reads them from its cache. Devices without a cache folder do not use
 * them. `count`: at most 16; 0 ends them. Call it before the process has further threads and before
 * it uses OpenCL. Not thread-safe. Errors: INVALID_ARGUMENT, STATE (there are such processes
 * already), IO (they cannot be started). */
CLT_API clt_status clt_compile_processes(int count);

CLT_END_DECLS

#endif
