/*
 * The kernel launches that a node becomes on a device, as plain data. A variant writes them with
 * the clt_launch_ functions and CLT_ARGS, and exec turns them into OpenCL calls. Everything that
 * depends on the batch size is a clt_extent, so one list serves every batch size.
 */
#ifndef CLT_OPS_CORE_LAUNCH_H
#define CLT_OPS_CORE_LAUNCH_H

#include "base/blas_sets.h"
#include "base/caps.h"
#include "graph/graph.h"

/* mul * ceil(n * pre / div) + add for a batch of n samples; mul + add if pre is 0. */
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

/* `mul` times the batch size. */
static inline clt_extent clt_times_batch(int64_t mul)
{
    return (clt_extent){mul, 1, 1, 0};
}

/* Returns at least mul * ceil(count / div). `count` must have no `add`. The result is exact, except
 * for counts with a divisor, such as counts of batch blocks: there each block is rounded up. */
clt_extent clt_extent_ceil(clt_extent count, int64_t div, int64_t mul);

/* Returns a dimension as an extent. A negative dimension is a multiple of the batch size. */
clt_extent clt_extent_dim(int64_t dim);

/* Return the elements of a type, and the elements that a value occupies in its layout with blocks
 * of `lanes` samples. */
clt_extent clt_extent_elements(const clt_type *type);
clt_extent clt_extent_stored(const clt_value *value, int lanes);

static inline int64_t clt_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Kernel arguments that are known only when a step runs. */
typedef enum clt_runtime_arg {
    CLT_RUN_COUNT,  /* int: samples in this device's (micro-)batch */
    CLT_RUN_STEP,   /* uint: number of the step, for random numbers */
    CLT_RUN_SEED,   /* ulong */
    CLT_RUN_SAMPLE, /* long: position of the first sample within the global batch */
    CLT_RUN_ADDS    /* int: 1 if output 0 has the sum of the micro-batches before, and the result is
                       added to it; see CLT_ADDS */
} clt_runtime_arg;

typedef enum clt_arg_kind {
    CLT_ARG_IN,  /* two arguments: (global T *base, long offset in elements); `index` = operand */
    CLT_ARG_OUT, /* the same for output `index` */
    CLT_ARG_SCRATCH, /* the same for scratch block `index` */
    CLT_ARG_INT,     /* int, an extent */
    CLT_ARG_LONG,    /* long, an extent */
    CLT_ARG_FLOAT,
    CLT_ARG_RUN /* `index`: a clt_runtime_arg */
} clt_arg_kind;

typedef struct clt_arg {
    clt_arg_kind kind;
    int index;
    clt_extent extent;
    float value;
} clt_arg;

static inline bool clt_arg_is_buffer(const clt_arg *arg)
{
    return arg->kind == CLT_ARG_IN || arg->kind == CLT_ARG_OUT || arg->kind == CLT_ARG_SCRATCH;
}

/* Returns the node's operand or output that the argument names; NULL: an absent operand, or an
 * argument of another kind. */
static inline const clt_value *clt_arg_value(const clt_arg *arg, const clt_node *node)
{
    return arg->kind == CLT_ARG_IN    ? node->in[arg->index]
           : arg->kind == CLT_ARG_OUT ? node->out[arg->index]
                                      : NULL;
}

/* A matrix product that a library enqueues instead of one of our kernels: C[m, n] = op(A)[m, k]
 * op(B)[k, n], row-major, `pairs` times. */
typedef struct clt_blas_gemm {
    clt_extent m, n, k, lda, ldb, pairs;
    clt_extent a_step, b_step; /* elements from one pair to the next */
    bool trans_a, trans_b;
    bool packed;                         /* the library copies the operands into tiles first */
    clt_blas_set sets[CLT_BLAS_KERNELS]; /* the same in all products of a plan */
    int a, b;                            /* indices of the node's operands */
    int out;                             /* index of the node's output */
    int block;                           /* scratch block, or -1 */
} clt_blas_gemm;

typedef struct clt_launch {
    char *file;    /* path below clkernels/, or the name of a library */
    char *options; /* build options: -D... */
    char *kernel;
    clt_blas_gemm *blas; /* NULL: a kernel. Otherwise there are no arguments and no range */
    clt_arg *args;
    int n_args, room_args;
    int work_dim;
    clt_extent global[3]; /* work-items; exec skips the launch when one is 0 */
    int64_t local[3];     /* 0: the driver's choice */
    bool sums;   /* only adds up what launches before it computed: few operations for each byte */
    bool packed; /* see clt_launch_packed */
} clt_launch;

/* The launches of one node, in order, and the scratch memory that they share. The scratch memory is
 * freed after the node. */
