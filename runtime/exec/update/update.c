#include "exec/update/update_call.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/vec.h"

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
    N_KERNELS
} kernel_index;

struct clt_update {
    clt_replica *replica;
    clt_update_options options;
    const clt_optimizer_row *optimizer;
    cl_kernel kernels[N_KERNELS];
    cl_mem status, partials;
    void *host_partials;
    clt_stretches stretches;            /* of all gradients */
    float host_status[CLT_STEP_STATUS]; /* values that the next fill writes; fills copy them at the
                                           call */
    bool stopped;
    clt_scaling scaling;  /* state of loss scaling; out of date if on_device */
    bool on_device;       /* the device computed the last step status, so the device has the newest
                             scaling */
    const clt_plan *plan; /* writes the gradients; borrowed; NULL: all parameters have one */
    bool *given;          /* by slot: the caller has set its gradient in this step */
};

static bool is_half(const clt_update *u)
{
    return u->options.precision != CLT_F32;
}

static bool scales(const clt_update *u)
{
    return u->options.precision == CLT_F16;
}

static cl_mem gradients_of(const clt_update *u, int bucket)
{
    return clt_replica_gradients(u->replica, u->options.precision)[bucket];
}

/* The type of the sums that the optimizer reads. */
static clt_dtype summed_type(const clt_update *u)
{
    return u->options.wire != CLT_F32 ? u->options.wire : u->options.precision;
}

clt_status clt_update_bytes(const clt_replica *replica, bool merges, int64_t *bytes)
{
    clt_stretches stretches;
    const clt_status status = clt_stretches_list(replica, merges, &stretches);
    *bytes = CLT_STEP_STATUS * (int64_t)sizeof(float) +
             CLT_PARTIAL_BYTES * ((int64_t)stretches.partials + 1);
    clt_free(stretches.all);
    return status;
}

static void write_options(const clt_update *u, clt_dtype gradients, char *options, size_t bytes)
{
    snprintf(options, bytes, "%s%s", u->replica->device->caps.fp64 ? "-DCLT_FP64" : "",
             gradients == CLT_F16    ? " -DG_T=h -DHALF_GRADIENTS -DLOSS_SCALED"
             : gradients == CLT_BF16 ? " -DG_T=w -DHALF_GRADIENTS"
                                     : "");
}

static clt_status make_kernels(clt_update *u)
{
    static const char *const names[] = {
        "square_sum",   "step_status",     "loss_upstream", "scale_upstream", "add_to",
        "round_sum",    "merge_gradients", "merge_floats",  "add_zeros",      "add_mean",
        "assign_state", "send_rounded",    "keep_residual"};
    const char *file = u->stretches.gpu ? "train/gpu/update.cl" : "train/portable/update.cl";
    char options[64], wired[64];
    write_options(u, u->options.precision, options, sizeof options);
    write_options(u, summed_type(u), wired, sizeof wired);
    for (int i = 0; i < N_KERNELS; i++) {
        const bool feeds = i == K_SEND || i == K_KEEP;
        const bool fed = u->replica->residuals && u->options.wire != CLT_F32;
        const char *name = i == K_OPTIMIZER           ? u->optimizer->kernel
                           : i == K_ADD && is_half(u) ? "add_half"
                                                      : names[i];
        if ((i == K_ROUND && !is_half(u)) || (feeds && !fed) ||
            (i >= K_MERGE && i <= K_ZEROS && !u->options.merges))
            continue;
        CLT_TRY(clt_device_kernel(u->replica->device, file,
                                  feeds || i == K_OPTIMIZER ? wired : options, name,
                                  &u->kernels[i]));
    }
    return CLT_OK;
}

