/* A device's data to the host and back: mapped in place, or copied through staging. */
#include <time.h>

#include "base/error.h"
#include "comm/internal.h"
#include "device/cl.h"

static size_t op_bytes(const clt_comm_op *op)
{
    return (size_t)op->count * (size_t)clt_dtype_size(op->dtype);
}

bool clt_comm_maps(const clt_comm *comm, int device, const clt_comm_op *op)
{
    if (comm->options.path == CLT_COMM_PATH_STAGED || !comm->members[device].can_map || op->out)
        return false;
    if (op->flags & CLT_COMM_EXCLUSIVE)
        return true;
    /* While a part is mapped, kernels may not write the rest. */
    size_t bytes;
    return op->offset == 0 &&
           clGetMemObjectInfo(op->mem, CL_MEM_SIZE, sizeof bytes, &bytes, NULL) == CL_SUCCESS &&
           bytes == op_bytes(op);
}

static clt_status check(const clt_comm *comm, int device, const clt_comm_op *op, const char *what,
                        cl_int error)
{
    if (error == CL_SUCCESS)
        return CLT_OK;
    return clt_fail(CLT_OPENCL,
                    "comm: %s%s%s %zu bytes on device %d (%s) failed with OpenCL error %d; "
                    "the device or its context may be lost",
                    op->label ? op->label : "", op->label ? ": " : "", what, op_bytes(op), device,
                    comm->members[device].name, error);
}

static clt_status map(clt_comm *comm, int device, clt_comm_side *side, cl_uint waits,
                      const cl_event *wait_list)
{
    const clt_comm_op *op = &side->op;
    size_t offset = (size_t)op->offset * (size_t)clt_dtype_size(op->dtype);
    cl_map_flags flags = side->reads && side->writes ? CL_MAP_READ | CL_MAP_WRITE
                         : side->reads               ? CL_MAP_READ
                                                     : CL_MAP_WRITE_INVALIDATE_REGION;
    cl_int error;
    side->host = clEnqueueMapBuffer(comm->members[device].queue, op->mem, CL_FALSE, flags, offset,
                                    op_bytes(op), waits, wait_list, &side->ready, &error);
    CLT_TRY(check(comm, device, op, "mapping", error));
    side->mapped = true;
    return CLT_OK;
}

static clt_status stage(clt_comm *comm, int device, clt_comm_side *side, cl_uint waits,
                        const cl_event *wait_list)
{
    const clt_comm_op *op = &side->op;
    clt_comm_member *m = &comm->members[device];
    CLT_TRY(clt_staging_take(m, op_bytes(op), &side->staging));
    side->host = m->staging[side->staging].host;
    size_t offset = (size_t)op->offset * (size_t)clt_dtype_size(op->dtype);
    cl_int error;
    if (side->reads)
        error = clEnqueueReadBuffer(m->queue, op->mem, CL_FALSE, offset, op_bytes(op), side->host,
                                    waits, wait_list, &side->ready);
    else /* the staging's last upload, and the buffer's users, before the host writes */
        error = clEnqueueMarkerWithWaitList(m->queue, waits, wait_list, &side->ready);
    return check(comm, device, op, "reading", error);
}

clt_status clt_comm_transfer_begin(clt_comm *comm, int device, clt_comm_side *side, int wait_count,
                                   const cl_event *wait_list)
{
    clt_comm_member *m = &comm->members[device];
    const clt_comm_op *op = &side->op;
    cl_uint waits = (cl_uint)wait_count;
    if (m->queue != m->compute && waits)
        CLT_TRY(check(comm, device, op, "flushing before", clFlush(m->compute)));
    if (op->count == 0 || !(side->reads || side->writes)) {
        if (waits)
            CLT_TRY(check(comm, device, op, "ordering",
                          clEnqueueMarkerWithWaitList(m->queue, waits, wait_list, NULL)));
    } else if (clt_comm_maps(comm, device, op)) {
        CLT_TRY(map(comm, device, side, waits, wait_list));
    } else {
        CLT_TRY(stage(comm, device, side, waits, wait_list));
    }
    if (side->ready)
        clt_object_created(CLT_OBJECT_EVENT);
    return check(comm, device, op, "flushing", clFlush(m->queue));
}

clt_status clt_comm_transfer_end(clt_comm *comm, int device, clt_comm_side *side, bool undo,
                                 cl_event *event)
{
    clt_comm_member *m = &comm->members[device];
    const clt_comm_op *op = &side->op;
    cl_int error = CL_SUCCESS;
    if (side->mapped) {
        error = clEnqueueUnmapMemObject(m->queue, op->mem, side->host, 0, NULL, event);
        side->mapped = false;
    } else if (side->writes && op->count > 0 && !undo) {
        size_t size = (size_t)clt_dtype_size(op->dtype);
        size_t offset = (size_t)(op->out ? op->out_offset : op->offset) * size;
        error = clEnqueueWriteBuffer(m->queue, op->out ? op->out : op->mem, CL_FALSE, offset,
                                     op_bytes(op), side->host, 0, NULL, event);
    } else if (event) {
        error = clEnqueueMarkerWithWaitList(m->queue, 0, NULL, event);
    }
    if (side->staging >= 0)
        m->staging[side->staging].used = false;
    side->staging = -1;
    side->host = NULL;
    CLT_TRY(check(comm, device, op, "writing back", error));
    if ((error = clFlush(m->queue)) != CL_SUCCESS) {
        if (event)
            clReleaseEvent(*event);
        return check(comm, device, op, "flushing", error);
    }
    return CLT_OK;
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
    if (fault())
        error = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    if (error == CL_SUCCESS && state == CL_COMPLETE)
        return CLT_OK;
    return clt_fail(CLT_OPENCL, "the transfer to the host failed with OpenCL error %d",
                    error != CL_SUCCESS ? error : state);
}
