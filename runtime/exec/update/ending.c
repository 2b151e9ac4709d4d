/*
 * The end of a small step as one launch: the norm, the step status and the optimizer. If the nodes
 * before are one merged launch too, both are the same launch. The functions that enqueue these
 * kernels one by one also write the merged kernel and set its arguments, because their calls go to
 * clt_ending_arg and clt_ending_run meanwhile.
 */
#include "exec/update/update_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "device/program/merge_source.h"
#include "device/program/program.h"
#include "exec/merged.h"

enum { MOST_PARTS = 16 }; /* more compile for too long */

typedef struct part {
    kernel_index which;
    clt_str args, items;
} part;

struct clt_ending {
    cl_kernel kernel; /* NULL until it is needed */
    char *source;
    uint64_t shape;    /* of the calls for which the kernel was made: all but buffers, floats and
                          numbers of a step */
    clt_merged joined; /* nodes and the end of the step; zeros: not made */
    uint64_t joined_shape;
    bool declined;
    /* The calls under way. They write the kernel, or set its arguments. */
    bool writes;
    uint64_t calls;
    int n_parts;
    cl_kernel target;
    cl_uint at;
    cl_int code;
    int64_t bytes;
    part parts[MOST_PARTS];
    clt_str parameters;
};

clt_status clt_ending_create(clt_ending **out)
{
    *out = CLT_NEW(clt_ending);
    return *out ? CLT_OK : CLT_OUT_OF_MEMORY;
}

static void forget_texts(clt_ending *e)
{
    for (int i = 0; i < MOST_PARTS; i++) {
        clt_str_free(&e->parts[i].args);
        clt_str_free(&e->parts[i].items);
    }
    clt_str_free(&e->parameters);
}

static void forget_kernel(clt_ending *e)
{
    clt_release_kernel(e->kernel);
    clt_free(e->source);
    e->kernel = NULL;
    e->source = NULL;
}

static void forget_joined(clt_ending *e)
{
    clt_merged_free(&e->joined);
    e->joined = (clt_merged){0};
}

void clt_ending_destroy(clt_ending *e)
{
    if (!e)
        return;
    forget_texts(e);
    forget_kernel(e);
    forget_joined(e);
    clt_free(e);
}

static void set(clt_ending *e, size_t bytes, const void *value)
{
    if (e->code == CL_SUCCESS && !e->writes)
        e->code = clSetKernelArg(e->target, e->at, bytes, value);
    e->at++;
}

void clt_ending_arg(call *c, char kind, size_t bytes, const void *value)
{
    clt_ending *e = c->update->ending;
    clt_str *args = &e->parts[e->n_parts].args;
    cl_int number = 0;
    if (kind == 'i')
        memcpy(&number, value, sizeof number);
    e->calls = clt_hash(&kind, 1, e->calls + (uint64_t)number);
    if (e->writes && !e->declined) {
        clt_str_add(args, "%s", c->at ? ", " : "");
        if (kind == 'i')
            clt_str_add(args, "%d", (int)number);
        else
            clt_str_add(args, "a%u", (unsigned)e->at);
        if (kind != 'i')
            clt_str_add(&e->parameters, "%s%s a%u", e->at ? ", " : "",
                        kind == 'b'   ? "global void *"
                        : kind == 'n' ? "int"
                                      : "float",
                        (unsigned)e->at);
    }
    c->at++;
    if (kind != 'i')
        set(e, bytes, value);
}

void clt_ending_run(call *c, int64_t items, int64_t bytes)
{
    clt_ending *e = c->update->ending;
    const int64_t shape[] = {c->which, items};
    e->calls = clt_hash(shape, sizeof shape, e->calls);
    e->bytes += bytes;
    if (e->writes && bytes > CLT_ENDING_BYTES)
        e->declined = true;
    if (e->writes && !e->declined) {
        e->parts[e->n_parts].which = c->which;
        clt_str_add(&e->parts[e->n_parts].items, "%lld", (long long)items);
    }
    if (e->n_parts + 1 < MOST_PARTS)
        e->n_parts++;
    else
        e->declined = true;
}

/* Makes all calls once. They set the arguments of `target` from number `first` on; NULL: they write
 * the kernel. */
static clt_status call_all(clt_update *u, cl_kernel target, cl_uint first, double lr, int64_t step)
{
    clt_ending *e = u->ending;
    e->target = target;
    e->writes = !target;
    e->calls = 0;
    e->n_parts = 0;
    e->at = first;
    e->code = CL_SUCCESS;
    e->bytes = 0;
    u->merging = true;
    clt_status status = clt_update_status(u);
    CLT_NEXT(status, clt_update_apply(u, lr, step));
    u->merging = false;
    return status;
}