clt_status clt_update_create(clt_replica *replica, const clt_update_options *options,
                             clt_update **out)
{
    clt_update *u = CLT_NEW(clt_update);
    CLT_TRY_MEMORY(u);
    u->replica = replica;
    u->options = *options;
    u->optimizer = clt_optimizer_find(options->optimizer);
    u->scaling = clt_scaling_begin();
    clt_status status = clt_stretches_list(replica, options->merges, &u->stretches);
    CLT_NEXT(status, make_kernels(u));
    CLT_NEXT(status, clt_device_buffer_create(replica->device, sizeof u->host_status,
                                              CL_MEM_READ_WRITE, "the step's status", &u->status));
    const size_t partials = (size_t)u->stretches.partials + 1;
    CLT_NEXT(status,
             clt_device_buffer_create(replica->device, (int64_t)partials * CLT_PARTIAL_BYTES,
                                      CL_MEM_READ_WRITE, "partial norms", &u->partials));
    u->host_partials = clt_calloc(partials, CLT_PARTIAL_BYTES);
    u->given = clt_calloc((size_t)replica->layout->n_slots + 1, sizeof *u->given);
    if (status == CLT_OK && (!u->host_partials || !u->given))
        status = CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, clt_update_reset(u));
    if (status != CLT_OK) {
        clt_update_destroy(u);
        return status;
    }
    *out = u;
    return CLT_OK;
}

void clt_update_destroy(clt_update *u)
{
    if (!u)
        return;
    for (int i = 0; i < N_KERNELS; i++)
        clt_release_kernel(u->kernels[i]);
    clt_release_buffer(u->status);
    clt_release_buffer(u->partials);
    CLT_FREE(u->host_partials, u->stretches.all, u->given, u);
}

cl_mem clt_update_status_buffer(const clt_update *u)
{
    return u->status;
}

static call begin(clt_update *u, kernel_index which)
{
    return (call){u, u->kernels[which], 0, CL_SUCCESS};
}

/* `bytes` is the number of bytes that the kernel reads and writes, for profiles. */
static clt_status run(call *c, int64_t items, size_t local, const char *name, int64_t bytes)
{
    const clt_device *device = c->update->replica->device;
    const size_t most = (size_t)device->caps.max_work_group;
    local = most && local > most ? most : local;
    const size_t global = ((size_t)items + local - 1) / local * local;
    cl_event event = NULL;
    if (c->code == CL_SUCCESS)
        c->code = clEnqueueNDRangeKernel(device->queue, c->kernel, 1, NULL, &global, &local, 0,
                                         NULL, clt_watch_event(device, &event));
    if (c->code != CL_SUCCESS)
        return clt_fail_prefix(clt_cl_fail(c->code, "clEnqueueNDRangeKernel", device),
                               "update kernel %s: ", name);
    const clt_command command = {name, NULL, 0, bytes};
    clt_watch(device, &command, event);
    return CLT_OK;
}

/* Runs a kernel over a bucket's elements. `floats`: reads and writes of floats per element;
 * `gradient`: the gradient is read too. On CPUs there are enough groups for all compute units, but
 * few enough to cost little. */
static clt_status run_bucket(call *c, int64_t count, const char *name, int floats, bool gradient)
{
    const int64_t each = gradient ? clt_dtype_size(summed_type(c->update)) : 0;
    const int64_t bytes = count * (floats * (int64_t)sizeof(float) + each);
    if (c->update->stretches.gpu)
        return run(c, count / CLT_UPDATE_GPU_CHUNK, CLT_UPDATE_GPU_GROUP, name, bytes);
    const int64_t chunks = count / CLT_UPDATE_CHUNK;
    return run(c, chunks, chunks >= 4096 ? 32 : chunks >= 256 ? 8 : 1, name, bytes);
}

clt_status clt_update_upstream(clt_update *u, clt_view weight, cl_mem upstream, int index,
                               double coefficient)
{
    call c = begin(u, K_UPSTREAM);
    arg_buffer(&c, weight.buffer);
    arg_long(&c, weight.offset / 4);
    arg_buffer(&c, upstream);
    arg_int(&c, index);
    arg_float(&c, coefficient);
    arg_buffer(&c, u->status);
    return run(&c, 1, 1, "loss_upstream", 8);
}

clt_status clt_update_scale_upstream(clt_update *u, cl_mem upstream, int index, double value)
{
    call c = begin(u, K_SCALE_UPSTREAM);
    arg_buffer(&c, upstream);
    arg_int(&c, index);
    arg_float(&c, value);
    arg_buffer(&c, u->status);
    return run(&c, 1, 1, "scale_upstream", 8);
}

