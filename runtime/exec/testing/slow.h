/*
 * Makes a device slow, for tests (CLT_TESTING). After the launches of a plan's nodes, the
 * enqueueing thread waits for them, then pauses for (factor - 1) times their time. The optimizer
 * keeps its speed.
 */
#ifndef CLT_EXEC_TESTING_SLOW_H
#define CLT_EXEC_TESTING_SLOW_H

#include "device/core/device.h"

/* The slowness of one plan on one device. */
typedef struct clt_slow {
    double factor; /* 0: the device keeps its speed */
    uint32_t from; /* the first slow step */
    double began;
} clt_slow;

#ifdef CLT_TESTING
/* A list separated by commas: [rankN:]TEXT=FACTOR[@STEP]. Devices whose label contains TEXT (only
 * on rank N, if given) take FACTOR times as long, from STEP (default 0) on. NULL: the environment
 * variable CLT_TESTING_SLOW is used, if it is set. The list is read when a plan is bound to a
 * device. */
extern const char *clt_exec_testing_slow;

/* Sets the rank that binds plans on this thread from now on. */
void clt_slow_rank(int rank);

/* Reads the list for the device. Error: INVALID_ARGUMENT for a wrong text. */
clt_status clt_slow_init(clt_slow *slow, const clt_device *device);

/* Called before and after the launches of a step's nodes. */
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
