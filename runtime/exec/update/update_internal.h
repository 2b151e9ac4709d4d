/* Declarations that the files of clt_update share, and the setting of a kernel's arguments. */
#ifndef CLT_EXEC_UPDATE_UPDATE_INTERNAL_H
#define CLT_EXEC_UPDATE_UPDATE_INTERNAL_H

#include "exec/update/ending.h"
#include "exec/update/update.h"

typedef enum kernel_index {
    K_SQUARE_SUM,
    K_STEP_STATUS,
    K_UPSTREAM,
    K_SCALE_UPSTREAM,
    K_ADD, /* adds micro-batches: in f32, or for gradients in 16 bits */
    K_ROUND,
    K_MERGE, /* adds shards: gradients */
    K_MERGE_FLOATS,
    K_ZEROS,
    K_MEAN, /* adds what K_ADD cannot in f32 */
    K_ASSIGN,
    K_SEND, /* error feedback */
    K_KEEP,
    K_OPTIMIZER,
    K_MUON_AVERAGE, /* muon: matrices */
    K_MUON_STEP,
    N_KERNELS
} kernel_index;

struct clt_update {
    clt_replica *replica;
    clt_update_options options;
    const clt_optimizer_row *optimizer;
    cl_kernel kernels[N_KERNELS];
    const char *names[N_KERNELS];     /* of kernels */
    char own[64];                     /* compiler options of most kernels */
    char wired[64];                   /* of those that read what devices exchange */
    clt_ending *ending;               /* NULL: launches stay apart */
    bool merging;                     /* calls are those of `ending` */
    struct clt_described *described;  /* not NULL: calls are listed in it, not enqueued */
    struct clt_newton_schulz *newton; /* muon: makes matrices orthogonal; else NULL */
    cl_mem status, partials;
    void *host_partials;
    clt_stretches stretches;            /* of all gradients */
    float host_status[CLT_STEP_STATUS]; /* values that the next fill writes; fills copy them at the
                                           call */
    bool stopped;
    clt_scaling scaling; /* state of loss scaling; out of date if on_device */
    bool on_device;      /* the device computed the last step status, so the device has the newest
                            scaling */
    cl_mem reports;      /* of clt_update_report_to; NULL: none */
    int entry;
    const clt_plan *plan; /* writes the gradients; borrowed; NULL: all parameters have one */
    bool *given;          /* by slot: the caller has set its gradient in this step */
};

static inline bool is_half(const clt_update *u)
{
    return u->options.precision != CLT_F32;
}

static inline bool scales(const clt_update *u)
{
    return u->options.precision == CLT_F16;
}

static inline cl_mem gradients_of(const clt_update *u, int bucket)
{
    return clt_replica_gradients(u->replica, u->options.precision)[bucket];
}

/* The type of the sums that the optimizer reads. */
static inline clt_dtype summed_type(const clt_update *u)
{
    return u->options.wire != CLT_F32 ? u->options.wire : u->options.precision;
}

/* Sets arguments one after the other and enqueues the kernel. `code` keeps the first failure. */
typedef struct call {
    clt_update *update;
    kernel_index which;
    cl_kernel kernel;
    cl_uint at;
    cl_int code;
} call;

static inline void arg(call *c, size_t bytes, const void *value)
{
    if (c->code == CL_SUCCESS)
        c->code = clSetKernelArg(c->kernel, c->at++, bytes, value);
}

/* ending.c: the same for the merged end of a step. `kind`: b is a buffer, i an int, f a
 * float, n an int that differs between steps. */
void clt_ending_arg(call *c, char kind, size_t bytes, const void *value);
void clt_ending_run(call *c, int64_t items, int64_t bytes);

/* first_update.c: the same for launches that helper processes compile. */
void clt_described_arg(call *c, char kind, size_t bytes, const void *value);
void clt_described_run(call *c, size_t global, size_t local, int64_t bytes);

static inline void arg_of(call *c, char kind, size_t bytes, const void *value)
{
    if (c->update->merging)
        clt_ending_arg(c, kind, bytes, value);
    else if (c->update->described)
        clt_described_arg(c, kind, bytes, value);
    else
        arg(c, bytes, value);
}

static inline void arg_buffer(call *c, cl_mem buffer)
{
    arg_of(c, 'b', sizeof buffer, &buffer);
}

static inline void arg_int(call *c, int64_t value)
{
    const cl_int v = (cl_int)value;
    arg_of(c, 'i', sizeof v, &v);
}

static inline void arg_number(call *c, int value)
{
    const cl_int v = value;
    arg_of(c, 'n', sizeof v, &v);
}

static inline void arg_long(call *c, int64_t value)
{
    const cl_long v = value;
    arg(c, sizeof v, &v);
}

static inline void arg_float(call *c, double value)
{
    const cl_float v = (cl_float)value;
    arg_of(c, 'f', sizeof v, &v);
}

static inline call begin(clt_update *u, kernel_index which)
{
    return (call){u, which, u->kernels[which], 0, CL_SUCCESS};
}

/* Chooses optimizer, compiler options and names of the kernels. */
void clt_update_name_kernels(clt_update *update);

/* Returns the key of a kernel's program. */
clt_program_key clt_update_key(const clt_update *update, kernel_index which);

/* `bytes` is the number of bytes that the kernel reads and writes, for profiles. */
clt_status clt_update_run(call *c, int64_t items, size_t local, const char *name, int64_t bytes);

/* Runs a kernel over a bucket's elements. `floats`: reads and writes of floats per element;
 * `gradient`: the gradient is read too. On CPUs there are enough groups for all compute units, but
 * few enough to cost little. */
clt_status clt_update_run_bucket(call *c, int64_t count, const char *name, int floats,
                                 bool gradient);

/* muon.c: updates a matrix, of which the replica has all. */
clt_status clt_update_matrix(clt_update *update, const clt_slot *slot, double lr);

#endif
