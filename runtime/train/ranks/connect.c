/* Makes a communicator over the store's devices the trainer's table of collectives. */
#include <limits.h>
#include <math.h>

#include "base/alloc.h"
#include "train/core/trainer.h"
#include <cltrain/comm.h>

static const clt_comm_kind kinds[] = {
    [CLT_COLLECTIVE_ALL_REDUCE] = CLT_COMM_ALL_REDUCE,
    [CLT_COLLECTIVE_REDUCE] = CLT_COMM_REDUCE,
    [CLT_COLLECTIVE_BROADCAST] = CLT_COMM_BROADCAST,
    [CLT_COLLECTIVE_ALL_GATHER] = CLT_COMM_ALL_GATHER,
};

static clt_status start(void *self, int device, const clt_collective *what, cl_uint n_wait,
                        const cl_event *wait, void **request)
{
    clt_comm_op op;
    clt_comm_op_init(&op);
    op.kind = kinds[what->kind];
    op.dtype = what->dtype;
    op.reduction = CLT_COMM_SUM;
    op.flags = (what->empty ? CLT_COMM_EMPTY : 0) | (what->measure ? CLT_COMM_MEASURE : 0) |
               (what->whole ? CLT_COMM_EXCLUSIVE : 0);
    op.root = what->root;
    op.count = what->count;
    op.mem = what->buffer;
    op.offset = what->offset;
    op.out = what->out;
    op.out_offset = what->out_offset;
    op.host = what->host;
    op.vote = what->vote;
    op.label = what->label;
    clt_comm_request *started;
    CLT_TRY(clt_comm_start(self, device, -1, &op, (int)n_wait, wait, &started));
    *request = started;
    return CLT_OK;
}

static clt_status complete(void *self, int device, void *request, clt_collective_result *result)
{
    clt_comm_result measured;
    (void)self;
    clt_comm_result_init(&measured);
    CLT_TRY(clt_comm_complete(request, device, &measured, NULL));
    result->sum_squares = measured.sum_squares;
    result->finite = measured.finite != 0;
    result->votes = measured.votes;
    result->ready = measured.ready;
    result->done = measured.done;
    return CLT_OK;
}

static void abort_all(void *self, clt_status status, const char *message)
{
    clt_comm_abort(self, status, message);
}

/* On the thread that made the communicator, while the devices' threads work. */
static void progress(void *arg)
{
    const clt_trainer *t = arg;
    clt_comm_progress(t->comm);
}

clt_status clt_trainer_connect(clt_trainer *t)
{
    clt_comm_device *devices = clt_calloc((size_t)t->n_devices, sizeof *devices);
    if (!devices)
        return CLT_OUT_OF_MEMORY;
    bool sleep_poll = false;
    for (int i = 0; i < t->n_devices; i++) {
        const clt_device *device = t->store->replicas[i].device;
        clt_comm_device_init(&devices[i]);
        devices[i].context = device->context;
        devices[i].device = device->id;
        devices[i].compute = device->queue;
        sleep_poll = sleep_poll || device->sleep_poll;
    }
    clt_comm_options options;
    clt_comm_options_init(&options);
    if (sleep_poll)
        options.wait_poll_us = 100;
    options.timeout_ms = (int)fmin(t->options.comm_timeout * 1e3, INT_MAX);
    const clt_world *world = t->options.world;
    clt_status status = t->ranks > 1
                            ? world->connect(world->user, devices, t->n_devices, &options, &t->comm)
                            : clt_comm_create(devices, t->n_devices, &options, &t->comm);
    clt_free(devices);
    CLT_TRY(status);
    if (clt_comm_needs_progress(t->comm))
        clt_crew_while_waiting(t->crew, progress, t);
    t->collectives = (clt_collectives){t->comm, start, complete, abort_all};
    return CLT_OK;
}

clt_status clt_trainer_finish(clt_trainer *t)
{
    if (t->ranks < 2 || !t->comm)
        return CLT_OK;
    CLT_TRY(clt_trainer_wait(t));
    return clt_comm_finalize(t->comm);
}

void clt_trainer_disconnect(clt_trainer *t)
{
    clt_comm_destroy(t->comm);
    t->comm = NULL;
    t->collectives = (clt_collectives){0};
}
