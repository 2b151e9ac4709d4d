/*
 * An opened device as exec, tune and comm see it. Fields are read-only for them.
 *
 * Thread safety: one thread enqueues on a device's queues. clt_device_kernel, clt_device_prepare
 * and the buffer functions may be called from any thread.
 */
#ifndef CLT_DEVICE_CORE_DEVICE_H
#define CLT_DEVICE_CORE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/caps.h"
#include "device/core/cl.h"
#include <cltrain/device.h>
#include <cltrain/opencl.h>

/* What drivers do differently, as bits; device/discover/quirks.c has the table. */
typedef enum clt_quirk {
    CLT_QUIRK_NO_BINARIES = 1,   /* programs are always compiled from source */
    CLT_QUIRK_LATE_COMPILE = 2,  /* compiles at a kernel's first enqueue, per local size */
    CLT_QUIRK_HOST_WORKS = 4,    /* the host thread computes while it waits inside OpenCL */
    CLT_QUIRK_WAIT_SPINS = 8,    /* waits burn a core: sleep and ask instead */
    CLT_QUIRK_SERIAL_BUILD = 16, /* one build at a time */
    CLT_QUIRK_HOST_WIDTH = 32,   /* reports the host's vectors, whatever it compiles for */
    CLT_QUIRK_BUILTINS = 64,     /* its compiler has the __builtin functions of clang */
    CLT_QUIRK_KEEP_PARTS = 128,  /* uses sub-devices after their last release */
    CLT_QUIRK_OWN_DECLARATIONS =
        256 /* reads a long header that clkernels/core/builtins.clh can replace */
} clt_quirk;

struct clt_program_table;
struct clt_plan_node;

/* A command that was enqueued. */
typedef struct clt_command {
    const char *name;                 /* of the kernel, or "upload", "download", "copy", "fill" */
    const struct clt_plan_node *node; /* NULL: not a node's */
    int launch;                       /* of the node */
    int64_t bytes;                    /* that a transfer moves */
} clt_command;

/* Is told of every command of a step; the event is its own to release. */
typedef void (*clt_watcher)(void *user, const clt_command *command, cl_event event);

struct clt_device {
    char label[192]; /* how messages name it */
    int row;         /* in the runtime it came from; -1: adopted and not listed there */
    cl_platform_id platform;
    cl_device_id id;   /* the device or sub-device */
    cl_device_id root; /* the device that `id` is a part of; the same as `id` if it is whole */
    cl_context context;
    cl_command_queue queue;    /* compute, in-order */
    cl_command_queue transfer; /* GPUs: a second in-order queue; otherwise the same as `queue` */
    clt_caps caps;             /* of the part, where it is one */
    clt_device_info info;      /* as caps */
    _Atomic int quirks;        /* bits of clt_quirk */
    bool profiling, sleep_poll, adopted;
    bool made_context, made_queues; /* by the library: counted */
    uint64_t identity;              /* hash of platform, device name and driver: equal devices */
    char *cache_dir;                /* NULL: no cache */
    struct clt_program_table *programs; /* device/program/program.c */
    clt_watcher watcher;                /* NULL: none, and commands make no events for it */
    void *watcher_user;
    struct clt_clblast_state *clblast; /* device/discover/clblast.c; NULL: not used so far */
};

#define CLT_COMMON_OPTIONS "-cl-std=CL1.2 -w"
/* Of a program that names its own standard: some compilers fail if there are two. */
#define CLT_STANDARD_OPTION "-cl-std="
#define CLT_OTHER_COMMON_OPTIONS "-w"
#define CLT_BUILTINS_OPTION "-DCLT_BUILTINS"
/* PoCL's other headers need no more than uintptr_t of the one that the first macro leaves out. */
#define CLT_OWN_DECLARATIONS_OPTIONS "-D_OPENCL_H_ -Duintptr_t=__UINTPTR_TYPE__"

/*
 * A fresh kernel object, so that its arguments are the caller's alone; release it with
 * clt_release_kernel. `file` names an embedded source ("matmul/cpu/gemm.cl"); `options` are
 * compiler options as "-DTILE=8" (NULL: none); CLT_COMMON_OPTIONS are added, or
 * CLT_OTHER_COMMON_OPTIONS, and CLT_BUILTINS_OPTION where CLT_QUIRK_BUILTINS is set. The program is
 * built at the first call for (file, options) and shared by later ones; files that use CLT_HAS
 * (core/one_kernel.clh) have a program for each kernel. Errors: NOT_FOUND (no such file, include or
 * kernel), BUILD (the message has the compiler's first error lines, the log callback gets the whole
 * log), OPENCL.
 */
clt_status clt_device_kernel(clt_device *device, const char *file, const char *options,
                             const char *kernel, cl_kernel *out);

/* As above for a text that is not embedded (probes, and kernels of a host program); `name` stands
 * for the file in messages and identifies it together with the text. */
clt_status clt_device_kernel_from_text(clt_device *device, const char *name, const char *text,
                                       const char *options, const char *kernel, cl_kernel *out);

typedef struct clt_program_key {
    const char *file, *options;
    const char *kernel; /* that is wanted of it; NULL: all */
} clt_program_key;

/* Builds programs ahead on several host threads. The first failure in the list's order is reported.
 */
clt_status clt_device_prepare(clt_device *device, const clt_program_key *keys, int count);

/* Hash of what was compiled for (file, options), for replicas and resumed runs that compare
 * programs. */
clt_status clt_device_program_hash(clt_device *device, const char *file, const char *options,
                                   uint64_t *hash);

/*
 * A buffer of `bytes`, zeroed by a command on the compute queue, since drivers allocate lazily and
 * a failure must show here: where memory is the device's own, the call waits for that command.
 * `what` names the buffer in messages, as "arena slab 0". Release with clt_release_buffer. Errors:
 * OUT_OF_DEVICE_MEMORY (says what was needed and what there is), INVALID_ARGUMENT (bytes <= 0),
 * OPENCL.
 */
clt_status clt_device_buffer_create(clt_device *device, int64_t bytes, cl_mem_flags flags,
                                    const char *what, cl_mem *out);

/* As above without the fill: its content is unspecified, and a failure may show at the first use.
 */
clt_status clt_device_buffer_create_raw(clt_device *device, int64_t bytes, cl_mem_flags flags,
                                        const char *what, cl_mem *out);

/* The context and size of a buffer of the caller's; false: it is none. */
bool clt_buffer_facts(cl_mem buffer, cl_context *context, int64_t *bytes);

/* Bytes that could still be allocated as far as the host can tell: for devices in host memory what
 * the system and the process' limits leave, otherwise the device's size. */
int64_t clt_device_memory_available(const clt_device *device);

/* Blocks until the events are complete, by clWaitForEvents or by sleeping and asking. A command
 * that failed gives its code. */
clt_status clt_device_wait(clt_device *device, int count, const cl_event *events);

/* Around an enqueue that makes no event for anybody else: the place for one, NULL if nobody
 * watches; then what was enqueued, unless it failed. */
cl_event *clt_watch_event(const clt_device *device, cl_event *event);
void clt_watch(const clt_device *device, const clt_command *command, cl_event event);

/* clFinish on both queues. */
clt_status clt_device_finish(clt_device *device);

#endif
