#include "exec/exec.h"

#include <string.h>

#include "base/alloc.h"
#include "device/discover/clblast.h"
#include "device/program/compile_watch.h"
#include "exec/first_launches.h"
#include "exec/launch_arguments.h"
#include "exec/merged.h"
#include "exec/testing/lose.h"
#include "exec/testing/slow.h"

typedef struct bound_launch {
    const clt_plan_node *node;
    const clt_launch *launch;
    cl_kernel kernel;
    bool fresh; /* the first launch of its kernel in this plan, which did not run yet */
    bool set;   /* all arguments are, those that depend on the batch for `count` samples */
    int64_t count;
} bound_launch;

struct clt_exec {
    clt_device *device;
    const clt_plan *plan;
    clt_replica *replica;
    clt_arena *arena;
    cl_mem *constants;
    clt_slow slow;           /* for tests */
    bound_launch *launches;  /* of all nodes in order */
    int *first_launch;       /* by plan node; the last entry is the number of launches */
    clt_merged_list merged;  /* kernels of several nodes */
    cl_mem ended;            /* see clt_merged_enqueue; NULL: no kernel needs it */
    int n_fresh, n_compiled; /* kernels that the device compiles at their first launch, if somebody
                                is told */
};

static clt_status make_constants(clt_exec *exec)
{
    const clt_plan *plan = exec->plan;
    exec->constants = clt_calloc((size_t)plan->n_constants + 1, sizeof(cl_mem));
    CLT_TRY_MEMORY(exec->constants);
    for (int i = 0; i < plan->n_constants; i++) {
        const clt_value *v = plan->constants[i];
        const int64_t bytes = clt_type_elements(&v->type, 0) * clt_dtype_size(v->type.dtype);
        CLT_TRY(clt_device_buffer_create(exec->device, bytes, CL_MEM_READ_WRITE, "a constant",
                                         &exec->constants[i]));
        CLT_CL(clEnqueueWriteBuffer(exec->device->queue, exec->constants[i], CL_TRUE, 0,
                                    (size_t)bytes, v->data, 0, NULL, NULL),
               "clEnqueueWriteBuffer", exec->device);
    }
    return CLT_OK;
}

static clt_status make_ended(clt_exec *exec)
{
    const cl_int zero = 0;
    CLT_TRY(clt_device_buffer_create(exec->device, sizeof zero, CL_MEM_READ_WRITE, "a counter",
                                     &exec->ended));
    CLT_CL(clEnqueueWriteBuffer(exec->device->queue, exec->ended, CL_TRUE, 0, sizeof zero, &zero, 0,
                                NULL, NULL),
           "clEnqueueWriteBuffer", exec->device);
    return CLT_OK;
}

static clt_status make_merged(clt_exec *exec)
{
    clt_merged *made;
    for (int i = 0; i < exec->plan->n_merges; i++)
        CLT_TRY(clt_merged_get(&exec->merged, exec->plan, exec->plan->merges[i].first,
                               exec->plan->merges[i].end, &made));
    for (int i = 0; i < exec->merged.count && !exec->ended; i++)
        if (exec->merged.all[i].wide)
            CLT_TRY(make_ended(exec));
    return CLT_OK;
}

static clt_status build_programs(clt_exec *exec, int n_launches)
{
    const clt_plan *plan = exec->plan;
    clt_program_key *keys = clt_calloc((size_t)(n_launches + exec->merged.count) + 1, sizeof *keys);
    CLT_TRY_MEMORY(keys);
    int n_keys = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].program.n_launches; j++) {
            const clt_launch *launch = &plan->nodes[i].program.launches[j];
            if (!launch->blas && !clt_merged_has(plan, i, j))
                keys[n_keys++] =
                    (clt_program_key){launch->file, launch->options, launch->kernel, NULL};
        }
    for (int i = 0; i < exec->merged.count; i++)
        keys[n_keys++] = clt_merged_key(&exec->merged.all[i]);
    clt_exec_compile(exec->device, plan, &exec->merged);
    clt_status status = clt_device_prepare(exec->device, keys, n_keys);
    clt_free(keys);
    return status;
}

