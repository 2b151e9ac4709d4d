/*
 * What a device can do, and which measured choices hold for it. Plain data, without OpenCL, so that
 * operators, passes and the plan can be built and tested without a device.
 */
#ifndef CLT_BASE_CAPS_H
#define CLT_BASE_CAPS_H

#include <stdbool.h>
#include <stdint.h>

#include <cltrain/types.h>

typedef enum clt_device_kind {
    CLT_KIND_CPU = 0,
    CLT_KIND_GPU = 1,
    CLT_KIND_OTHER = 2 /* accelerators: treated like a GPU */
} clt_device_kind;

typedef struct clt_caps {
    char name[128];     /* CL_DEVICE_NAME */
    char vendor[128];   /* CL_DEVICE_VENDOR */
    char platform[128]; /* CL_PLATFORM_NAME */
    char driver[128];   /* CL_DRIVER_VERSION and CL_DEVICE_VERSION */
    clt_device_kind kind;
    int compute_units;
    int vector_width;     /* native f32 lanes: 4, 8 or 16 on CPUs; 1 on most GPUs */
    int vector_registers; /* CPUs: architectural vector registers, 16 or 32 */
    int64_t memory_bytes; /* CL_DEVICE_GLOBAL_MEM_SIZE */
    int64_t max_alloc_bytes;
    int64_t local_bytes;
    int64_t cache_bytes; /* CL_DEVICE_GLOBAL_MEM_CACHE_SIZE; 0 if unknown */
    int max_work_group;  /* CL_DEVICE_MAX_WORK_GROUP_SIZE */
    int align_bytes;     /* CL_DEVICE_MEM_BASE_ADDR_ALIGN in bytes */
    bool host_memory;    /* shares the host's memory: mapping copies nothing */
    bool fp16, fp64;     /* arithmetic in the kernel language, probed by a compile */
    bool subgroups;
    bool clblast; /* the CLBlast library is there; looked for on devices other than CPUs */
} clt_caps;

/* True for devices that want barrier-free kernels with explicit vectors. */
static inline bool clt_caps_is_cpu(const clt_caps *caps)
{
    return caps->kind == CLT_KIND_CPU;
}

/* One measured choice. `shape_class` is the operator's own grouping of shapes, as
 * "m256n128k800t01". `variant` names a row of the operator's list of variants; `options` are its -D
 * tile options. */
typedef struct clt_tuning_entry {
    char op[32];
    char shape_class[64];
    char variant[48];
    char options[128];
    double seconds;       /* median of the measurement that decided */
    double plain_seconds; /* likewise, of what a plan takes without a record */
    char rejected[160];   /* candidates whose results were wrong, "VARIANT OPTIONS; ..." */
    char files[192];      /* kernel files of all candidates, with commas between them */
    uint64_t source;      /* hash of their texts, clt_tuning_source */
    uint64_t variants;    /* hash of the variants that accept, clt_variants_hash; 0: any */
    int tried;            /* candidates before the time was over; 0: all */
    bool shipped;         /* came with the library, not from this machine's cache folder */
} clt_tuning_entry;

/* What was measured on one (device, driver). Read-only while a plan is made. */
typedef struct clt_tuning_record {
    char device[128], driver[128];
    clt_tuning_entry *entries;
    int count, room;
} clt_tuning_record;

/* The entry for (op, shape class), NULL if nothing was measured. `record` may be NULL. */
const clt_tuning_entry *clt_tuning_find(const clt_tuning_record *record, const char *op,
                                        const char *shape_class);

#endif
