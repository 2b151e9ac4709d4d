#include "device/core/device.h"

#include <time.h>

/* Pauses double from 20 us to 1 ms: short waits end quickly, long ones need no core. */
enum { FIRST_SLEEP_NS = 20000, LAST_SLEEP_NS = 1000000 };

static clt_status sleep_until_done(clt_device *device, cl_event event)
{
    struct timespec pause = {0, FIRST_SLEEP_NS};
    for (;;) {
        cl_int state = CL_QUEUED;
        CLT_CL(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL),
               "clGetEventInfo", device);
        if (state < 0)
            return clt_cl_fail(state, "a queued command", device);
        if (state == CL_COMPLETE)
            return CLT_OK;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < LAST_SLEEP_NS)
            pause.tv_nsec *= 2;
    }
}

clt_status clt_device_wait(clt_device *device, int count, const cl_event *events)
{
    if (count <= 0)
        return CLT_OK;
    if (device->sleep_poll) {
        CLT_CL(clFlush(device->queue), "clFlush", device);
        if (device->transfer != device->queue)
            CLT_CL(clFlush(device->transfer), "clFlush", device);
        for (int i = 0; i < count; i++)
            CLT_TRY(sleep_until_done(device, events[i]));
        return CLT_OK;
    }
    cl_int code = clWaitForEvents((cl_uint)count, events);
    if (code != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) {
        CLT_CL(code, "clWaitForEvents", device);
        return CLT_OK;
    }
    /* Find the command that failed, and its error. */
    for (int i = 0; i < count; i++) {
        cl_int state = CL_COMPLETE;
        clGetEventInfo(events[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
        if (state < 0)
            return clt_cl_fail(state, "a queued command", device);
    }
    return clt_cl_fail(code, "clWaitForEvents", device);
}

clt_status clt_device_finish(clt_device *device)
{
    CLT_CL(clFinish(device->queue), "clFinish", device);
    if (device->transfer != device->queue)
        CLT_CL(clFinish(device->transfer), "clFinish", device);
    return CLT_OK;
}
