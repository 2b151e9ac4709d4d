#include "exec/update/convert.h"

clt_status clt_convert_create(clt_device *device, clt_dtype dtype, bool rounds, cl_mem status,
                              int scale, clt_convert *out)
{
    const char *options = dtype == CLT_F16 ? "-DOUT0=h -DSCALED" : "-DOUT0=w";
    *out = (clt_convert){.device = device, .rounds = rounds, .status = status, .scale = scale};
    return clt_device_kernel(device, "train/portable/convert.cl", options,
                             rounds ? "round_gradient" : "widen_gradient", &out->kernel);
}

void clt_convert_destroy(clt_convert *convert)
{
    clt_release_kernel(convert->kernel);
    convert->kernel = NULL;
}

clt_status clt_convert_enqueue(const clt_convert *c, clt_view from, clt_view to, int64_t count)
{
    const int64_t from_size = c->rounds ? 4 : 2, to_size = c->rounds ? 2 : 4;
    const cl_long from_first = from.offset / from_size, to_first = to.offset / to_size;
    const cl_int elements = (cl_int)count, scale = c->scale;
    const struct {
        size_t bytes;
        const void *value;
    } args[] = {{sizeof(cl_mem), &from.buffer}, {sizeof from_first, &from_first},
                {sizeof(cl_mem), &to.buffer},   {sizeof to_first, &to_first},
                {sizeof elements, &elements},   {sizeof(cl_mem), &c->status},
                {sizeof scale, &scale}};
    const size_t items = (size_t)count;
    cl_int code = CL_SUCCESS;
    if (!count)
        return CLT_OK;
    for (cl_uint i = 0; code == CL_SUCCESS && i < sizeof args / sizeof *args; i++)
        code = clSetKernelArg(c->kernel, i, args[i].bytes, args[i].value);
    if (code == CL_SUCCESS)
        code = clEnqueueNDRangeKernel(c->device->queue, c->kernel, 1, NULL, &items, NULL, 0, NULL,
                                      NULL);
    return code == CL_SUCCESS ? CLT_OK : clt_cl_fail(code, "clEnqueueNDRangeKernel", c->device);
}