/* Runs a kernel over all buckets of sums and 16-bit gradients. `first`: add_half's last argument,
 * or -1. */
static clt_status each_sum(clt_update *u, kernel_index kernel, const char *name, int first,
                           int passes)
{
    const clt_buckets *layout = u->replica->layout;
    for (int i = 0; i < layout->n_buckets; i++) {
        if (layout->buckets[i].state)
            continue;
        const int64_t count = layout->buckets[i].bytes / 4;
        const cl_mem sum = u->replica->gradient_sums[i], gradient = gradients_of(u, i);
        call c = begin(u, kernel);
        arg_buffer(&c, sum);
        arg_buffer(&c, gradient);
        arg_int(&c, 0);
        arg_int(&c, count);
        if (first >= 0)
            arg_int(&c, first);
        CLT_TRY(run_bucket(&c, count, name, passes, true));
    }
    return CLT_OK;
}

clt_status clt_update_sum_half(clt_update *u, bool first)
{
    return each_sum(u, K_ADD, "add_half", first, first ? 1 : 2);
}

clt_status clt_update_round_sum(clt_update *u)
{
    return each_sum(u, K_ROUND, "round_sum", -1, 1);
}

static clt_status feed_back(clt_update *u, kernel_index kernel, const char *name, int bucket)
{
    clt_replica *r = u->replica;
    const int64_t count = r->layout->buckets[bucket].bytes / 4;
    call c = begin(u, kernel);
    arg_buffer(&c, u->status);
    arg_buffer(&c, is_half(u) ? r->gradient_sums[bucket] : r->gradients[bucket]);
    arg_buffer(&c, r->residuals[bucket]);
    if (kernel == K_SEND)
        arg_buffer(&c, r->half_gradients[bucket]);
    arg_int(&c, 0);
    arg_int(&c, count);
    return run_bucket(&c, count, name, kernel == K_SEND ? 2 : 3, kernel == K_SEND);
}

clt_status clt_update_send(clt_update *u, int bucket)
{
    return feed_back(u, K_SEND, "send_rounded", bucket);
}

clt_status clt_update_keep(clt_update *u, int bucket)
{
    return feed_back(u, K_KEEP, "keep_residual", bucket);
}

bool clt_update_commits(const clt_update *u)
{
    return u->host_status[CLT_STEP_STATUS_OK] == 1;
}

/* The kernel add_to adds whole lines at equal offsets of both buffers. */
clt_status clt_update_add(clt_update *u, clt_view sum, clt_view addend, int64_t bytes)
{
    const int64_t lines =
        addend.offset == sum.offset ? bytes / CLT_TENSOR_ALIGN * CLT_TENSOR_ALIGN : 0;
    if (lines) {
        call c = begin(u, K_ADD);
        arg_buffer(&c, sum.buffer);
        arg_buffer(&c, addend.buffer);
        arg_int(&c, sum.offset / 4);
        arg_int(&c, lines / 4);
        CLT_TRY(run_bucket(&c, lines / 4, "add_to", 3, false));
    }
    addend.offset += lines;
    sum.offset += lines;
    return lines < bytes ? clt_update_mean(u, addend, sum, (bytes - lines) / 4, 1, false) : CLT_OK;
}

clt_status clt_update_add_zeros(clt_update *u, const cl_mem *set)
{
    const clt_buckets *layout = u->replica->layout;
    for (int i = 0; i < layout->n_buckets; i++) {
        const int64_t count = layout->buckets[i].bytes / 4;
        if (layout->buckets[i].state)
            continue;
        call c = begin(u, K_ZEROS);
        arg_buffer(&c, set[i]);
        arg_int(&c, 0);
        arg_int(&c, count);
        CLT_TRY(run_bucket(&c, count, "add_zeros", 2, false));
    }
    return CLT_OK;
}

clt_status clt_update_zero(clt_update *u)
{
    return clt_update_zero_set(u, clt_replica_gradients(u->replica, u->options.precision));
}

