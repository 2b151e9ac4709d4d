/* Timing what a device runs. */
#ifndef CLT_TUNE_MEASURE_H
#define CLT_TUNE_MEASURE_H

#include "device/device.h"
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

/* The same; `before`, if it is not NULL, is called before each block, outside of its time, with the
 * number of calls in a block, and returns the number to make instead. `warm`: a block that is not
 * timed follows it. */
clt_status clt_time_blocks(clt_device *device, clt_status (*enqueue)(void *user), void *user,
                           int blocks, double seconds, int (*before)(void *user, int calls),
                           void *before_user, bool warm, clt_timing *timing);

/* Floating-point operations of a node for a batch of n; bytes of its operands and results, once
 * each. */
double clt_node_flops(const clt_node *node, int64_t n);
double clt_node_bytes(const clt_node *node, int64_t n);

#endif
