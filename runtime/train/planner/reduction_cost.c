/* Measures an all-reduce among the devices, run as training runs it. */
#include "train/planner/reduction_cost.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "train/ranks/connect.h"
#include "train/ranks/world.h"

enum { REPEATS = 9, SMALL = 1 << 16, LARGEST = 8 << 20 };

typedef struct lab {
    clt_device *const *devices;
    int count;
    const clt_world *world;
    clt_dtype dtype;
    clt_collectives collectives;
} lab;

/* `bytes` counts parameters, which are f32. */
static clt_status reduce(lab *l, cl_mem *buffers, int64_t bytes)
{
    const clt_collectives *c = &l->collectives;
    clt_collective what = {.kind = CLT_COLLECTIVE_ALL_REDUCE,
                           .dtype = l->dtype,
                           .count = bytes / 4,
                           .whole = true,
                           .measure = true};
    clt_collective_request requests[CLT_MOST_DEVICES];
    clt_collective_result result;
    for (int d = 0; d < l->count; d++) {
        what.buffer = buffers[d];
        CLT_TRY(c->start(c->self, d, &what, 0, NULL, &requests[d]));
    }
    for (int d = 0; d < l->count; d++)
        CLT_TRY(c->complete(c->self, d, &requests[d], &result));
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

/* A rank that fails aborts the collectives, so that no other rank waits. */
static clt_status run(lab *l, cl_mem *buffers, int64_t bytes, double *times)
{
    for (int r = -2; r < REPEATS; r++) {
        const double began = clt_clock();
        const clt_status status = reduce(l, buffers, bytes);
        if (status != CLT_OK)
            l->collectives.stop(l->collectives.self, status, clt_error_message());
        CLT_TRY(status);
        if (r >= 0)
            times[r] = clt_clock() - began;
    }
    return CLT_OK;
}

/* Measures the median time, and copies rank 0's to all. The first run allocates. */
static clt_status measure(lab *l, int64_t bytes, double *seconds)
{
    double times[REPEATS];
    cl_mem *buffers = clt_calloc((size_t)l->count, sizeof(cl_mem));
    clt_status status = buffers ? make_buffers(l, bytes, buffers) : CLT_OUT_OF_MEMORY;
    status = clt_ranks_agree(l->world, status, NULL);
    CLT_NEXT(status, clt_ranks_agree(l->world, run(l, buffers, bytes, times), NULL));
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

clt_status clt_reduction_measure(clt_device *const *devices, int count, int total,
                                 const clt_trainer_options *trainer, int64_t bytes,
                                 clt_reduction_cost *cost)
{
    lab l = {
        .devices = devices, .count = count, .world = trainer->world, .dtype = trainer->precision};
    const int64_t large = bytes < 4 * SMALL ? 4 * SMALL : bytes < LARGEST ? bytes / 4 * 4 : LARGEST;
    double at_small = 0, at_large = 0;
    clt_status status =
        clt_ranks_agree(l.world,
                        clt_collectives_open(devices, count, l.world, trainer->comm_timeout,
                                             CLT_CONNECT_AUTO, &l.collectives),
                        NULL);
    CLT_NEXT(status, measure(&l, SMALL, &at_small));
    CLT_NEXT(status, measure(&l, large, &at_large));
    CLT_NEXT(status, clt_ranks_agree(l.world, l.collectives.finish(l.collectives.self), NULL));
    clt_collectives_close(&l.collectives);
    CLT_TRY(status);
    const double slope = at_large > at_small ? (at_large - at_small) / (double)(large - SMALL) : 0;
    const double latency = at_small - slope * SMALL;
    *cost = (clt_reduction_cost){.latency = latency > 0 ? latency : 0, .byte = slope / total};
    return CLT_OK;
}
