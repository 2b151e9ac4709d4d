/* Measures the time that a device needs for enqueued work. */
#ifndef CLT_TUNE_MEASURE_NODE_H
#define CLT_TUNE_MEASURE_NODE_H

#include "device/core/device.h"
#include "plan/plan.h"

/* Seconds per call, over several blocks of calls. */
typedef struct clt_timing {
    double median, least, most;
    int calls; /* calls in a block */
} clt_timing;

/*
 * Times `enqueue`, which must enqueue the same work on the compute queue at each call. A block
 * queues as many calls as take `seconds`, then finishes the queue. There are `blocks` blocks, at
 * most 99.
 */
clt_status clt_time_calls(clt_device *device, clt_status (*enqueue)(void *user), void *user,
                          int blocks, double seconds, clt_timing *timing);

/* Functions called between blocks, outside the measured time. A NULL function is not called. */
typedef struct clt_time_hooks {
    /* Called before each block with its number of calls; returns the number of calls to make
     * instead. */
    int (*before)(void *user, int calls);
    bool warm; /* a block that is not timed follows `before` */
    /* Called just before and just after each timed block. `seconds` is its time per call. */
    clt_status (*begin)(void *user);
    clt_status (*end)(void *user, double seconds);
    void *user;
} clt_time_hooks;

/* Like clt_time_calls, with hooks between the blocks. */
clt_status clt_time_blocks(clt_device *device, clt_status (*enqueue)(void *user), void *user,
                           int blocks, double seconds, const clt_time_hooks *hooks,
                           clt_timing *timing);

/* Return the floating-point operations of a node for a batch of n, and the bytes of its operands
 * and results, each counted once. */
double clt_node_flops(const clt_node *node, int64_t n);
double clt_node_bytes(const clt_node *node, int64_t n);

#endif