static clt_status make_kernel(const clt_exec *exec, bound_launch *b)
{
    const clt_launch *launch = b->launch;
    clt_status status =
        clt_device_kernel(exec->device, launch->file, launch->options, launch->kernel, &b->kernel);
    return status == CLT_OK ? CLT_OK : clt_fail_prefix(status, "node %s: ", b->node->node->name);
}

static clt_status make_kernels(clt_exec *exec)
{
    const clt_plan *plan = exec->plan;
    int n_launches = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        n_launches += plan->nodes[i].program.n_launches;
    exec->launches = clt_calloc((size_t)n_launches + 1, sizeof *exec->launches);
    exec->first_launch = clt_calloc((size_t)plan->n_nodes + 1, sizeof *exec->first_launch);
    CLT_TRY_MEMORY(exec->launches && exec->first_launch);
    CLT_TRY(build_programs(exec, n_launches));
    for (int i = 0; i < exec->merged.count; i++)
        CLT_TRY(clt_merged_build(exec->device, &exec->merged.all[i]));
    int next = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *node = &plan->nodes[i];
        exec->first_launch[i] = next;
        for (int j = 0; j < node->program.n_launches; j++) {
            const clt_launch *launch = &node->program.launches[j];
            bound_launch *b = &exec->launches[next++];
            *b = (bound_launch){.node = node, .launch = launch};
            if (!launch->blas && !clt_merged_has(plan, i, j))
                CLT_TRY(make_kernel(exec, b));
        }
    }
    exec->first_launch[plan->n_nodes] = next;
    return CLT_OK;
}

/* Counts the kernels that the device compiles at their first launch: once for each local size. */
static void count_fresh(clt_exec *exec)
{
    const int n = exec->first_launch[exec->plan->n_nodes];
    if (!clt_compile_is_late(exec->device))
        return;
    for (int i = 0; i < n; i++) {
        bound_launch *b = &exec->launches[i];
        b->fresh = !b->launch->blas && b->kernel;
        for (int j = 0; j < i && b->fresh; j++)
            b->fresh = !(exec->launches[j].fresh &&
                         clt_exec_same_kernel(b->launch, exec->launches[j].launch));
        exec->n_fresh += b->fresh;
    }
}

/* Waits for the first launch of a kernel, and tells how many are compiled. */
static clt_status report_compiled(clt_exec *exec, bound_launch *b)
{
    if (!exec->n_compiled)
        clt_compile_report(exec->device, true, 0, exec->n_fresh);
    CLT_CL(clFinish(exec->device->queue), "clFinish", exec->device);
    b->fresh = false;
    clt_compile_report(exec->device, true, ++exec->n_compiled, exec->n_fresh);
    return CLT_OK;
}

clt_status clt_exec_create(clt_device *device, const clt_plan *plan, clt_replica *replica,
                           clt_arena *arena, clt_exec **out)
{
    clt_exec *exec = CLT_NEW(clt_exec);
    CLT_TRY_MEMORY(exec);
    exec->device = device;
    exec->plan = plan;
    exec->replica = replica;
    exec->arena = arena;
    clt_status status = clt_arena_fit(arena, plan);
    CLT_NEXT(status, make_constants(exec));
    CLT_NEXT(status, make_merged(exec));
    CLT_NEXT(status, make_kernels(exec));
    if (status == CLT_OK)
        count_fresh(exec);
    CLT_NEXT(status, clt_slow_init(&exec->slow, device));
    if (status != CLT_OK) {
        clt_exec_destroy(exec);
        return status;
    }
    *out = exec;
    return CLT_OK;
}

void clt_exec_destroy(clt_exec *exec)
{
    if (!exec)
        return;
    if (exec->arena->owner == exec)
        exec->arena->owner = NULL;
    /* Releases the last kernel first, because PoCL searches a list that begins with the newest. */
    if (exec->first_launch)
        for (int i = exec->first_launch[exec->plan->n_nodes] - 1; i >= 0; i--)
            clt_release_kernel(exec->launches[i].kernel);
    for (int i = 0; exec->constants && i < exec->plan->n_constants; i++)
        clt_release_buffer(exec->constants[i]);
    clt_merged_list_free(&exec->merged);
    clt_release_buffer(exec->ended);
    CLT_FREE(exec->constants, exec->launches, exec->first_launch, exec);
}