clt_status clt_update_merge(clt_update *u, bool floats, cl_mem sum, cl_mem a, cl_mem b,
                            int64_t count)
{
    call c = begin(u, floats ? K_MERGE_FLOATS : K_MERGE);
    arg_buffer(&c, sum);
    arg_buffer(&c, a);
    arg_buffer(&c, b);
    arg_int(&c, 0);
    arg_int(&c, count);
    return is_half(u) && !floats ? run_bucket(&c, count, "merge_gradients", 1, true)
                                 : run_bucket(&c, count, "merge_gradients", 3, false);
}

clt_status clt_update_zero_set(clt_update *u, const cl_mem *set)
{
    const clt_buckets *layout = u->replica->layout;
    const cl_float zero = 0;
    for (int i = 0; i < layout->n_buckets; i++)
        if (!layout->buckets[i].state)
            CLT_CL(clEnqueueFillBuffer(
                       u->replica->device->queue, set[i], &zero, sizeof zero, 0,
                       (size_t)clt_bucket_gradient_bytes(&layout->buckets[i], u->options.precision),
                       0, NULL, NULL),
                   "clEnqueueFillBuffer", u->replica->device);
    return CLT_OK;
}

/* Computes the partial sums of squares of all stretches. */
static clt_status sum_squares(clt_update *u)
{
    for (int i = 0, first = 0; i < u->stretches.count; i++) {
        const clt_stretch *s = &u->stretches.all[i];
        const int groups = clt_stretches_shares(&u->stretches, s->to - s->from);
        call c = begin(u, K_SQUARE_SUM);
        arg_buffer(&c, gradients_of(u, s->bucket));
        arg_int(&c, s->from / 4);
        arg_int(&c, (s->to - s->from) / 4);
        arg_buffer(&c, u->partials);
        arg_int(&c, first);
        arg_int(&c, groups);
        const int64_t bytes = (s->to - s->from) / 4 * clt_dtype_size(u->options.precision);
        CLT_TRY(u->stretches.gpu ? run(&c, (int64_t)groups * CLT_UPDATE_GPU_GROUP,
                                       CLT_UPDATE_GPU_GROUP, "square_sum", bytes)
                                 : run(&c, groups, groups >= 16 ? 8 : 1, "square_sum", bytes));
        first += groups;
    }
    return CLT_OK;
}

clt_status clt_update_status(clt_update *u)
{
    CLT_TRY(sum_squares(u));
    call c = begin(u, K_STEP_STATUS);
    arg_buffer(&c, u->partials);
    arg_int(&c, u->stretches.partials);
    arg_float(&c, u->options.clip_norm);
    arg_int(&c, u->options.guard);
    arg_buffer(&c, u->status);
    u->on_device = true;
    return run(&c, 1, u->stretches.gpu ? CLT_UPDATE_GPU_GROUP : 1, "step_status",
               (u->replica->device->caps.fp64 ? 16 : 8) * (int64_t)u->stretches.partials + 16);
}

/* Adds up as the kernel step_status for CPUs does: in order, in double if the device has it. */
clt_status clt_update_measure(clt_update *u, clt_squares *squares)
{
    const bool wide = u->replica->device->caps.fp64;
    const double *d = u->host_partials;
    const float *f = u->host_partials;
    CLT_TRY(sum_squares(u));
    CLT_TRY(clt_replica_read(u->replica, u->partials, 0,
                             (wide ? 16 : 8) * (int64_t)u->stretches.partials, u->host_partials));
    *squares = (clt_squares){.finite = true};
    for (int i = 0, at = 0; i < u->stretches.count; i++) {
        const clt_stretch *s = &u->stretches.all[i];
        double *sum = s->parts ? &squares->parts : &squares->whole;
        for (int end = at + clt_stretches_shares(&u->stretches, s->to - s->from); at < end; at++) {
            *sum = wide ? *sum + d[2 * at] : (double)((float)*sum + f[2 * at]);
            squares->finite =
                squares->finite && (wide ? d[2 * at + 1] : (double)f[2 * at + 1]) == 0;
        }
    }
    return CLT_OK;
}

