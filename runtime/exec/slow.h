/*
 * A device made slow, for tests (CLT_TESTING): after the launches of a plan's nodes the thread that
 * enqueues waits for them, and then once more for the time that they took, times the factor less
 * one. The optimizer keeps its speed.
 */
#ifndef CLT_EXEC_SLOW_H
#define CLT_EXEC_SLOW_H

#include "device/core/device.h"

/* Of one plan on one device. */
typedef struct clt_slow {
    double factor; /* 0: the device keeps its speed */
    uint32_t from; /* the first step that is slow */
    double began;
} clt_slow;

#ifdef CLT_TESTING
/* [rankN:]TEXT=FACTOR[@STEP] by comma: devices whose label has TEXT (of rank N alone) take FACTOR
 * times as long, from that step on (0 is the first). NULL: the environment variable
 * CLT_TESTING_SLOW, if there is one. Read when a plan is bound to a device. */
extern const char *clt_exec_testing_slow;

/* Which rank it is that binds plans on this thread from now on. */
void clt_slow_rank(int rank);

/* Errors: INVALID_ARGUMENT (the text). */
clt_status clt_slow_init(clt_slow *slow, const clt_device *device);

/* Around the launches of a step's nodes. */
clt_status clt_slow_begin(clt_slow *slow, clt_device *device, uint32_t step);
clt_status clt_slow_end(const clt_slow *slow, clt_device *device, uint32_t step);
#else
static inline void clt_slow_rank(int of_rank)
{
    (void)of_rank;
}

static inline clt_status clt_slow_init(clt_slow *slow, const clt_device *device)
{
    (void)slow, (void)device;
    return CLT_OK;
}

static inline clt_status clt_slow_begin(clt_slow *slow, clt_device *device, uint32_t step)
{
    (void)slow, (void)device, (void)step;
    return CLT_OK;
}

static inline clt_status clt_slow_end(const clt_slow *slow, clt_device *device, uint32_t step)
{
    (void)slow, (void)device, (void)step;
    return CLT_OK;
}
#endif

#endif