const clt_plan *clt_exec_plan(const clt_exec *exec)
{
    return exec->plan;
}

static clt_view locate(const clt_exec *exec, const clt_run *run, clt_place place)
{
    switch (place.kind) {
    case CLT_PLACE_ARENA:
        return (clt_view){exec->arena->slabs[clt_plan_slab(exec->plan, place.index, run->slot)],
                          place.offset};
    case CLT_PLACE_INPUT:
        return (clt_view){run->inputs[place.index].buffer,
                          run->inputs[place.index].offset + place.offset};
    case CLT_PLACE_CONSTANT:
        return (clt_view){exec->constants[place.index], place.offset};
    case CLT_PLACE_SLOT:
        return (clt_view){exec->replica->values[place.index], place.offset};
    case CLT_PLACE_GRADIENT:
    case CLT_PLACE_TOTAL:
        return (clt_view){run->gradients[place.index], place.offset};
    case CLT_PLACE_RESULT:
        return (clt_view){run->results.buffer, run->results.offset + place.offset};
    case CLT_PLACE_NONE:
        break;
    }
    return (clt_view){0};
}

static clt_view locate_value(const clt_exec *exec, const clt_run *run, const clt_value *value)
{
    const clt_place place = exec->plan->places[value->id];
    return locate(exec, run,
                  run->further && place.kind == CLT_PLACE_GRADIENT ? exec->plan->further[value->id]
                                                                   : place);
}

clt_status clt_exec_locate(const clt_exec *exec, const clt_run *run, const clt_value *value,
                           clt_view *view)
{
    *view = locate_value(exec, run, value);
    return view->buffer ? CLT_OK
                        : clt_fail(CLT_NOT_FOUND, "the plan does not keep value %s",
                                   value->name ? value->name : "(unnamed)");
}

/* Whether output 0 of the node is added to the sum of the micro-batches before. */
static bool adds(const clt_exec *exec, const clt_run *run, const clt_node *node)
{
    return run->further && exec->plan->places[node->out[0]->id].kind == CLT_PLACE_TOTAL;
}

/* Whether the kernel has the argument from an earlier launch. Each costs a driver about 0.05 us. */
static bool is_set(const bound_launch *b, const clt_arg *arg, int64_t count)
{
    const bool number =
        arg->kind == CLT_ARG_INT || arg->kind == CLT_ARG_LONG || arg->kind == CLT_ARG_FLOAT;
    return b->set && number &&
           (b->count == count || arg->kind == CLT_ARG_FLOAT || !arg->extent.pre);
}

/* A launch whose arguments are set; `at` is the number of the next one. */
typedef struct setting {
    const clt_exec *exec;
    const clt_run *run;
    const bound_launch *launch;
    cl_uint at;
} setting;

static cl_int set_buffer(void *user, const clt_arg *arg, cl_long *offset)
{
    setting *s = user;
    const clt_plan_node *pn = s->launch->node;
    const clt_value *value = clt_arg_value(arg, pn->node);
    clt_view view = {0};
    if (arg->kind == CLT_ARG_SCRATCH)
        view = locate(s->exec, s->run, pn->scratch[arg->index]);
    else if (value)
        view = locate_value(s->exec, s->run, value);
    *offset = view.offset / (value ? clt_dtype_size(value->type.dtype) : (int)sizeof(cl_float));
    return clSetKernelArg(s->launch->kernel, s->at++, sizeof view.buffer, &view.buffer);
}

static cl_int set_number(void *user, const clt_arg *arg, const void *value, size_t bytes)
{
    setting *s = user;
    const cl_uint at = s->at++;
    return arg && is_set(s->launch, arg, s->run->count)
               ? CL_SUCCESS
               : clSetKernelArg(s->launch->kernel, at, bytes, value);
}