typedef struct clt_program {
    clt_launch *launches;
    int n_launches, room_launches;
    clt_extent *scratch; /* bytes of each block, for batches up to the plan's largest */
    int n_scratch, room_scratch;
    /* With CLT_ADDS: terms of the result are added to what is there one after the other. Otherwise
     * the result is added whole, with the bits of an addition of its own. */
    bool adds_parts;
    clt_status status; /* the first failure of the functions below */
} clt_program;

/* What a variant may depend on. */
typedef struct clt_target clt_target;

struct clt_target {
    const clt_caps *caps;
    const clt_tuning_record *tuning; /* may be NULL */
    int lanes;                 /* samples in a block of the batch-blocked layout: 4, 8 or 16 */
    bool batch_blocked_always; /* use that layout also for batches that leave most lanes empty */
    int64_t max_batch;
    const char *variants; /* OP=NAME,...: variants to prefer, or NULL */
    const char *tile;     /* NAME=NUMBER,...: numbers that a tuner chose for this node, or NULL */
};

/* Returns the number called `name` in target->tile. Returns `default_value` if the number is
 * missing or outside [least, most]. */
int64_t clt_tile_number(const clt_target *target, const char *name, int64_t least, int64_t most,
                        int64_t default_value);

/* Returns the variant of `op` that `variants` names. Returns NULL if it names none, or one that the
 * operator does not have. */
const struct clt_variant *clt_variant_wanted(const clt_op *op, const char *variants);

/* Reads the next item of OP=NAME,... and advances *variants. Returns the item's text of *length
 * bytes, or NULL at the end or if *variants is NULL. *op is NULL if no operator has the item's
 * name. */
const char *clt_variants_next(const char **variants, int *length, const clt_op **op);

/* Returns a hash of the names of all variants that accept the node, in order; never 0. Requested
 * variants do not change it. A measurement among other variants is not valid for the node. */
uint64_t clt_variants_hash(const clt_node *node, const clt_target *target);

/* Returns a hash of everything that a program enqueues. Programs with other kernels, arguments or
 * ranges have other hashes. */
uint64_t clt_program_hash(const clt_program *program);

/* Begins a launch of `kernel` in `file`, built with `options` (a printf format). */
void clt_launch_begin(clt_program *p, const char *file, const char *kernel, const char *options,
                      ...) CLT_PRINTF(4, 5);

/* Says that the launch begun last only adds up what launches before it computed. */
void clt_launch_sums(clt_program *p);

/* Says that the kernel of the launch begun last has few parameters: first the buffers of its
 * arguments without their offsets, then vectors of type long16 with all numbers, in the order of
 * the arguments. An offset stands where the buffer stands among them, and a float is its 32 bits.
 * PoCL copies, aligns and frees each parameter, which takes about 0.05 us; of small kernels with 20
 * parameters that was a third of the time. */
void clt_launch_packed(clt_program *p);

/* Numbers of a vector, and the most of a packed launch. */
enum { CLT_PACKED_LANES = 16, CLT_PACKED_MOST = 48 };

/* Adds a launch of CLBlast's sgemm. */
void clt_launch_clblast(clt_program *p, const clt_blas_gemm *gemm);

/* Adds arguments to the launch begun last, in the order of the kernel's parameters:
 * CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_FIXED(channels)). */
#define CLT_ARGS(p, ...)                                                                           \
    clt_args(p, (const clt_arg[]){__VA_ARGS__},                                                    \
             (int)(sizeof((const clt_arg[]){__VA_ARGS__}) / sizeof(clt_arg)))
void clt_args(clt_program *p, const clt_arg *args, int count);

#define CLT_IN(operand) ((clt_arg){.kind = CLT_ARG_IN, .index = (operand)})
#define CLT_OUT(output) ((clt_arg){.kind = CLT_ARG_OUT, .index = (output)})
#define CLT_SCRATCH(block) ((clt_arg){.kind = CLT_ARG_SCRATCH, .index = (block)})
#define CLT_INT(value) ((clt_arg){.kind = CLT_ARG_INT, .extent = (value)})
#define CLT_FIXED(number) CLT_INT(clt_fixed(number))
#define CLT_LONG(value) ((clt_arg){.kind = CLT_ARG_LONG, .extent = (value)})
#define CLT_FLOAT(number) ((clt_arg){.kind = CLT_ARG_FLOAT, .value = (float)(number)})
#define CLT_RUN(which) ((clt_arg){.kind = CLT_ARG_RUN, .index = (int)(which)})

/* Adds operands 0 to count - 1. */
void clt_args_in(clt_program *p, int count);

/* Adds a scratch block of that many bytes and returns its index. */
int clt_scratch_add(clt_program *p, clt_extent bytes);

/* Set the range of the launch begun last, in work-items. `local` is the size of a work-group, or 0
 * for the driver's choice. */
