/* Moves a device's data to the host and back on the device's own queue: mapped in place, or copied
 * through staging. */
#include <time.h>

#include "base/error.h"
#include "comm/communicator/internal.h"
#include "device/core/cl.h"

/* Returns the elements of an operation in place that the host reads or writes. */
static clt_comm_range together(const clt_comm_part *part)
{
    const clt_comm_range in = part->in, out = part->out;
    if (!in.count || !out.count)
        return in.count ? in : out;
    const int64_t first = in.first < out.first ? in.first : out.first;
    const int64_t in_end = in.first + in.count, out_end = out.first + out.count;
    return (clt_comm_range){first, (in_end > out_end ? in_end : out_end) - first};
}

bool clt_comm_maps(const clt_comm *comm, int device, const clt_comm_part *part, char *why)
{
    const clt_comm_op *op = &part->op;
    if (comm->options.path == CLT_COMM_PATH_STAGED)
        return clt_declines(why, "the path 'staged' was asked for; set it to auto");
    if (!comm->members[device].can_map)
        return clt_declines(why, "the device does not share the host's memory, so it is copied");
    if (op->host)
        return clt_declines(why, "the data are in the host's memory already");
    if (op->out)
        return clt_declines(why, "the operation is not in place; leave `out` NULL");
    if (op->flags & CLT_COMM_EXCLUSIVE)
        return true;
    /* Kernels may not write the rest of a buffer while a part of it is mapped. */
    const clt_comm_range all = together(part);
    size_t bytes;
    if (all.first == 0 &&
        clGetMemObjectInfo(op->mem, CL_MEM_SIZE, sizeof bytes, &bytes, NULL) == CL_SUCCESS &&
        bytes == clt_comm_bytes_of(part, all.count))
        return true;
    return clt_declines(why, "the operation is on a part of the buffer object; add "
                             "CLT_COMM_EXCLUSIVE if nobody uses the rest meanwhile");
}

clt_status clt_comm_check_call(const clt_comm *comm, int device, const clt_comm_part *part,
                               const char *what, cl_int error)
{
    if (error == CL_SUCCESS)
        return CLT_OK;
    const char *label = part->op.label;
    return clt_fail(CLT_OPENCL,
                    "comm: %s%s%s %zu bytes on device %d (%s) failed with OpenCL error %d; "
                    "the device or its context may be lost",
                    label ? label : "", label ? ": " : "", what,
                    clt_comm_bytes_of(part, together(part).count), device,
                    comm->members[device].name, error);
}

static clt_status map(clt_comm *comm, int device, clt_comm_part *part, cl_uint waits,
                      const cl_event *wait_list)
{
    const clt_comm_range all = together(part);
    const cl_map_flags flags = !part->out.count  ? CL_MAP_READ
                               : !part->in.count ? CL_MAP_WRITE_INVALIDATE_REGION
                                                 : CL_MAP_READ | CL_MAP_WRITE;
    cl_int error;
    char *host =
        clEnqueueMapBuffer(comm->members[device].queue, part->op.mem, CL_FALSE, flags,
                           clt_comm_bytes_of(part, all.first), clt_comm_bytes_of(part, all.count),
                           waits, wait_list, part->silent ? NULL : &part->ready, &error);
    CLT_TRY(clt_comm_check_call(comm, device, part, "mapping", error));
    part->mapped = host;
    if (part->in.count)
        part->host_in = host + clt_comm_bytes_of(part, part->in.first - all.first);
    if (part->out.count)
        part->host_out = host + clt_comm_bytes_of(part, part->out.first - all.first);
    return CLT_OK;
}

/* Lays the host's input and output out within a piece of staging of *room bytes. They share memory
 * if the operation is in place, or if the host reads and writes equally many elements. */
