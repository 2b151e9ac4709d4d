/* Measures collectives, a chain of them on each device's thread. */
#include "train/meshes/measure.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "exec/commands.h"
#include "train/core/device_threads.h"
#include "train/ranks/connect.h"
#include "train/ranks/world.h"

enum { BLOCKS = 7, CHAIN = 8, KERNEL = 256 /* bytes */ };

/* Bytes of whole tensors: a few numbers, in the caches, and beyond them. */
static const int64_t sizes[CLT_CURVE_POINTS] = {1 << 10, 1 << 18, 8 << 20};

typedef struct lab {
    clt_device *const *devices;
    int count, total;
    const clt_world *world; /* that measures together */
    clt_dtype dtype;
    bool wire;             /* sums with error feedback alone */
    const int64_t *shards; /* of these devices: sums are in the order of a tree; or NULL */
    clt_collectives collectives;
    clt_device_threads *threads;
    cl_mem buffers[CLT_MOST_DEVICES];
    clt_collective what;
} lab;

/* Each collective needs the kernel before, which needs the collective before, as in layers. Queues
 * that have run dry take time to begin again. */
static clt_status run_chain(void *arg, int d)
{
    lab *l = arg;
    const clt_collectives *c = &l->collectives;
    clt_collective what = l->what;
    clt_collective_request request;
    clt_collective_result result;
    what.buffer = l->buffers[d];
    if (l->shards && what.kind == CLT_COLLECTIVE_ALL_REDUCE)
        what.leaves = l->shards[d + 1] - l->shards[d];
    what.out = what.kind == CLT_COLLECTIVE_SHIFT ? what.buffer : NULL;
    for (int k = 0; k < CHAIN; k++) {
        clt_status status = clt_enqueue_zeros(l->devices[d], (clt_view){what.buffer, 0}, KERNEL);
        CLT_NEXT(status, c->start(c->self, d, &what, 0, NULL, &request));
        CLT_NEXT(status, c->complete(c->self, d, &request, &result));
        if (status != CLT_OK) {
            c->stop(c->self, status, clt_error_message());
            return status;
        }
    }
    return clt_device_finish(l->devices[d]);
}

static clt_status meet(const lab *l, clt_status status)
{
    return clt_ranks_agree(l->world, status, NULL);
}

/* Measures the median of the blocks, and copies rank 0's to all. */
static clt_status time_kind(lab *l, clt_collective_kind kind, int64_t bytes, double *seconds)
{
    double times[BLOCKS];
    void *all;
    clt_status status = CLT_OK;
    const bool parts = kind == CLT_COLLECTIVE_ALL_GATHER || kind == CLT_COLLECTIVE_REDUCE_SCATTER;
    l->what = (clt_collective){.kind = kind,
                               .dtype = l->dtype,
                               .count = bytes / clt_dtype_size(l->dtype) / (parts ? l->total : 1),
                               .step = kind == CLT_COLLECTIVE_SHIFT,
                               .whole = kind != CLT_COLLECTIVE_SHIFT,
                               .label = "measuring collectives"};
    if (kind == CLT_COLLECTIVE_SHIFT) { /* to the second half of the buffer */
        l->what.count /= 2;
        l->what.out_offset = l->what.count;
    }
    if (l->wire) {
        l->what.residual_scale = 1;
        CLT_TRY(meet(l, l->collectives.residual_open(l->collectives.self, 0,
                                                     bytes / clt_dtype_size(l->dtype),
                                                     &l->what.residual)));
    }
    for (int r = -1; r < BLOCKS && status == CLT_OK; r++) {
        const double began = clt_clock();
        status = meet(l, clt_device_threads_run(l->threads, run_chain, l));
        if (r >= 0)
            times[r] = (clt_clock() - began) / CHAIN;
    }
    if (l->what.residual)
        l->collectives.residual_close(l->what.residual);
    CLT_TRY(status);
    const double own = clt_clock_median(times, BLOCKS);
    CLT_TRY(clt_ranks_gather(l->world, &own, sizeof own, &all));
    *seconds = *(const double *)all;
    clt_free(all);
    return CLT_OK;
}

static clt_status make_buffers(lab *l)
{
    for (int d = 0; d < l->count; d++)
        CLT_TRY(clt_device_buffer_create(l->devices[d], sizes[CLT_CURVE_POINTS - 1] + 4096,
                                         CL_MEM_READ_WRITE, "measuring collectives",
                                         &l->buffers[d]));
    return CLT_OK;
}

