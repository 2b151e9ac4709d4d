/* What the communicator takes for an all-reduce among the devices. */
#include "train/planner/reduction_cost.h"

#include <limits.h>
#include <math.h>

#include "base/alloc.h"
#include "train/planner/clock.h"
#include "train/ranks/world.h"
#include <cltrain/comm.h>

enum { REPEATS = 9, SMALL = 1 << 16, LARGEST = 8 << 20 };

typedef struct lab {
    clt_device *const *devices;
    int count;
    const clt_world *world;
    double timeout; /* seconds; 0: none */
    clt_dtype dtype;
    clt_comm *comm;
    clt_comm_request **requests;
} lab;

/* `bytes`: of parameters. */
static clt_status reduce(lab *l, cl_mem *buffers, int64_t bytes)
{
    clt_comm_op op;
    clt_comm_op_init(&op);
    op.kind = CLT_COMM_ALL_REDUCE;
    op.dtype = l->dtype;
    op.flags = CLT_COMM_MEASURE | CLT_COMM_EXCLUSIVE;
    op.count = bytes / 4;
    for (int d = 0; d < l->count; d++) {
        op.mem = buffers[d];
        CLT_TRY(clt_comm_start(l->comm, d, -1, &op, 0, NULL, &l->requests[d]));
    }
    for (int d = 0; d < l->count; d++)
        CLT_TRY(clt_comm_complete(l->requests[d], d, NULL, NULL));
    for (int d = 0; d < l->count; d++)
        CLT_TRY(clt_device_finish(l->devices[d]));
    return CLT_OK;
}

static clt_status make_buffers(const lab *l, int64_t bytes, cl_mem *buffers)
{
    for (int d = 0; d < l->count; d++)
        CLT_TRY(clt_device_buffer_create(l->devices[d], bytes / 4 * clt_dtype_size(l->dtype),
                                         CL_MEM_READ_WRITE, "measuring reductions", &buffers[d]));
    return CLT_OK;
}

/* A rank that fails does not keep the others waiting. */
static clt_status run(lab *l, cl_mem *buffers, int64_t bytes, double *times)
{
    for (int r = -2; r < REPEATS; r++) {
        const double began = clt_clock();
        const clt_status status = reduce(l, buffers, bytes);
        if (status != CLT_OK)
            clt_comm_abort(l->comm, status, clt_error_message());
        CLT_TRY(status);
        if (r >= 0)
            times[r] = clt_clock() - began;
    }
    return CLT_OK;
}

/* The median, rank 0's; the first one allocates. */
static clt_status measure(lab *l, int64_t bytes, double *seconds)
{
    double times[REPEATS];
    cl_mem *buffers = clt_calloc((size_t)l->count, sizeof(cl_mem));
    clt_status status = buffers ? make_buffers(l, bytes, buffers) : CLT_OUT_OF_MEMORY;
    status = clt_ranks_agree(l->world, status, NULL);
    if (status == CLT_OK)
        status = clt_ranks_agree(l->world, run(l, buffers, bytes, times), NULL);
    for (int d = 0; buffers && d < l->count; d++)
        clt_release_buffer(buffers[d]);
    clt_free(buffers);
    CLT_TRY(status);
    void *all;
    const double own = clt_clock_median(times, REPEATS);
    CLT_TRY(clt_ranks_gather(l->world, &own, sizeof own, &all));
    *seconds = *(const double *)all;
    clt_free(all);
    return CLT_OK;
}

static clt_status connect_devices(lab *l)
{
    clt_comm_device *list = clt_calloc((size_t)l->count, sizeof *list);
    clt_comm_options options;
    l->requests = clt_calloc((size_t)l->count, sizeof(clt_comm_request *));
    clt_status made = list && l->requests ? CLT_OK : CLT_OUT_OF_MEMORY;
    made = clt_ranks_agree(l->world, made, NULL);
    if (made != CLT_OK) {
        clt_free(list);
        return made;
    }
    clt_comm_options_init(&options);
    for (int d = 0; d < l->count; d++) {
        clt_comm_device_init(&list[d]);
        list[d].context = l->devices[d]->context;
        list[d].device = l->devices[d]->id;
        list[d].compute = l->devices[d]->queue;
        if (l->devices[d]->sleep_poll)
            options.wait_poll_us = 100;
    }
    options.timeout_ms = (int)fmin(l->timeout * 1e3, INT_MAX);
    clt_status status = l->world && l->world->ranks > 1
                            ? l->world->connect(l->world->user, list, l->count, &options, &l->comm)
                            : clt_comm_create(list, l->count, &options, &l->comm);
    clt_free(list);
    return status;
}

clt_status clt_reduction_measure(clt_device *const *devices, int count, int total,
                                 const clt_trainer_options *trainer, int64_t bytes,
                                 clt_reduction_cost *cost)
{
    lab l = {.devices = devices,
             .count = count,
             .world = trainer->world,
             .timeout = trainer->comm_timeout,
             .dtype = trainer->precision};
    const int64_t large = bytes < 4 * SMALL ? 4 * SMALL : bytes < LARGEST ? bytes / 4 * 4 : LARGEST;
    double at_small = 0, at_large = 0;
    clt_status status = clt_ranks_agree(l.world, connect_devices(&l), NULL);
    if (status == CLT_OK)
        status = measure(&l, SMALL, &at_small);
    if (status == CLT_OK)
        status = measure(&l, large, &at_large);
    if (status == CLT_OK)
        status = clt_ranks_agree(l.world, clt_comm_finalize(l.comm), NULL);
    clt_comm_destroy(l.comm);
    clt_free(l.requests);
    CLT_TRY(status);
    const double slope = at_large > at_small ? (at_large - at_small) / (double)(large - SMALL) : 0;
    const double latency = at_small - slope * SMALL;
    *cost = (clt_reduction_cost){.latency = latency > 0 ? latency : 0, .byte = slope / total};
    return CLT_OK;
}
