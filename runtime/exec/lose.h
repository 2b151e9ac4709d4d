/*
 * A device that fails, for tests (CLT_TESTING): from a step on, enqueueing a plan's nodes fails on
 * it as on a device that is gone.
 */
#ifndef CLT_EXEC_LOSE_H
#define CLT_EXEC_LOSE_H

#include "device/core/device.h"

#ifdef CLT_TESTING
/* "PART=STEP[:NODE]": the device whose label contains PART fails from STEP (0, 1, ...) on, where
 * the plan's nodes from NODE on (0) are enqueued. NULL: what the environment variable
 * CLT_TESTING_LOSE says. */
extern const char *clt_exec_testing_lose;

/* DEVICE_LOST where the device has failed. */
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