void clt_range1(clt_program *p, clt_extent global, int64_t local);
void clt_range3(clt_program *p, clt_extent gx, clt_extent gy, clt_extent gz, int64_t lx, int64_t ly,
                int64_t lz);

void clt_program_free(clt_program *p);

/* Adds build options that tell each kernel which of its operands and outputs are stored in 16 bits:
 * IN0, .., OUT0, .. of clkernels/core/storage.clh. */
void clt_program_tell_storage(clt_program *p, const clt_node *node);

/*
 * A method to compute an operator. clt_op.variants lists the variants, best first. The last one is
 * portable: it accepts every device and shape. A tuning record may prefer another variant that
 * accepts the node.
 */
typedef struct clt_variant {
    const char *name;

    /* Returns whether the variant can compute the node; if not, writes the reason to `why` (CLT_WHY
     * bytes). NULL: accepts everything. */
    bool (*accepts)(const clt_node *node, const clt_target *target, char *why);

    /* Writes the launches. A failure is stored in program->status. */
    void (*emit)(const clt_node *node, const clt_target *target, clt_program *program);

    /* Writes to `tile` (CLT_TILE_TEXT bytes) a text that a tuner may try as target->tile, for index
     * 0, 1, ..; returns false past the last. NULL: there are no alternatives to the variant's own
     * choice. */
    bool (*tiles)(const clt_node *node, const clt_target *target, int index, char *tile);

    unsigned traits; /* CLT_BATCH_BLOCKED, CLT_CLBLAST, CLT_NARROWS, CLT_ADDS */
} clt_variant;

/* The member of an operator that lists its variants; the rows are in braces. */
#define CLT_VARIANTS(...) .variants = ((const clt_variant[]){__VA_ARGS__, {0}})

/* Traits of variants. */
enum {
    CLT_BATCH_BLOCKED = 1, /* takes values in the batch-blocked layout only */
    CLT_CLBLAST = 2, /* CLBlast computes its product; CLBlast's parameters are tuned separately */
    CLT_NARROWS = 8, /* rounds f32 operands to the 16-bit type of the other operand */
    CLT_ADDS = 4     /* adds to output 0 if CLT_RUN_ADDS is 1, so gradients of micro-batches need no
                        other     kernel that adds them up */
};

enum { CLT_WHY = 128, CLT_TILE_TEXT = 96 };

/* Writes the reason and returns false, so that `return clt_decline(why, ...)` works. */
bool clt_decline(char *why, const char *format, ...) CLT_PRINTF(2, 3);

/* --- common reasons and ranges -------------------------------------------------------------- */

/* For clt_op.half: every kernel of the operator can also read and write all its f32 operands and
 * outputs in 16 bits. */
bool clt_half_all(const clt_node *node, const clt_target *target, int index, bool output);

/* For members of clt_op of many operators. clt_infer_same: the result has the first operand's type.
 * clt_no_gradient: the gradient is zero. clt_flops_operand: one operation for
 * each element of the first operand. The last two are for the batch-blocked layout of
 * operators that work on images one by one. */
clt_status clt_infer_same(const clt_node *node, clt_type *out);
clt_status clt_no_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx);
double clt_no_flops(const clt_node *node, int64_t n);
double clt_flops_operand(const clt_node *node, int64_t n);
int clt_wants_batch_blocked(const clt_node *node);
int clt_follows_batch_blocked(const clt_node *node);

/* For clt_variant.accepts: requires that no operand and no output is stored in 16 bits. */
bool clt_accepts_f32(const clt_node *node, char *why);

/* Returns whether every operand and output of the node has the plain layout. */
bool clt_all_plain(const clt_node *node);

/* For clt_variant.accepts. The first requires the plain layout for all values. The second requires
 * the batch-blocked layout for every f32 or 16-bit value that has the batch as its first dimension.
 */
bool clt_accepts_plain(const clt_node *node, const clt_target *target, char *why);
bool clt_accepts_batch_blocked(const clt_node *node, const clt_target *target, char *why);

/* For clt_variant.accepts: requires a CPU with vectors of 4, 8 or 16 floats; the second also the
 * plain layout for all values. */
bool clt_accepts_vectors(const clt_target *target, char *why);
bool clt_accepts_cpu_vectors(const clt_node *node, const clt_target *target, char *why);

/* Returns the number of batch blocks: ceil(n / lanes). */
clt_extent clt_extent_blocks(const clt_target *target);

/* Sets the range of a portable kernel: `items` independent work-items in work-groups of 64, so the
 * range is rounded up. The kernel must test get_global_id(0) < items itself. */
void clt_range_items(clt_program *p, const clt_target *target, clt_extent items);

#endif