static void lay_out(clt_comm_part *part, size_t *in, size_t *out, size_t *room)
{
    enum { ALIGN = 64 };
    const clt_comm_range all = together(part);
    *in = *out = 0;
    *room = clt_comm_bytes_of(part, all.count);
    if (!part->op.out) {
        *in = clt_comm_bytes_of(part, part->in.first - all.first);
        *out = clt_comm_bytes_of(part, part->out.first - all.first);
    } else if (part->in.count == part->out.count) {
        *room = clt_comm_bytes_of(part, part->in.count);
    } else {
        *out = (clt_comm_bytes_of(part, part->in.count) + ALIGN - 1) / ALIGN * ALIGN;
        *room = *out + clt_comm_bytes_of(part, part->out.count);
    }
}

clt_status clt_comm_place_on_host(clt_comm *comm, int device, clt_comm_part *part)
{
    clt_comm_member *m = &comm->members[device];
    char *host = part->op.host;
    size_t in = 0, out = 0, room;
    if (host) {
        in = clt_comm_bytes_of(part, part->in.first);
        out = clt_comm_bytes_of(part, part->out.first);
    } else {
        lay_out(part, &in, &out, &room);
        CLT_TRY(clt_staging_take(m, room, &part->staging, &host));
    }
    if (part->in.count)
        part->host_in = host + in;
    if (part->out.count)
        part->host_out = host + out;
    return CLT_OK;
}

static clt_status stage(clt_comm *comm, int device, clt_comm_part *part, cl_uint waits,
                        const cl_event *wait_list)
{
    clt_comm_member *m = &comm->members[device];
    cl_int error;
    CLT_TRY(clt_comm_place_on_host(comm, device, part));
    if (part->in.count) {
        error = clEnqueueReadBuffer(m->queue, part->op.mem, CL_FALSE,
                                    clt_comm_bytes_of(part, part->in.first),
                                    clt_comm_bytes_of(part, part->in.count), part->host_in, waits,
                                    wait_list, part->silent ? NULL : &part->ready);
    } else { /* the staging's last upload and the buffer's users end before the host writes */
        error = clEnqueueMarkerWithWaitList(m->queue, waits, wait_list,
                                            part->silent ? NULL : &part->ready);
    }
    return clt_comm_check_call(comm, device, part, "reading", error);
}

/* For data in the host's memory, only the caller's wait list comes before. */
static clt_status begin_on_host(clt_comm *comm, int device, clt_comm_part *part, cl_uint waits,
                                const cl_event *wait_list)
{
    CLT_TRY(clt_comm_place_on_host(comm, device, part));
    if (!waits)
        return CLT_OK;
    return clt_comm_check_call(comm, device, part, "ordering",
                               clEnqueueMarkerWithWaitList(comm->members[device].queue, waits,
                                                           wait_list,
                                                           part->silent ? NULL : &part->ready));
}

clt_status clt_comm_transfer_begin(clt_comm *comm, int device, clt_comm_part *part, int wait_count,
                                   const cl_event *wait_list)
{
    clt_comm_member *m = &comm->members[device];
    cl_uint waits = (cl_uint)wait_count;
    if (m->queue != m->compute && waits)
        CLT_TRY(clt_comm_check_call(comm, device, part, "flushing before", clFlush(m->compute)));
    if (part->op.host) {
        CLT_TRY(begin_on_host(comm, device, part, waits, wait_list));
    } else if (clt_comm_is_nothing(part)) {
        if (waits)
            CLT_TRY(
                clt_comm_check_call(comm, device, part, "ordering",
                                    clEnqueueMarkerWithWaitList(m->queue, waits, wait_list, NULL)));
    } else if (part->maps) {
        CLT_TRY(map(comm, device, part, waits, wait_list));
    } else {
        CLT_TRY(stage(comm, device, part, waits, wait_list));
    }
    if (part->ready)
        clt_object_created(CLT_OBJECT_EVENT);
    return CLT_OK;
}

