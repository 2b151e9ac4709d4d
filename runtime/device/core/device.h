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

/* Peculiarities of drivers, as bits. device/discover/quirks.c has the table. */
typedef enum clt_quirk {
    CLT_QUIRK_NO_BINARIES = 1,  /* programs are always compiled from source */
    CLT_QUIRK_LATE_COMPILE = 2, /* compiles at a kernel's first enqueue, once for each local size */
    CLT_QUIRK_HOST_WORKS = 4,   /* a host thread that waits inside OpenCL computes */
    CLT_QUIRK_WAIT_SPINS = 8,   /* waits keep a core busy: sleep and poll instead */
    CLT_QUIRK_SERIAL_BUILD = 16, /* one build at a time */
    CLT_QUIRK_HOST_WIDTH = 32,   /* reports the host's vector width, also for other targets */
    CLT_QUIRK_BUILTINS = 64,     /* the compiler has clang's __builtin functions */
    CLT_QUIRK_KEEP_PARTS = 128,  /* the driver uses sub-devices after their last release */
    CLT_QUIRK_OWN_DECLARATIONS =
        256 /* the driver's long header can be replaced by clkernels/core/builtins.clh */
} clt_quirk;

struct clt_program_table;
struct clt_first_list;
struct clt_plan_node;

/* An enqueued command. */
typedef struct clt_command {
    const char *name;                 /* of the kernel, or "upload", "download", "copy", "fill" */
    const struct clt_plan_node *node; /* NULL: the command belongs to no node */
    int launch;                       /* number of the launch within the node */
    int64_t bytes;                    /* bytes that a transfer moves */
    bool transfer;                    /* not a kernel */
} clt_command;

/* Called for every command of a step. The callback must release the event. */
typedef void (*clt_watcher)(void *user, const clt_command *command, cl_event event);

struct clt_device {
    char label[192]; /* the device's name in messages */
    int row;         /* row in the runtime; -1: adopted and not listed there */
    cl_platform_id platform;
    cl_device_id id;   /* the device or sub-device */
    cl_device_id root; /* the whole device that `id` is a part of, or `id` itself */
    cl_context context;
    cl_command_queue queue;    /* compute, in-order */
    cl_command_queue transfer; /* GPUs: a second in-order queue; otherwise equal to `queue` */
    clt_caps caps;             /* of the part, if the device is a part */
    clt_device_info info;      /* of the part, too */
    _Atomic int quirks;        /* bits of clt_quirk */
    bool profiling, sleep_poll, adopted;
    _Atomic bool probes;            /* a build may fail, so its log is no error of the user's */
    bool made_context, made_queues; /* made by the library, and so counted */
    uint64_t identity;              /* hash of platform, device name and driver: equal devices */
    char *cache_dir;                /* NULL: no cache */
    struct clt_program_table *programs; /* device/program/program.c */
    struct clt_first_list *later;       /* device/program/first_launch.c; NULL: none */
    clt_watcher watcher;                /* NULL: none, and commands create no events for it */
    void *watcher_user;
    struct clt_clblast_state *clblast; /* see device/discover/clblast.c; NULL: not used so far */
};

#define CLT_COMMON_OPTIONS "-cl-std=CL1.2 -w"
/* For a program with its own standard option, because some compilers reject two. */
#define CLT_STANDARD_OPTION "-cl-std="
#define CLT_OTHER_COMMON_OPTIONS "-w"
#define CLT_BUILTINS_OPTION "-DCLT_BUILTINS"
/* The first macro leaves a header of PoCL out. Of that header, its other headers need only
 * uintptr_t. */
#define CLT_OWN_DECLARATIONS_OPTIONS "-D_OPENCL_H_ -Duintptr_t=__UINTPTR_TYPE__"

