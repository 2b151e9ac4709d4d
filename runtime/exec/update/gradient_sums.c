/* Sums of gradients, means and states: of micro-batches, of virtual shards, and what 16 bits on the
 * wire round away. */
#include "exec/update/update_internal.h"

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
        CLT_TRY(clt_update_run_bucket(&c, count, name, passes, true));
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
    return clt_update_run_bucket(&c, count, name, kernel == K_SEND ? 2 : 3, kernel == K_SEND);
}

clt_status clt_update_send(clt_update *u, int bucket)
{
    return feed_back(u, K_SEND, "send_rounded", bucket);
}

clt_status clt_update_keep(clt_update *u, int bucket)
{
    return feed_back(u, K_KEEP, "keep_residual", bucket);
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
        CLT_TRY(clt_update_run_bucket(&c, lines / 4, "add_to", 3, false));
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
        CLT_TRY(clt_update_run_bucket(&c, count, "add_zeros", 2, false));
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
    return is_half(u) && !floats ? clt_update_run_bucket(&c, count, "merge_gradients", 1, true)
                                 : clt_update_run_bucket(&c, count, "merge_gradients", 3, false);
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
    return clt_update_run(&c, count, group_of(u, count), "add_mean", 12 * count);
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
    return clt_update_run(&c, bytes / 4, group_of(u, bytes / 4), "assign_state", 2 * bytes);
}
