/*
 * What a device can do, and the measured choices for it. These are plain data without OpenCL, so
 * that operators, passes and plans can be built and tested without a device.
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

/* Instructions that multiply small matrices of 16-bit numbers with f32 sums. The names of the
 * numbers are build options of clkernels/core/gpu/matrix_unit.clh. */
typedef enum clt_matrix_kind {
    CLT_MATRIX_NONE,
    CLT_MATRIX_MMA,  /* NVIDIA's mma.sync.m16n8k16 */
    CLT_MATRIX_MFMA, /* AMD CDNA's v_mfma_f32_16x16x16 */
    CLT_MATRIX_WMMA  /* AMD RDNA's v_wmma_f32_16x16x16 */
} clt_matrix_kind;

typedef struct clt_matrix_unit {
    clt_matrix_kind kind;
    bool f16, bf16; /* a probe multiplied matrices of this type exactly */
    bool emulated;  /* by OpenCL C, for tests of the kernels on devices without such a unit */
} clt_matrix_unit;

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
    bool host_memory;    /* shares the host's memory: mapping does not copy */
    bool fp16, fp64;     /* arithmetic in kernels; a test program was compiled */
    bool subgroups;
    bool clblast; /* the CLBlast library was found; never looked for on CPUs */
    clt_matrix_unit matrix;
} clt_caps;

/* Whether the device wants barrier-free kernels with explicit vectors. */
static inline bool clt_caps_is_cpu(const clt_caps *caps)
{
    return caps->kind == CLT_KIND_CPU;
}

enum { CLT_TUNING_SOURCES = 8 };

/* One measured choice, found by operator and `key`. `variant` names one of the operator's variants,
 * `options` are its -D tile options. */
typedef struct clt_tuning_entry {
    char op[32];
    uint64_t key;         /* of the class of shapes, see clt_plan_key; 0: read from an older
                             checkpoint and found by shape_class, see clt_plan_old_class */
    char shape_class[64]; /* the class for readers */
    char variant[48];
    char options[128];
    double seconds;       /* median time of the chosen candidate */
    double plain_seconds; /* median time of the choice that a plan makes without a record */
    char rejected[160];   /* candidates whose results were wrong, "VARIANT OPTIONS; ..." */
    uint64_t sources[CLT_TUNING_SOURCES]; /* hashes of the kernel files of all candidates, see
                                             clt_source_tokens; 0 behind the last */
    uint64_t variants; /* hash of the variants that accept, see clt_variants_hash; 0: any */
    int tried;         /* candidates measured before time ran out; 0: all */
    bool shipped;      /* came with the library, not from this machine's cache folder */
} clt_tuning_entry;

/* All measurements of one kind of device. Read-only while a plan is made. */
typedef struct clt_tuning_record {
    char platform[128], device[128], driver[128];
    int compute_units;
    bool texts; /* some entries have no key */
    clt_tuning_entry *entries;
    int count, room;
} clt_tuning_record;

/* Finds the entry for the operator's class; NULL if nothing was measured. Entries without a key are
 * found by `old_class`. `record` may be NULL. */
const clt_tuning_entry *clt_tuning_find(const clt_tuning_record *record, const char *op,
                                        uint64_t key, const char *old_class);

#endif