/*
 * Creates a kernel object whose arguments belong to the caller alone. Release it with
 * clt_release_kernel.
 *
 * `file` names an embedded source ("matmul/cpu/gemm.cl"). `options` are compiler options such as
 * "-DTILE=8" (NULL: none). CLT_COMMON_OPTIONS or CLT_OTHER_COMMON_OPTIONS are added, and
 * CLT_BUILTINS_OPTION if CLT_QUIRK_BUILTINS is set. The first call for (file, options) builds the
 * program, and later calls share it. Files that use CLT_HAS (core/one_kernel.clh) have one program
 * for each kernel.
 *
 * Errors: NOT_FOUND (no such file, include or kernel), BUILD (the message has the compiler's first
 * error lines, the log callback gets the whole log), OPENCL.
 */
clt_status clt_device_kernel(clt_device *device, const char *file, const char *options,
                             const char *kernel, cl_kernel *out);

/* Creates a kernel object from a text that is not embedded, such as a probe or a host program's
 * kernel. `name` stands for the file in messages. `name` and the text together identify the
 * program. */
clt_status clt_device_kernel_from_text(clt_device *device, const char *name, const char *text,
                                       const char *options, const char *kernel, cl_kernel *out);

typedef struct clt_program_key {
    const char *file, *options;
    const char *kernel; /* the kernel that will be used; NULL: all */
    const char *text; /* not embedded: the library made it; `file` is for messages. NULL: `file` */
} clt_program_key;

/* Builds programs in advance on several host threads. Returns the first failure in the order of the
 * list. */
clt_status clt_device_prepare(clt_device *device, const clt_program_key *keys, int count);

/* Gets the hash of the source and options compiled for (file, options). Replicas and resumed runs
 * compare it. */
clt_status clt_device_program_hash(clt_device *device, const char *file, const char *options,
                                   uint64_t *hash);

/*
 * Creates a buffer of `bytes`, zeroed by a command on the compute queue. Drivers allocate lazily,
 * and the command makes a failure appear here. If the device has memory of its own, the call waits
 * for the command. `what` names the buffer in messages, as "arena slab 0". Release the buffer with
 * clt_release_buffer. Errors: OUT_OF_DEVICE_MEMORY (says how much was needed and available),
 * INVALID_ARGUMENT (bytes <= 0), OPENCL.
 */
clt_status clt_device_buffer_create(clt_device *device, int64_t bytes, cl_mem_flags flags,
                                    const char *what, cl_mem *out);

/* Creates a buffer without zeroing it. The content is unspecified, and a failure may appear at the
 * first use. */
clt_status clt_device_buffer_create_raw(clt_device *device, int64_t bytes, cl_mem_flags flags,
                                        const char *what, cl_mem *out);

/* Checks that a device can use `bytes` of a buffer of the caller, from byte `offset` on, which must
 * be a multiple of `element`. kernels_read: kernels do; otherwise commands copy it, which
 * CL_MEM_WRITE_ONLY permits. `device` NULL: the context is not checked. `what` begins messages, as
 * "feed x". Errors: INVALID_ARGUMENT. */
clt_status clt_buffer_check(const clt_device *device, cl_mem buffer, bool kernels_read,
                            int64_t offset, int64_t bytes, int element, const char *what);

/* Returns the bytes that could still be allocated, as far as the host can tell. For devices in host
 * memory the system and the control group limit them. For other devices this is the device's memory
 * size. */
int64_t clt_device_memory_available(const clt_device *device);

/* Blocks until the events are complete, by clWaitForEvents or by sleeping and polling. Returns the
 * error of a failed command. */
clt_status clt_device_wait(clt_device *device, int count, const cl_event *events);

/* Report a command to the watcher. clt_watch_event returns the event argument for the enqueue, NULL
 * if there is no watcher. clt_watch passes the command on if the enqueue has set the event. */
cl_event *clt_watch_event(const clt_device *device, cl_event *event);
void clt_watch(const clt_device *device, const clt_command *command, cl_event event);

/* Finishes both queues. */
clt_status clt_device_finish(clt_device *device);

#endif
