/*
 * What a node becomes on a device: a list of kernel launches, as plain data. A variant writes them
 * with the clt_launch_ and clt_arg_ functions here; exec turns them into OpenCL calls. Everything
 * that depends on the batch count is a clt_extent, so one list serves every count.
 */
#ifndef CLT_OPS_CORE_LAUNCH_H
#define CLT_OPS_CORE_LAUNCH_H

#include "base/blas_sets.h"
#include "base/caps.h"
#include "graph/graph.h"

/* mul * ceil(n * pre / div) + add for a batch of n; pre = 0: mul + add. */
typedef struct clt_extent {
    int64_t mul, pre, div, add;
} clt_extent;

static inline int64_t clt_extent_at(clt_extent e, int64_t n)
{
    return e.add + (e.pre ? e.mul * ((n * e.pre + e.div - 1) / e.div) : e.mul);
}

/* A constant. */
static inline clt_extent clt_fixed(int64_t value)
{
    return (clt_extent){value, 0, 1, 0};
}

/* `mul` times the batch count. */
static inline clt_extent clt_times_batch(int64_t mul)
{
    return (clt_extent){mul, 1, 1, 0};
}

/* At least mul * ceil(count / div) for a count without `add`; exact but for counts of LANES, where
 * each group of lanes is rounded up. */
clt_extent clt_extent_ceil(clt_extent count, int64_t div, int64_t mul);

/* A dimension (negative: times the batch) as an extent. */
clt_extent clt_extent_dim(int64_t dim);

/* Elements of a type; of a value as it lies in its layout with `lanes` lanes. */
clt_extent clt_extent_elements(const clt_type *type);
clt_extent clt_extent_stored(const clt_value *value, int lanes);

/* Numbers that only a run knows, passed as kernel arguments. */
typedef enum clt_runtime_arg {
    CLT_RUN_COUNT, /* int: images in this device's (micro-)batch */
    CLT_RUN_STEP,  /* uint: number of the step, for random numbers */
    CLT_RUN_SEED,  /* ulong */
    CLT_RUN_SAMPLE /* long: position of the first image within the global batch */
} clt_runtime_arg;

typedef enum clt_arg_kind {
    CLT_ARG_IN,  /* two arguments: (global T *base, long offset in elements); `index` = operand */
    CLT_ARG_OUT, /* the same for output `index` */
    CLT_ARG_SCRATCH, /* the same for scratch block `index` */
    CLT_ARG_INT,     /* int, an extent */
    CLT_ARG_LONG,    /* long, an extent */
    CLT_ARG_FLOAT,
    CLT_ARG_RUN,  /* `index`: a clt_runtime_arg */
    CLT_ARG_LOCAL /* local memory of `extent` bytes (constant) */
} clt_arg_kind;

typedef struct clt_arg {
    clt_arg_kind kind;
    int index;
    clt_extent extent;
    float value;
} clt_arg;

/* A product that a library enqueues, not a kernel of ours: C[m, n] = op(A)[m, k] op(B)[k, n],
 * row-major, `pairs` times. */
typedef struct clt_blas_gemm {
    clt_extent m, n, k, lda, ldb, pairs;
    clt_extent a_step, b_step; /* elements from one pair to the next */
    bool trans_a, trans_b;
    bool packed;                         /* copies the operands into tiles first */
    clt_blas_set sets[CLT_BLAS_KERNELS]; /* the same in all products of a plan */
    int a, b;                            /* the node's operands */
    int out;                             /* output */
    int block;                           /* scratch block, or -1 */
} clt_blas_gemm;

typedef struct clt_launch {
    char *file;    /* below clkernels/; the library's name if it is one's */
    char *options; /* build options: -D... */
    char *kernel;
    clt_blas_gemm *blas; /* NULL: a kernel. Otherwise without arguments and range */
    clt_arg *args;
    int n_args, room_args;
    int work_dim;
    clt_extent global[3]; /* work-items; exec skips the launch when one is 0 */
    int64_t local[3];     /* 0: the driver's choice */
} clt_launch;

/* The launches of one node, in order, and the scratch memory they share (freed after the node). */
typedef struct clt_program {
    clt_launch *launches;
    int n_launches, room_launches;
    clt_extent *scratch; /* bytes of each block, for the plan's largest batch at most */
    int n_scratch, room_scratch;
    clt_status status; /* first failure of the functions below */
} clt_program;

/* What a variant may look at. */
typedef struct clt_target clt_target;

struct clt_target {
    const clt_caps *caps;
    const clt_tuning_record *tuning; /* may be NULL */
    int lanes;                       /* lane count of the batch-blocked layout: 4, 8 or 16 */
    bool lanes_always;               /* also for batches that leave most lanes empty */
    int64_t max_batch;
    const char *variants; /* OP=NAME,...: variants to prefer; NULL: none */
    const char *tile;     /* NAME=NUMBER,...: what a tuner chose for this node; NULL: nothing */
};

/* The number of that name in target->tile; `otherwise` if it is not there, or not in
 * [least, most]. */
int64_t clt_tile_number(const clt_target *target, const char *name, int64_t least, int64_t most,
                        int64_t otherwise);