static clt_status time_curve(lab *l, clt_collective_kind kind, clt_exchange_curve *curve)
{
    for (int i = 0; i < CLT_CURVE_POINTS; i++) {
        curve->bytes[i] = (double)sizes[i];
        if (kind == CLT_COLLECTIVE_SHIFT) /* of a message */
            curve->bytes[i] /= 2;
        CLT_TRY(time_kind(l, kind, sizes[i], &curve->seconds[i]));
    }
    return CLT_OK;
}

static clt_status measure(lab *l, clt_exchange_curves *curves)
{
    CLT_TRY(meet(l, make_buffers(l)));
    CLT_TRY(meet(l, clt_device_threads_create(l->count, &l->threads)));
    if (l->collectives.needs_progress(l->collectives.self))
        clt_device_threads_while_waiting(l->threads, l->collectives.progress, l->collectives.self);
    CLT_TRY(time_curve(l, CLT_COLLECTIVE_ALL_REDUCE, &curves->reduce));
    if (l->shards) /* the mesh is dp, and each device gets whole sums */
        return time_curve(l, CLT_COLLECTIVE_ALL_GATHER, &curves->gather);
    CLT_TRY(time_curve(l, CLT_COLLECTIVE_REDUCE_SCATTER, &curves->scatter));
    if (l->wire) /* parameters travel as ever */
        return CLT_OK;
    CLT_TRY(time_curve(l, CLT_COLLECTIVE_ALL_GATHER, &curves->gather));
    return time_curve(l, CLT_COLLECTIVE_SHIFT, &curves->shift);
}

/* Measures a group of `count` devices of this rank, and of each rank of `between` if that is not
 * NULL. All ranks measure at the same time. */
static clt_status measure_group(const clt_mesh_setting *s, const clt_world *world, int count,
                                const clt_world *between, bool wire, clt_exchange_curves *curves)
{
    const clt_trainer_options *o = s->options;
    lab l = {.devices = s->devices,
             .count = count,
             .total = count * (between ? between->ranks : 1),
             .world = world,
             .dtype = wire ? o->wire : o->precision,
             .wire = wire,
             .shards = s->shards ? s->shards + s->rank * s->count : NULL};
    curves->devices = l.total;
    clt_status status = meet(&l, clt_collectives_open(s->devices, count, between, o->comm_timeout,
                                                      CLT_CONNECT_AUTO, &l.collectives));
    CLT_NEXT(status, measure(&l, curves));
    CLT_NEXT(status, meet(&l, l.collectives.finish(l.collectives.self)));
    clt_device_threads_destroy(l.threads);
    clt_collectives_close(&l.collectives);
    for (int d = 0; d < count; d++)
        clt_release_buffer(l.buffers[d]);
    return status;
}

/* One device of any rank that is its host decides. */
static clt_status find_hosts(const clt_mesh_setting *s, const clt_world *world, bool *on_host)
{
    const int ranks = world ? world->ranks : 1;
    int32_t own = 0;
    void *all;
    for (int d = 0; d < s->count; d++)
        own = own || clt_caps_is_cpu(&s->devices[d]->caps);
    CLT_TRY(clt_ranks_gather(world, &own, sizeof own, &all));
    for (int r = 0; r < ranks; r++)
        *on_host = *on_host || ((const int32_t *)all)[r];
    clt_free(all);
    return CLT_OK;
}

clt_status clt_mesh_measure_links(const clt_mesh_setting *s, const clt_world *world,
                                  clt_mesh_links *links)
{
    const bool ranks = world && world->ranks > 1;
    *links = (clt_mesh_links){.per_rank = s->count};
    CLT_TRY(find_hosts(s, world, &links->on_host));
    if (!ranks && s->count < 2)
        return CLT_OK;
    CLT_TRY(measure_group(s, world, s->count, world, false, &links->all));
    if (s->options->wire != CLT_F32)
        CLT_TRY(measure_group(s, world, s->count, world, true, &links->wire));
    if (!ranks || s->count < 2 || s->shards)
        return CLT_OK;
    CLT_TRY(measure_group(s, world, s->count, NULL, false, &links->inside));
    return measure_group(s, world, 1, world, false, &links->across);
}