static clt_status fill_status(clt_update *u)
{
    u->host_status[CLT_STEP_STATUS_STOPPED] = u->stopped;
    u->host_status[CLT_STEP_STATUS_SCALE] = scales(u) ? u->scaling.scale : 1;
    u->host_status[CLT_STEP_STATUS_GOOD] = (float)u->scaling.good;
    u->host_status[CLT_STEP_STATUS_SKIPPED] = (float)u->scaling.skipped;
    u->on_device = false;
    return clt_enqueue_value(u->replica->device, (clt_view){u->status, 0}, u->host_status,
                             sizeof u->host_status);
}

clt_status clt_update_set_status(clt_update *u, double sum_squares, bool finite)
{
    const float scale = scales(u) ? u->scaling.scale : 1, clip = (float)u->options.clip_norm;
    const float norm = (float)sqrt(sum_squares) / scale;
    clt_scaling after = u->scaling;
    const bool fatal = scales(u) ? !clt_scaling_step(&after, finite) : !finite;
    if (u->options.guard && fatal)
        u->stopped = true;
    if (!u->stopped) /* after a stop no step counts */
        u->scaling = after;
    u->host_status[CLT_STEP_STATUS_OK] = u->stopped || (scales(u) && !finite) ? 0 : 1;
    u->host_status[CLT_STEP_STATUS_FACTOR] =
        (clip > 0 ? fminf(1, clip / (norm + 1e-6f)) : 1) / scale;
    u->host_status[CLT_STEP_STATUS_NORM] = norm;
    u->host_status[CLT_STEP_STATUS_USED] = scale;
    return fill_status(u);
}

clt_status clt_update_scaling(clt_update *u, clt_scaling *scaling)
{
    float floats[CLT_STEP_STATUS];
    if (scales(u) && u->on_device) {
        CLT_TRY(clt_replica_read(u->replica, u->status, 0, sizeof floats, floats));
        u->scaling = (clt_scaling){.scale = floats[CLT_STEP_STATUS_SCALE],
                                   .good = (int32_t)floats[CLT_STEP_STATUS_GOOD],
                                   .skipped = (int32_t)floats[CLT_STEP_STATUS_SKIPPED]};
    }
    *scaling = u->scaling;
    return CLT_OK;
}

clt_status clt_update_set_scaling(clt_update *u, const clt_scaling *scaling)
{
    if (scales(u)) {
        u->scaling = *scaling;
        u->on_device = false;
    }
    return clt_update_reset(u);
}

clt_status clt_update_reset(clt_update *u)
{
    clt_scaling scaling;
    CLT_TRY(clt_update_scaling(u, &scaling));
    u->stopped = false;
    u->host_status[CLT_STEP_STATUS_OK] = u->host_status[CLT_STEP_STATUS_FACTOR] = 1;
    return fill_status(u);
}

static void optimizer_args(call *c, int bucket, int64_t step)
{
    const clt_update_options *o = &c->update->options;
    const double t = (double)step + 1;
    switch (o->optimizer) {
    case CLT_SGD:
        break;
    case CLT_MOMENTUM:
    case CLT_NESTEROV:
        arg_buffer(c, c->update->replica->slots[0][bucket]);
        arg_float(c, o->momentum);
        arg_int(c, o->optimizer == CLT_NESTEROV);
        break;
    case CLT_ADAM:
    case CLT_ADAMW:
        arg_buffer(c, c->update->replica->slots[0][bucket]);
        arg_buffer(c, c->update->replica->slots[1][bucket]);
        arg_float(c, 1 - o->beta1);
        arg_float(c, o->beta2);
        arg_float(c, 1 - o->beta2);
        arg_float(c, o->epsilon);
        arg_float(c, scales(c->update) ? log(o->beta1) : 1 - pow(o->beta1, t));
        arg_float(c, scales(c->update) ? log(o->beta2) : sqrt(1 - pow(o->beta2, t)));
        arg_float(c, t);
        break;
    }
}

/* Updates the slots [first, end) of a bucket, which belong to one parameter group, as far as they
 * lie in the replica's shard. */