static clt_status fail_launch(const clt_exec *exec, const bound_launch *b, cl_int code,
                              const char *call)
{
    return clt_fail_prefix(clt_cl_fail(code, call, exec->device),
                           "node %s, kernel %s of %s: ", b->node->node->name, b->launch->kernel,
                           b->launch->file);
}

static void launched(const clt_exec *exec, const bound_launch *b, cl_event event)
{
    const clt_command command = {b->launch->kernel, b->node,
                                 (int)(b->launch - b->node->program.launches), 0};
    clt_watch(exec->device, &command, event);
}

static clt_status enqueue_blas(clt_exec *exec, const clt_run *run, const bound_launch *b,
                               cl_uint *n_wait, const cl_event *wait)
{
    const clt_blas_gemm *g = b->launch->blas;
    const clt_node *node = b->node->node;
    const int64_t n = run->count, size = (int64_t)sizeof(float);
    const clt_view at_a = locate_value(exec, run, node->in[g->a]);
    const clt_view at_b = locate_value(exec, run, node->in[g->b]);
    const clt_view at_c = locate_value(exec, run, node->out[g->out]);
    clt_clblast_gemm call = {.m = clt_extent_at(g->m, n),
                             .n = clt_extent_at(g->n, n),
                             .k = clt_extent_at(g->k, n),
                             .lda = clt_extent_at(g->lda, n),
                             .ldb = clt_extent_at(g->ldb, n),
                             .pairs = clt_extent_at(g->pairs, n),
                             .a_step = clt_extent_at(g->a_step, n),
                             .b_step = clt_extent_at(g->b_step, n),
                             .trans_a = g->trans_a,
                             .trans_b = g->trans_b,
                             .packed = g->packed,
                             .a = at_a.buffer,
                             .b = at_b.buffer,
                             .c = at_c.buffer,
                             .a_offset = at_a.offset / size,
                             .b_offset = at_b.offset / size,
                             .c_offset = at_c.offset / size};
    for (int i = 0; i < CLT_BLAS_KERNELS; i++)
        call.sets[i] = g->sets[i];
    if (!call.m || !call.n || !call.pairs)
        return CLT_OK;
    if (g->block >= 0) {
        const clt_view packing = locate(exec, run, b->node->scratch[g->block]);
        call.packing = packing.buffer;
        call.packing_offset = packing.offset;
        call.packing_bytes = clt_extent_at(b->node->program.scratch[g->block], n);
    }
    CLT_TRY(clt_enqueue_wait(exec->device, (int)*n_wait, wait));
    *n_wait = 0;
    cl_event event;
    clt_status status =
        clt_clblast_enqueue(exec->device, &call, clt_watch_event(exec->device, &event));
    if (status != CLT_OK)
        return clt_fail_prefix(status, "node %s: ", node->name);
    launched(exec, b, event);
    return CLT_OK;
}

static clt_status enqueue_launch(clt_exec *exec, const clt_run *run, bound_launch *b,
                                 cl_uint *n_wait, const cl_event *wait)
{
    const clt_launch *launch = b->launch;
    size_t global[3], local[3];
    /* Micro-batches without samples have no gradient: the node may not write into the sum. */
    if (!run->count && adds(exec, run, b->node->node))
        return CLT_OK;
    if (launch->blas)
        return enqueue_blas(exec, run, b, n_wait, wait);
    if (!b->kernel) /* the launch is a part of a merged one, which does not fit this run */
        CLT_TRY(make_kernel(exec, b));
    for (int d = 0; d < launch->work_dim; d++) {
        global[d] = (size_t)clt_extent_at(launch->global[d], run->count);
        local[d] = (size_t)launch->local[d];
        if (!global[d])
            return CLT_OK;
    }
    clt_exec_fit_group(exec->device, local, launch->work_dim);
    setting s = {exec, run, b, 0};
    const clt_argument_taker taker = {&s, set_buffer, set_number};
    cl_int code = clt_arguments_give(launch, run, adds(exec, run, b->node->node), &taker);
    if (code != CL_SUCCESS)
        return clt_fail_prefix(fail_launch(exec, b, code, "clSetKernelArg"),
                               "argument %u: ", s.at ? s.at - 1 : 0);
    b->set = true;
    b->count = run->count;
    cl_event event;
    code = clEnqueueNDRangeKernel(exec->device->queue, b->kernel, (cl_uint)launch->work_dim, NULL,
                                  global, local[0] ? local : NULL, *n_wait, *n_wait ? wait : NULL,
                                  clt_watch_event(exec->device, &event));
    if (code != CL_SUCCESS)
        return fail_launch(exec, b, code, "clEnqueueNDRangeKernel");
    *n_wait = 0;
    launched(exec, b, event);
    return CLT_OK;
}

