/* Timing what a device runs. */
#ifndef CLT_TUNE_MEASURE_NODE_H
#define CLT_TUNE_MEASURE_NODE_H

#include "device/core/device.h"
#include "plan/plan.h"

/* Seconds a call, over blocks of calls. */
typedef struct clt_timing {
    double median, least, most;
    int calls; /* of a block */
} clt_timing;

/*
 * Times `enqueue`, which enqueues the same work on the compute queue at each call: as many calls as
 * take `seconds` are queued back to back, then the queue is finished; `blocks` times, at most 99.
 */
clt_status clt_time_calls(clt_device *device, clt_status (*enqueue)(void *user), void *user,
                          int blocks, double seconds, clt_timing *timing);

/* What goes on between blocks, outside of their time; what is NULL is left out. */
typedef struct clt_time_hooks {
    /* Before each block, with the number of calls in one; returns the number to make instead. */
    int (*before)(void *user, int calls);
    bool warm; /* a block that is not timed follows `before` */
    /* Just before and just after each timed block, which took `seconds` a call. */
    clt_status (*begin)(void *user);
    clt_status (*end)(void *user, double seconds);
    void *user;
} clt_time_hooks;

/* The same, with something between the blocks. */
clt_status clt_time_blocks(clt_device *device, clt_status (*enqueue)(void *user), void *user,
                           int blocks, double seconds, const clt_time_hooks *hooks,
                           clt_timing *timing);

/* Floating-point operations of a node for a batch of n; bytes of its operands and results, once
 * each. */
double clt_node_flops(const clt_node *node, int64_t n);
double clt_node_bytes(const clt_node *node, int64_t n);

#endif
