#include <stdlib.h>

#include "tune/measure_node.h"

#include "base/clock.h"

enum { MOST_BLOCKS = 99, MOST_CALLS = 1 << 16, QUEUED = 256 };

static clt_status run(clt_device *device, clt_status (*enqueue)(void *user), void *user, int calls,
                      double *seconds)
{
    const double began = clt_clock();
    for (int i = 0; i < calls; i++) {
        CLT_TRY(enqueue(user));
        /* Drivers keep queued commands in memory of their own. */
        if (i % QUEUED == QUEUED - 1)
            CLT_CL(clFlush(device->queue), "clFlush", device);
    }
    CLT_TRY(clt_device_finish(device));
    *seconds = clt_clock() - began;
    return CLT_OK;
}

clt_status clt_time_blocks(clt_device *device, clt_status (*enqueue)(void *user), void *user,
                           int blocks, double seconds, const clt_time_hooks *hooks,
                           clt_timing *timing)
{
    double times[MOST_BLOCKS], spent;
    int calls = 1;
    if (blocks < 1 || blocks > MOST_BLOCKS)
        return clt_fail(CLT_INVALID_ARGUMENT, "%d blocks; at most %d", blocks, (int)MOST_BLOCKS);
    /* Drivers compile at the first run, which also warms caches. */
    CLT_TRY(run(device, enqueue, user, 1, &spent));
    for (;;) {
        CLT_TRY(run(device, enqueue, user, calls, &spent));
        if (spent >= 0.5 * seconds || calls >= MOST_CALLS)
            break;
        const double more = spent > 0 ? 0.75 * seconds / spent : 2;
        calls = (int)(calls * (more > 16 ? 16 : more < 2 ? 2 : more));
    }
    if (calls > MOST_CALLS)
        calls = MOST_CALLS;
    for (int b = 0; b < blocks; b++) {
        if (hooks->before)
            calls = hooks->before(hooks->user, calls);
        if (hooks->warm)
            CLT_TRY(run(device, enqueue, user, calls, &times[b]));
        if (hooks->begin)
            CLT_TRY(hooks->begin(hooks->user));
        CLT_TRY(run(device, enqueue, user, calls, &times[b]));
        times[b] /= calls;
        if (hooks->end)
            CLT_TRY(hooks->end(hooks->user, times[b]));
    }
    qsort(times, (size_t)blocks, sizeof *times, clt_clock_compare);
    *timing = (clt_timing){0.5 * (times[(blocks - 1) / 2] + times[blocks / 2]), times[0],
                           times[blocks - 1], calls};
    return CLT_OK;
}

clt_status clt_time_calls(clt_device *device, clt_status (*enqueue)(void *user), void *user,
                          int blocks, double seconds, clt_timing *timing)
{
    const clt_time_hooks none = {0};
    return clt_time_blocks(device, enqueue, user, blocks, seconds, &none, timing);
}

double clt_node_flops(const clt_node *node, int64_t n)
{
    return node->op->flops ? node->op->flops(node, n)
                           : (double)clt_type_elements(&node->out[0]->type, n);
}

static double bytes_of(const clt_value *value, int64_t n)
{
    return (double)(clt_type_elements(&value->type, n) * clt_dtype_size(value->type.dtype));
}

double clt_node_bytes(const clt_node *node, int64_t n)
{
    double bytes = 0;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i])
            bytes += bytes_of(node->in[i], n);
    for (int i = 0; i < node->n_out; i++)
        bytes += bytes_of(node->out[i], n);
    return bytes;
}