static clt_status enqueue_node(clt_exec *exec, const clt_run *run, int node, int launches,
                               cl_uint *n_wait, const cl_event *wait)
{
    for (int i = 0; i < launches; i++) {
        bound_launch *b = &exec->launches[exec->first_launch[node] + i];
        CLT_TRY(enqueue_launch(exec, run, b, n_wait, wait));
        if (b->fresh)
            CLT_TRY(report_compiled(exec, b));
    }
    return CLT_OK;
}

static clt_status enqueue_merged(clt_exec *exec, const clt_run *run, int first, int end,
                                 cl_uint *n_wait, const cl_event *wait)
{
    clt_merged *m = NULL;
    CLT_TRY(enqueue_node(exec, run, first, clt_merged_skip(exec->plan, first), n_wait, wait));
    if (run->end && end == exec->plan->n_nodes)
        CLT_TRY(run->end->join(run->end, exec->plan, first, &m));
    if (!m)
        CLT_TRY(clt_merged_get(&exec->merged, exec->plan, first, end, &m));
    CLT_TRY(clt_merged_build(exec->device, m));
    clt_view buffers[CLT_MERGED_BUFFERS];
    for (int i = 0; i < m->n_places; i++)
        buffers[i] = locate(exec, run, (clt_place){m->places[i].kind, m->places[i].index, 0});
    cl_event *event = run->end && run->end->done && run->end->wants_event ? &run->end->event : NULL;
    CLT_TRY(clt_merged_enqueue(exec->device, m, run, buffers, exec->ended, *n_wait, wait, event));
    *n_wait = 0;
    return CLT_OK;
}

clt_status clt_exec_enqueue(clt_exec *exec, const clt_run *run, int first, int end, cl_uint n_wait,
                            const cl_event *wait)
{
    if (run->count < 0 || run->count > exec->plan->options.max_batch)
        return clt_fail(CLT_INVALID_ARGUMENT, "a batch of %lld does not fit a plan for up to %lld",
                        (long long)run->count, (long long)exec->plan->options.max_batch);
    if (first == 0)
        exec->arena->owner = exec;
    else if (exec->arena->owner != exec)
        return clt_fail(CLT_STATE,
                        "another plan ran on %s in between: its intermediates are lost; "
                        "run forward again",
                        exec->device->label);
    CLT_TRY(clt_lose(exec->device, run->step, first));
    CLT_TRY(clt_slow_begin(&exec->slow, exec->device, run->step));
    for (int i = first, next; i < end; i = next) {
        const clt_plan_merge *merge = clt_merged_fits(run) ? clt_merged_run(exec->plan, i) : NULL;
        next = !merge ? i + 1 : merge->end < end ? merge->end : end;
        if (next == i + 1)
            CLT_TRY(
                enqueue_node(exec, run, i, exec->plan->nodes[i].program.n_launches, &n_wait, wait));
        else
            CLT_TRY(enqueue_merged(exec, run, i, next, &n_wait, wait));
    }
    CLT_TRY(clt_slow_end(&exec->slow, exec->device, run->step));
    if (n_wait)
        CLT_CL(clEnqueueBarrierWithWaitList(exec->device->queue, n_wait, wait, NULL),
               "clEnqueueBarrierWithWaitList", exec->device);
    return CLT_OK;
}