clt_status clt_comm_transfer_end(clt_comm *comm, int device, clt_comm_part *part, bool undo,
                                 cl_event *event)
{
    clt_comm_member *m = &comm->members[device];
    const clt_comm_op *op = &part->op;
    cl_int error = CL_SUCCESS;
    if (part->mapped)
        error = clEnqueueUnmapMemObject(m->queue, op->mem, part->mapped, 0, NULL, event);
    else if (part->out.count && !undo && !op->host && !part->direct)
        error = clEnqueueWriteBuffer(m->queue, op->out ? op->out : op->mem, CL_FALSE,
                                     clt_comm_bytes_of(part, part->out.first),
                                     clt_comm_bytes_of(part, part->out.count), part->host_out, 0,
                                     NULL, event);
    else if (event)
        error = clEnqueueMarkerWithWaitList(m->queue, 0, NULL, event);
    if (part->staging >= 0)
        clt_staging_give(m, part->staging);
    part->staging = -1;
    part->mapped = NULL; /* host_in and host_out stay: CLT_COMM_QUEUED may still need them */
    CLT_TRY(clt_comm_check_call(comm, device, part, "writing back", error));
    if ((error = clFlush(m->queue)) != CL_SUCCESS) {
        if (event)
            clReleaseEvent(*event);
        return clt_comm_check_call(comm, device, part, "flushing", error);
    }
    return CLT_OK;
}

clt_status clt_on_queue_begin(clt_comm *comm, clt_comm_side *side, int wait_count,
                              const cl_event *wait_list)
{
    const clt_comm_member *m = &comm->members[side->device];
    for (int k = 0; k < side->part_count; k++)
        CLT_TRY(clt_comm_transfer_begin(comm, side->device, &side->parts[k], k ? 0 : wait_count,
                                        k ? NULL : wait_list));
    return clt_comm_check_call(comm, side->device, &side->parts[0], "flushing", clFlush(m->queue));
}

/* The queue is in order, so the event belongs to the last operation. */
clt_status clt_on_queue_end(clt_comm *comm, clt_comm_side *side, bool undo, cl_event *event)
{
    clt_status status = CLT_OK;
    for (int k = 0; k < side->part_count; k++) {
        const bool last = k == side->part_count - 1;
        const clt_status end =
            clt_comm_transfer_end(comm, side->device, &side->parts[k], undo || status != CLT_OK,
                                  last && status == CLT_OK ? event : NULL);
        status = status == CLT_OK ? end : status;
    }
    return status;
}

#ifdef CLT_TESTING
atomic_int clt_comm_testing_waits_until_fault = -1;

static bool fault(void)
{
    return atomic_load(&clt_comm_testing_waits_until_fault) >= 0 &&
           atomic_fetch_sub(&clt_comm_testing_waits_until_fault, 1) == 0;
}
#else
static bool fault(void)
{
    return false;
}
#endif

static clt_status ended(cl_int error, cl_int state)
{
    if (fault())
        error = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    if (error == CL_SUCCESS && state == CL_COMPLETE)
        return CLT_OK;
    return clt_fail(CLT_OPENCL, "the transfer to the host failed with OpenCL error %d",
                    error != CL_SUCCESS ? error : state);
}

clt_status clt_comm_wait_event(clt_comm *comm, cl_event event)
{
    cl_int state = CL_COMPLETE, error;
    if (!comm->options.wait_poll_us) {
        error = clWaitForEvents(1, &event);
    } else {
        struct timespec pause = {comm->options.wait_poll_us / 1000000,
                                 comm->options.wait_poll_us % 1000000 * 1000L};
        for (;;) {
            error = clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state,
                                   NULL);
            if (error != CL_SUCCESS || state <= CL_COMPLETE)
                break;
            if (atomic_load(&comm->aborted))
                return CLT_ABORTED;
            nanosleep(&pause, NULL);
        }
    }
    return ended(error, state);
}

clt_status clt_comm_ended_event(cl_event event)
{
    cl_int state = CL_COMPLETE, error = CL_SUCCESS;
    if (event)
        error =
            clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    return ended(error, state < CL_COMPLETE ? state : CL_COMPLETE);
}