/* The variant of `op` that `variants` names; NULL: none, or one that the operator does not have. */
const struct clt_variant *clt_variant_wanted(const clt_op *op, const char *variants);

/* The next item of OP=NAME,... as text of *length bytes, and its operator (NULL: there is none of
 * that name); moves *variants on. NULL: no more, as of NULL. */
const char *clt_variants_next(const char **variants, int *length, const clt_op **op);

/* Of the names of the variants that accept the node, in order, whatever was asked for; never 0. A
 * measurement made among others does not hold. */
uint64_t clt_variants_hash(const clt_node *node, const clt_target *target);

/* Of all that a program enqueues; programs with other kernels, arguments or ranges differ. */
uint64_t clt_program_hash(const clt_program *program);

/* Begins a launch of `kernel` in `file`, built with `options` (printf). */
void clt_launch_begin(clt_program *p, const char *file, const char *kernel, const char *options,
                      ...) CLT_PRINTF(4, 5);

/* A launch of CLBlast's sgemm. */
void clt_launch_clblast(clt_program *p, const clt_blas_gemm *gemm);

/* Arguments of the launch begun last, in the kernel's order. */
void clt_arg_in(clt_program *p, int operand);
void clt_arg_out(clt_program *p, int output);
void clt_arg_scratch(clt_program *p, int block);
void clt_arg_int(clt_program *p, clt_extent value);
void clt_arg_long(clt_program *p, clt_extent value);
void clt_arg_float(clt_program *p, double value);
void clt_arg_run(clt_program *p, clt_runtime_arg which);
void clt_arg_local(clt_program *p, int64_t bytes);

/* Adds a scratch block of that many bytes; its index. */
int clt_scratch_add(clt_program *p, clt_extent bytes);

/* Range of the launch begun last: work-items in all. `local` is one work-group's size, or 0. */
void clt_range1(clt_program *p, clt_extent global, int64_t local);
void clt_range3(clt_program *p, clt_extent gx, clt_extent gy, clt_extent gz, int64_t lx, int64_t ly,
                int64_t lz);

void clt_program_free(clt_program *p);

/* Tells each launch's kernel, by build options, which of the operands and outputs that it gets lie
 * in 16 bits: IN0, .., OUT0, .. of clkernels/core/storage.clh. */
void clt_program_tell_storage(clt_program *p, const clt_node *node);

/*
 * A way to compute an operator. clt_op.variants lists them, best first; the last is portable: it
 * accepts every device and shape. A tuning record may prefer another that accepts.
 */
typedef struct clt_variant {
    const char *name;

    /* False: declines, with the reason in `why` (CLT_WHY bytes). NULL: accepts everything. */
    bool (*accepts)(const clt_node *node, const clt_target *target, char *why);

    /* Writes the launches. Failures go to program->status. */
    void (*emit)(const clt_node *node, const clt_target *target, clt_program *program);

    /* Writes to `tile` (CLT_TILE_TEXT bytes) what a tuner may try as target->tile, for index 0, 1,
     * ..; false past the last. NULL: nothing but the variant's own choice. */
    bool (*tiles)(const clt_node *node, const clt_target *target, int index, char *tile);

    unsigned traits; /* CLT_BATCH_BLOCKED, .. */
} clt_variant;

/* Traits of variants. */
enum {
    CLT_BATCH_BLOCKED = 1, /* takes values in batch blocks only */
    CLT_CLBLAST = 2        /* its product is CLBlast's, whose parameters are tuned apart */
};

enum { CLT_WHY = 128, CLT_TILE_TEXT = 96 };

/* Writes the reason and returns false, so that `return clt_decline(why, ...)` works. */
bool clt_decline(char *why, const char *format, ...) CLT_PRINTF(2, 3);

/* --- common reasons and ranges -------------------------------------------------------------- */

/* For clt_op.half: all kernels of the operator read and write all their f32 operands and outputs in
 * 16 bits as well. */
bool clt_half_all(const clt_node *node, const clt_target *target, int index, bool output);

/* For clt_variant.accepts: no operand and no output lies in 16 bits. */
bool clt_accepts_f32(const clt_node *node, char *why);

/* True if every operand and output of the node lies PLAIN. */
bool clt_all_plain(const clt_node *node);

/* For clt_variant.accepts: all values lie PLAIN; or every f32 value that leads with the batch lies
 * in LANES. */
bool clt_accepts_plain(const clt_node *node, const clt_target *target, char *why);
bool clt_accepts_batch_blocked(const clt_node *node, const clt_target *target, char *why);

/* For the same: a CPU with vectors of 4, 8 or 16 floats, and all values lie PLAIN. */
bool clt_accepts_cpu_vectors(const clt_node *node, const clt_target *target, char *why);

/* Groups of lanes in the batch: ceil(n / lanes). */
clt_extent clt_extent_blocks(const clt_target *target);

/* Lets a portable kernel of `items` independent work-items run anywhere: on CPUs a work-group a
 * chunk, on GPUs work-groups of 64. The kernel must test get_global_id(0) < items itself. */
void clt_range_items(clt_program *p, const clt_target *target, clt_extent items);

#endif
