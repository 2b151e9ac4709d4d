#include "exec/timed_kernel.h"

clt_status clt_timed_set_arg(clt_device *device, cl_kernel kernel, cl_uint index, size_t size,
                             const void *value)
{
    CLT_CL(clSetKernelArg(kernel, index, size, value), "clSetKernelArg", device);
    return CLT_OK;
}

clt_status clt_timed_run(clt_device *device, cl_kernel kernel, size_t items, cl_event *event)
{
    CLT_CL(clEnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &items, NULL, 0, NULL, event),
           "clEnqueueNDRangeKernel", device);
    if (event)
        clt_object_created(CLT_OBJECT_EVENT);
    return CLT_OK;
}

clt_status clt_timed_end(clt_device *device, cl_event event, double *seconds)
{
    cl_ulong end = 0;
    CLT_CL(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL),
           "clGetEventProfilingInfo", device);
    *seconds = 1e-9 * (double)end;
    return CLT_OK;
}

clt_status clt_timed_map(clt_device *device, cl_mem buffer, size_t bytes, void **host)
{
    cl_int error;
    *host = clEnqueueMapBuffer(device->queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes,
                               0, NULL, NULL, &error);
    CLT_CL(error, "clEnqueueMapBuffer", device);
    return CLT_OK;
}

clt_status clt_timed_unmap(clt_device *device, cl_mem buffer, void *host)
{
    CLT_CL(clEnqueueUnmapMemObject(device->queue, buffer, host, 0, NULL, NULL),
           "clEnqueueUnmapMemObject", device);
    return CLT_OK;
}

clt_status clt_timed_read(clt_device *device, cl_mem buffer, size_t bytes, void *to)
{
    CLT_CL(clEnqueueReadBuffer(device->queue, buffer, CL_TRUE, 0, bytes, to, 0, NULL, NULL),
           "clEnqueueReadBuffer", device);
    return CLT_OK;
}
