/* What the communicator takes for an all-reduce among the devices. */
#include "train/planner/reduction.h"

#include "base/alloc.h"
#include "train/planner/clock.h"
#include <cltrain/comm.h>

enum { REPEATS = 9, SMALL = 1 << 16, LARGEST = 8 << 20 };

typedef struct lab {
    clt_device *const *devices;
    int count;
    clt_comm *comm;
    clt_comm_request **requests;
} lab;

static clt_status reduce(lab *l, cl_mem *buffers, int64_t bytes)
{
    clt_comm_op op;
    clt_comm_op_init(&op);
    op.kind = CLT_COMM_ALL_REDUCE;
    op.dtype = CLT_F32;
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

/* The median; the first one allocates. */
static clt_status measure(lab *l, int64_t bytes, double *seconds)
{
    double times[REPEATS];
    cl_mem *buffers = clt_calloc((size_t)l->count, sizeof(cl_mem));
    clt_status status = buffers ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int d = 0; status == CLT_OK && d < l->count; d++)
        status = clt_device_buffer_create(l->devices[d], bytes, CL_MEM_READ_WRITE,
                                          "measuring reductions", &buffers[d]);
    for (int r = -2; status == CLT_OK && r < REPEATS; r++) {
        const double began = clt_clock();
        status = reduce(l, buffers, bytes);
        if (r >= 0)
            times[r] = clt_clock() - began;
    }
    for (int d = 0; buffers && d < l->count; d++)
        clt_release_buffer(buffers[d]);
    clt_free(buffers);
    if (status == CLT_OK)
        *seconds = clt_clock_median(times, REPEATS);
    return status;
}

static clt_status connect_devices(lab *l)
{
    clt_comm_device *list = clt_calloc((size_t)l->count, sizeof *list);
    clt_comm_options options;
    if (!list)
        return CLT_OUT_OF_MEMORY;
    clt_comm_options_init(&options);
    for (int d = 0; d < l->count; d++) {
        clt_comm_device_init(&list[d]);
        list[d].context = l->devices[d]->context;
        list[d].device = l->devices[d]->id;
        list[d].compute = l->devices[d]->queue;
        if (l->devices[d]->sleep_poll)
            options.wait_poll_us = 100;
    }
    clt_status status = clt_comm_create(list, l->count, &options, &l->comm);
    clt_free(list);
    return status;
}

clt_status clt_reduction_measure(clt_device *const *devices, int count, int64_t bytes,
                                 clt_reduction_cost *cost)
{
    lab l = {.devices = devices, .count = count};
    const int64_t large = bytes < 4 * SMALL ? 4 * SMALL : bytes < LARGEST ? bytes / 4 * 4 : LARGEST;
    double at_small = 0, at_large = 0;
    l.requests = clt_calloc((size_t)count, sizeof(clt_comm_request *));
    if (!l.requests)
        return CLT_OUT_OF_MEMORY;
    clt_status status = connect_devices(&l);
    if (status == CLT_OK)
        status = measure(&l, SMALL, &at_small);
    if (status == CLT_OK)
        status = measure(&l, large, &at_large);
    clt_comm_destroy(l.comm);
    clt_free(l.requests);
    CLT_TRY(status);
    const double slope = at_large > at_small ? (at_large - at_small) / (double)(large - SMALL) : 0;
    const double latency = at_small - slope * SMALL;
    *cost = (clt_reduction_cost){.latency = latency > 0 ? latency : 0, .byte = slope / count};
    return CLT_OK;
}
