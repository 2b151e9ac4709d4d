#include "tune/recorder.h"

#include "base/clock.h"
#include "base/vec.h"

typedef struct pending {
    clt_command command;
    int64_t tag;
    double enqueued; /* time of the host's clock */
    cl_event event;
} pending;

struct clt_recorder {
    clt_device *device;
    const int64_t *tag;
    double began;
    /* Host time minus device time: the least difference between the return from enqueueing a
     * command and the time at which the device says the command was queued. */
    double offset;
    bool offset_known;
    pending *pending;
    int n_pending, room_pending, first; /* entries before `first` were read */
    clt_recorded *records;
    int n_records, room_records;
    clt_status status;
};

static double stamp(cl_event event, cl_profiling_info which, cl_int *code)
{
    cl_ulong ns = 0;
    const cl_int result = clGetEventProfilingInfo(event, which, sizeof ns, &ns, NULL);
    if (result != CL_SUCCESS)
        *code = result;
    return 1e-9 * (double)ns;
}

static clt_status add(clt_recorder *r, const pending *p)
{
    cl_int code = CL_SUCCESS;
    const double queued = stamp(p->event, CL_PROFILING_COMMAND_QUEUED, &code);
    const clt_recorded record = {.command = p->command,
                                 .tag = p->tag,
                                 .start = stamp(p->event, CL_PROFILING_COMMAND_START, &code),
                                 .end = stamp(p->event, CL_PROFILING_COMMAND_END, &code)};
    if (code != CL_SUCCESS)
        return clt_cl_fail(code, "clGetEventProfilingInfo", r->device);
    if (!r->offset_known || p->enqueued - queued < r->offset)
        r->offset = p->enqueued - queued;
    r->offset_known = true;
    return CLT_PUSH(r->records, r->n_records, r->room_records, record);
}

static bool complete(cl_event event)
{
    cl_int state;
    return clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL) ==
               CL_SUCCESS &&
           state == CL_COMPLETE;
}

/* Reads the times of commands that have run, so that events do not pile up. */
static void drain(clt_recorder *r)
{
    while (r->first < r->n_pending && complete(r->pending[r->first].event)) {
        const pending *p = &r->pending[r->first++];
        const clt_status status = add(r, p);
        if (status != CLT_OK && r->status == CLT_OK)
            r->status = status;
        clt_release_event(p->event);
    }
    if (r->first == r->n_pending)
        r->first = r->n_pending = 0;
}

static void watch(void *user, const clt_command *command, cl_event event)
{
    clt_recorder *r = user;
    const pending p = {*command, r->tag ? *r->tag : 0, clt_clock(), event};
    if (CLT_PUSH(r->pending, r->n_pending, r->room_pending, p) != CLT_OK) {
        r->status = CLT_OUT_OF_MEMORY;
        clt_release_event(event);
    }
    drain(r);
}

clt_status clt_recorder_create(clt_device *device, const int64_t *tag, clt_recorder **out)
{
    if (!device->profiling)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s was opened without profiling: its queue records no times",
                        device->label);
    clt_recorder *r = CLT_NEW(clt_recorder);
    CLT_TRY_MEMORY(r);
    r->device = device;
    r->tag = tag;
    r->began = clt_clock();
    device->watcher_user = r;
    device->watcher = watch;
    *out = r;
    return CLT_OK;
}

void clt_recorder_destroy(clt_recorder *r)
{
    if (!r)
        return;
    r->device->watcher = NULL;
    clt_device_finish(r->device);
    for (int i = r->first; i < r->n_pending; i++)
        clt_release_event(r->pending[i].event);
    CLT_FREE(r->pending, r->records, r);
}

clt_status clt_recorder_read(clt_recorder *r, const clt_recorded **records, int *count,
                             double *shift)
{
    CLT_TRY(clt_device_finish(r->device));
    drain(r);
    if (r->status != CLT_OK)
        return clt_fail(r->status, "%s: a command's times could not be recorded", r->device->label);
    *records = r->records;
    *count = r->n_records;
    *shift = r->offset - r->began;
    return CLT_OK;
}
