#include "exec/update/update_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/vec.h"
#include "exec/update/ending.h"
#include "exec/update/newton_schulz.h"

clt_status clt_update_bytes(const clt_replica *replica, bool merges, const bool *matrices,
                            int64_t *bytes)
{
    clt_stretches stretches;
    int64_t newton = 0;
    clt_status status = clt_stretches_list(replica, merges, &stretches);
    if (status == CLT_OK && matrices)
        status = clt_newton_schulz_bytes(replica, matrices, merges, &newton);
    *bytes = CLT_STEP_STATUS * (int64_t)sizeof(float) +
             CLT_PARTIAL_BYTES * ((int64_t)stretches.partials + 1) + newton;
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

/* Kernels that read what devices exchange. */
static bool is_wired(kernel_index kernel)
{
    return kernel == K_SEND || kernel == K_KEEP || (kernel >= K_OPTIMIZER && kernel <= K_MUON_STEP);
}

clt_program_key clt_update_key(const clt_update *u, kernel_index which)
{
    return (clt_program_key){u->stretches.gpu ? "train/gpu/update.cl" : "train/portable/update.cl",
                             is_wired(which) ? u->wired : u->own, u->names[which], NULL};
}

void clt_update_name_kernels(clt_update *u)
{
    static const char *const names[] = {
        "square_sum",    "step_status", "loss_upstream",   "scale_upstream",
        "add_to",        "round_sum",   "merge_gradients", "merge_floats",
        "add_zeros",     "add_mean",    "assign_state",    "send_rounded",
        "keep_residual", NULL,          "muon_average",    "muon_step"};
    u->optimizer = clt_optimizer_find(&u->options.rule);
    write_options(u, u->options.precision, u->own, sizeof u->own);
    write_options(u, summed_type(u), u->wired, sizeof u->wired);
    for (int i = 0; i < N_KERNELS; i++)
        u->names[i] = i == K_OPTIMIZER           ? u->optimizer->kernel
                      : i == K_ADD && is_half(u) ? "add_half"
                                                 : names[i];
}

static clt_status make_kernels(clt_update *u)
{
    clt_update_name_kernels(u);
    for (int i = 0; i < N_KERNELS; i++) {
        const bool feeds = i == K_SEND || i == K_KEEP;
        const bool fed = u->replica->residuals && u->options.wire != CLT_F32;
        if ((i == K_ROUND && !is_half(u)) || (feeds && !fed) ||
            (i >= K_MERGE && i <= K_ZEROS && !u->options.merges) ||
            (i >= K_MUON_AVERAGE && !u->options.matrices))
            continue;
        const clt_program_key key = clt_update_key(u, (kernel_index)i);
        CLT_TRY(clt_device_kernel(u->replica->device, key.file, key.options, key.kernel,
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
    u->scaling = clt_scaling_begin();
    clt_status status = clt_stretches_list(replica, options->merges, &u->stretches);
    CLT_NEXT(status, make_kernels(u));
    if (status == CLT_OK && options->merge != CLT_MERGE_OFF && !u->stretches.gpu &&
        !options->matrices)
        status = clt_ending_create(&u->ending);
    if (status == CLT_OK && options->matrices)
        status = clt_newton_schulz_create(replica, options->matrices, options->merges, &u->newton);
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
    clt_ending_destroy(u->ending);
    clt_newton_schulz_destroy(u->newton);
    clt_release_buffer(u->status);
    clt_release_buffer(u->partials);
    CLT_FREE(u->host_partials, u->stretches.all, u->given, u);
}

cl_mem clt_update_status_buffer(const clt_update *u)
{
    return u->status;
}

clt_status clt_update_run(call *c, int64_t items, size_t local, const char *name, int64_t bytes)
{
    const clt_device *device = c->update->replica->device;
    if (c->update->merging) {
        clt_ending_run(c, items, bytes);
        return CLT_OK;
    }
    const size_t most = (size_t)device->caps.max_work_group;
    local = most && local > most ? most : local;
    const size_t global = ((size_t)items + local - 1) / local * local;
    if (c->update->described) {
        clt_described_run(c, global, local, bytes);
        return CLT_OK;
    }
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

clt_status clt_update_run_bucket(call *c, int64_t count, const char *name, int floats,
                                 bool gradient)
{
    const int64_t each = gradient ? clt_dtype_size(summed_type(c->update)) : 0;
    const int64_t bytes = count * (floats * (int64_t)sizeof(float) + each);
    if (c->update->stretches.gpu)
        return clt_update_run(c, count / CLT_UPDATE_GPU_CHUNK, CLT_UPDATE_GPU_GROUP, name, bytes);
    const int64_t chunks = count / CLT_UPDATE_CHUNK;
    return clt_update_run(c, chunks, chunks >= 4096 ? 32 : chunks >= 256 ? 8 : 1, name, bytes);
}

static void optimizer_args(call *c, int bucket, int64_t step)
{
    const clt_update *u = c->update;
    double numbers[CLT_MAX_OPTIMIZER_NUMBERS];
    const int n = u->optimizer->numbers(&u->options.rule, (double)step + 1, scales(u), numbers);
    for (int i = 0; i < u->optimizer->n_slots; i++)
        arg_buffer(c, u->replica->slots[i][bucket]);
    for (int i = 0; i < n; i++)
        arg_float(c, numbers[i]);
}

/* Updates the slots [first, end) of a bucket, which belong to one parameter group, as far as they
 * lie in the replica's shard. */
static clt_status update_group(clt_update *u, int bucket, int first, int end, double lr,
                               int64_t step)
{
    const clt_replica *replica = u->replica;
    const clt_bucket *b = &replica->layout->buckets[bucket];
    const clt_optimizer_rule *rule = &u->options.rule;
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
    arg_float(&c, lr * slot->rate * rule->rate);
    arg_float(&c, slot->decay == CLT_COMMON_DECAY ? rule->weight_decay : slot->decay);
    arg_int(&c, rule->decoupled || u->optimizer->decouples);
    if (u->optimizer->n_slots)
        arg_int(&c, clt_shard_begin(b, replica->shard, replica->shards) / 4);
    optimizer_args(&c, bucket, step);
    /* The value and the slots are read and written, the gradient is read. */
    return clt_update_run_bucket(&c, count, u->optimizer->name, 2 + 2 * u->optimizer->n_slots,
                                 true);
}

static bool is_matrix(const clt_update *u, int slot)
{
    return u->options.matrices && u->options.matrices[slot];
}

/* Only the replica's own matrices: another stage or an owner may have this one. */
static clt_status update_matrix(clt_update *u, int index, double lr)
{
    const clt_slot *slot = &u->replica->layout->slots[index];
    return clt_newton_schulz_has(u->replica, slot) ? clt_update_matrix(u, slot, lr) : CLT_OK;
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
        const bool updated = clt_update_includes(u, first), matrix = is_matrix(u, first);
        for (end = first + 1; !matrix && end < b->end && slots[end].group == slots[first].group &&
                              clt_update_includes(u, end) == updated && !is_matrix(u, end);)
            end++;
        if (updated)
            CLT_TRY(matrix ? update_matrix(u, first, lr)
                           : update_group(u, bucket, first, end, lr, step));
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