/* Lists the kernels of the calls. Declines if one cannot be part of another kernel. */
static clt_status list_parts(clt_update *u, clt_merge_part *parts)
{
    clt_ending *e = u->ending;
    char why[CLT_MERGE_WHY];
    bool failed = e->parameters.failed;
    for (int i = 0; i < e->n_parts; i++) {
        const kernel_index which = e->parts[i].which;
        parts[i] = (clt_merge_part){.key = clt_update_key(u, which),
                                    .global = {clt_str_text(&e->parts[i].items), "1", "1"},
                                    .args = clt_str_text(&e->parts[i].args),
                                    .comment = "the end of a step"};
        failed = failed || e->parts[i].items.failed || e->parts[i].args.failed;
        e->declined = e->declined || !clt_merge_accepts(&parts[i].key, why);
    }
    return failed ? CLT_OUT_OF_MEMORY : CLT_OK;
}

/* Makes the calls to write a kernel, and lists its parts. */
static clt_status read_calls(clt_update *u, double lr, int64_t step, clt_merge_part *parts)
{
    CLT_TRY(call_all(u, NULL, 0, lr, step));
    return u->ending->declined ? CLT_OK : list_parts(u, parts);
}

static clt_status make(clt_update *u, double lr, int64_t step)
{
    clt_ending *e = u->ending;
    clt_merge_part parts[MOST_PARTS];
    clt_str source = {0};
    forget_kernel(e);
    clt_status status = read_calls(u, lr, step, parts);
    if (status == CLT_OK && !e->declined)
        status =
            clt_merge_source(parts, e->n_parts, false, clt_str_text(&e->parameters), "", &source);
    e->source = source.text;
    e->shape = e->calls;
    if (status == CLT_OK && !e->declined)
        status = clt_device_kernel_from_text(u->replica->device, CLT_MERGED_FILE, e->source, NULL,
                                             CLT_MERGED_KERNEL, &e->kernel);
    forget_texts(e);
    return status;
}

static clt_status make_joined(clt_update *u, const clt_plan *plan, int first, double lr,
                              int64_t step)
{
    clt_ending *e = u->ending;
    clt_merge_part parts[MOST_PARTS];
    clt_str parameters = {0};
    forget_joined(e);
    clt_status status = read_calls(u, lr, step, parts);
    clt_str_add(&parameters, ", %s", clt_str_text(&e->parameters));
    if (parameters.failed)
        status = CLT_OUT_OF_MEMORY;
    const clt_merged_tail tail = {parts, e->n_parts, clt_str_text(&parameters)};
    if (status == CLT_OK && !e->declined)
        status =
            clt_merged_create(&(clt_merged_list){0}, plan, first, plan->n_nodes, &tail, &e->joined);
    if (status == CLT_OK && !e->declined)
        status = clt_merged_build(u->replica->device, &e->joined);
    e->joined_shape = e->calls;
    clt_str_free(&parameters);
    forget_texts(e);
    return status;
}

static clt_status join(clt_run_end *end, const clt_plan *plan, int first, clt_merged **merged)
{
    clt_update *u = end->update;
    clt_ending *e = u->ending;
    clt_merged *m = &e->joined;
    *merged = NULL;
    if (m->kernel)
        CLT_TRY(call_all(u, m->kernel, clt_merged_arguments(m), end->lr, end->step));
    if (!m->kernel || m->first != first || e->calls != e->joined_shape) {
        CLT_TRY(make_joined(u, plan, first, end->lr, end->step));
        if (e->declined)
            return CLT_OK;
        CLT_TRY(call_all(u, m->kernel, clt_merged_arguments(m), end->lr, end->step));
    }
    if (e->code != CL_SUCCESS)
        return clt_fail_prefix(clt_cl_fail(e->code, "clSetKernelArg", u->replica->device),
                               "the merged end of a step: ");
    end->done = true;
    *merged = m;
    return CLT_OK;
}

clt_run_end clt_update_run_end(clt_update *u, double lr, int64_t step)
{
    return (clt_run_end){.update = u, .lr = lr, .step = step, .join = join};
}

bool clt_update_ends(const clt_update *u)
{
    const clt_merging how = u->options.merge;
    return u->ending && !u->ending->declined &&
           (how == CLT_MERGE_ON || (how == CLT_MERGE_AUTO && u->plan && u->plan->n_merges));
}

clt_status clt_update_end(clt_update *u, double lr, int64_t step)
{
    clt_ending *e = u->ending;
    const clt_device *device = u->replica->device;
    if (e->kernel)
        CLT_TRY(call_all(u, e->kernel, 0, lr, step));
    if (!e->kernel || e->calls != e->shape) {
        CLT_TRY(make(u, lr, step));
        if (e->declined) {
            CLT_TRY(clt_update_status(u));
            return clt_update_apply(u, lr, step);
        }
        CLT_TRY(call_all(u, e->kernel, 0, lr, step));
    }
    const size_t one = 1;
    cl_event event = NULL;
    if (e->code == CL_SUCCESS)
        e->code = clEnqueueNDRangeKernel(device->queue, e->kernel, 1, NULL, &one, &one, 0, NULL,
                                         clt_watch_event(device, &event));
    if (e->code != CL_SUCCESS)
        return clt_fail_prefix(clt_cl_fail(e->code, "clEnqueueNDRangeKernel", device),
                               "the merged end of a step: ");
    const clt_command command = {"merged, end of a step", NULL, 0, e->bytes, false};
    clt_watch(device, &command, event);
    return CLT_OK;
}
