/*
 * Makes a device fail, for tests (CLT_TESTING). From a step on, enqueueing a plan's nodes fails on
 * it as on a device that is gone.
 */
#ifndef CLT_EXEC_TESTING_LOSE_H
#define CLT_EXEC_TESTING_LOSE_H

#include "device/core/device.h"

#ifdef CLT_TESTING
/* "PART=STEP[:NODE]": the device whose label contains PART fails from STEP (0, 1, ...) on, when
 * nodes of the plan from NODE (default 0) on are enqueued. NULL: the environment variable
 * CLT_TESTING_LOSE is used. */
extern const char *clt_exec_testing_lose;

/* Returns DEVICE_LOST if the device has failed. */
clt_status clt_lose(const clt_device *device, uint32_t step, int node);
#else
static inline clt_status clt_lose(const clt_device *device, uint32_t step, int node)
{
    (void)device;
    (void)step;
    (void)node;
    return CLT_OK;
}
#endif

#endif