static clt_status update_group(clt_update *u, int bucket, int first, int end, double lr,
                               int64_t step)
{
    const clt_replica *replica = u->replica;
    const clt_bucket *b = &replica->layout->buckets[bucket];
    const bool decoupled = u->options.decoupled || u->options.optimizer == CLT_ADAMW;
    const clt_slot *slot = &replica->layout->slots[first], *last = slot + (end - 1 - first);
    int64_t from, to;
    if (!clt_shard_part(b, replica->shard, replica->shards, slot->offset,
                        last->offset + clt_slot_padded(last), &from, &to))
        return CLT_OK;
    const int64_t count = (to - from) / 4;
    call c = begin(u, K_OPTIMIZER);
    arg_buffer(&c, u->status);
    arg_buffer(&c, replica->values[bucket]);
    arg_buffer(&c, clt_replica_gradients(replica, summed_type(u))[bucket]);
    arg_int(&c, from / 4);
    arg_int(&c, count);
    arg_float(&c, lr * slot->rate);
    arg_float(&c, slot->decay == CLT_COMMON_DECAY ? u->options.weight_decay : slot->decay);
    arg_int(&c, decoupled);
    if (u->optimizer->n_slots)
        arg_int(&c, clt_shard_begin(b, replica->shard, replica->shards) / 4);
    optimizer_args(&c, bucket, step);
    /* The value and the slots are read and written, the gradient is read. */
    return run_bucket(&c, count, u->optimizer->name, 2 + 2 * u->optimizer->n_slots, true);
}

void clt_update_follow(clt_update *u, const clt_plan *plan)
{
    u->plan = plan;
}

bool clt_update_includes(const clt_update *u, int slot)
{
    return !u->plan || u->plan->gradients[slot] || u->given[slot];
}

void clt_update_give(clt_update *u, int slot)
{
    if (slot >= 0)
        u->given[slot] = true;
    else
        memset(u->given, 0, (size_t)u->replica->layout->n_slots * sizeof *u->given);
}

clt_status clt_update_bucket(clt_update *u, int bucket, double lr, int64_t step)
{
    const clt_bucket *b = &u->replica->layout->buckets[bucket];
    const clt_slot *slots = u->replica->layout->slots;
    for (int first = b->first, end; first < b->end; first = end) {
        const bool updated = clt_update_includes(u, first);
        for (end = first + 1; end < b->end && slots[end].group == slots[first].group &&
                              clt_update_includes(u, end) == updated;)
            end++;
        if (updated)
            CLT_TRY(update_group(u, bucket, first, end, lr, step));
    }
    return CLT_OK;
}

clt_status clt_update_apply(clt_update *u, double lr, int64_t step)
{
    const clt_buckets *layout = u->replica->layout;
    for (int i = 0; i < layout->n_buckets; i++)
        if (!layout->buckets[i].state)
            CLT_TRY(clt_update_bucket(u, i, lr, step));
    return CLT_OK;
}

/* Returns the work-items of a group for kernels over single elements. */
static size_t group_of(const clt_update *u, int64_t count)
{
    return u->stretches.gpu            ? CLT_UPDATE_GPU_GROUP
           : count >= CLT_UPDATE_CHUNK ? CLT_UPDATE_CHUNK
                                       : 1;
}

clt_status clt_update_mean(clt_update *u, clt_view value, clt_view mean, int64_t count,
                           double weight, bool first)
{
    if (!(weight > 0) && !first)
        return CLT_OK;
    call c = begin(u, K_MEAN);
    arg_buffer(&c, value.buffer);
    arg_long(&c, value.offset / 4);
    arg_buffer(&c, mean.buffer);
    arg_long(&c, mean.offset / 4);
    arg_int(&c, count);
    arg_float(&c, weight);
    arg_int(&c, first);
    return run(&c, count, group_of(u, count), "add_mean", 12 * count);
}

clt_status clt_update_assign(clt_update *u, clt_view value, clt_view state, int64_t bytes)
{
    if (bytes % 4)
        return clt_fail(CLT_INTERNAL, "a state of %lld bytes is assigned", (long long)bytes);
    call c = begin(u, K_ASSIGN);
    arg_buffer(&c, u->status);
    arg_buffer(&c, value.buffer);
    arg_long(&c, value.offset / 4);
    arg_buffer(&c, state.buffer);
    arg_long(&c, state.offset / 4);
    arg_int(&c, bytes / 4);
    return run(&c, bytes / 4, group_of(u, bytes / 4), "assign_state", 2 * bytes);
}
