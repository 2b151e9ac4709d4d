/* What a device reaches at most, measured by kernels that do nothing else. */
#include <stdio.h>

#include <cltrain/unstable.h>

#include "tune/measure.h"

enum { COPY_BYTES = 64 << 20, BLOCKS = 9, AHEAD = 512 };

typedef struct bench_kernel {
    clt_device *device;
    cl_kernel kernel;
    size_t global, local;
} bench_kernel;

static clt_status enqueue(void *user)
{
    const bench_kernel *b = user;
    CLT_CL(clEnqueueNDRangeKernel(b->device->queue, b->kernel, 1, NULL, &b->global, &b->local, 0,
                                  NULL, NULL),
           "clEnqueueNDRangeKernel", b->device);
    return CLT_OK;
}

/* Chains enough to hide the latency of a fused multiply-add, few enough to stay in registers. */
static clt_status measure_fma(clt_device *device, cl_mem buffer, double *flops)
{
    const bool cpu = clt_caps_is_cpu(&device->caps);
    const int width = cpu ? device->caps.vector_width : 1, chains = cpu ? 12 : 8;
    const cl_int rounds = cpu ? 2000 : 1000;
    bench_kernel b = {device, NULL, 0, cpu ? 1 : 256};
    b.global = (size_t)device->caps.compute_units * (cpu ? 8 : 2048);
    char options[64];
    snprintf(options, sizeof options, "-DVW=%d -DCHAINS=%d -DCPU=%d -DAHEAD=0", width, chains, cpu);
    CLT_TRY(clt_device_kernel(device, "bench/limits.cl", options, "clt_fma_peak", &b.kernel));
    clt_status status = CLT_OK;
    cl_int code = clSetKernelArg(b.kernel, 0, sizeof buffer, &buffer);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(b.kernel, 1, sizeof rounds, &rounds);
    if (code != CL_SUCCESS)
        status = clt_cl_fail(code, "clSetKernelArg", device);
    clt_timing timing;
    if (status == CLT_OK)
        status = clt_time_calls(device, enqueue, &b, BLOCKS, 0.03, &timing);
    clt_release_kernel(b.kernel);
    CLT_TRY(status);
    *flops = 2.0 * chains * width * 16 * rounds * (double)b.global / timing.least;
    return CLT_OK;
}

/* Raises *bytes to the rate of copying that fetches `ahead` floats ahead. */
static clt_status measure_copy(clt_device *device, cl_mem from, cl_mem to, int ahead, double *bytes)
{
    const bool cpu = clt_caps_is_cpu(&device->caps);
    const int width = cpu ? device->caps.vector_width : 4;
    const size_t vectors = COPY_BYTES / sizeof(float) / (size_t)width;
    bench_kernel b = {device, NULL, 0, cpu ? 1 : 256};
    b.global = cpu ? (size_t)device->caps.compute_units * 16 : vectors / 4;
    /* Chunks of equal size that cover all. */
    while (vectors % b.global)
        b.global--;
    const cl_int chunk = (cl_int)(vectors / b.global);
    char options[64];
    snprintf(options, sizeof options, "-DVW=%d -DCHAINS=1 -DCPU=%d -DAHEAD=%d", width, cpu, ahead);
    CLT_TRY(clt_device_kernel(device, "bench/limits.cl", options, "clt_copy", &b.kernel));
    cl_int code = clSetKernelArg(b.kernel, 0, sizeof from, &from);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(b.kernel, 1, sizeof to, &to);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(b.kernel, 2, sizeof chunk, &chunk);
    clt_timing timing;
    clt_status status = code == CL_SUCCESS ? CLT_OK : clt_cl_fail(code, "clSetKernelArg", device);
    if (status == CLT_OK)
        status = clt_time_calls(device, enqueue, &b, BLOCKS, 0.03, &timing);
    clt_release_kernel(b.kernel);
    CLT_TRY(status);
    /* The best of them, as above: a limit taken in a disturbed moment flatters all kernels. */
    const double rate = 2.0 * COPY_BYTES / timing.least;
    *bytes = rate > *bytes ? rate : *bytes;
    return CLT_OK;
}

/* Memory that was never written may be one page of zeros, or none at all. */
static clt_status touch(clt_device *device, cl_mem buffer)
{
    const cl_float one = 1;
    CLT_CL(
        clEnqueueFillBuffer(device->queue, buffer, &one, sizeof one, 0, COPY_BYTES, 0, NULL, NULL),
        "clEnqueueFillBuffer", device);
    return CLT_OK;
}

clt_status clt_device_measure_limits(clt_device *device, clt_limits *limits)
{
    cl_mem from, to;
    CLT_TRY(
        clt_device_buffer_create(device, COPY_BYTES, CL_MEM_READ_WRITE, "copy's source", &from));
    clt_status status =
        clt_device_buffer_create(device, COPY_BYTES, CL_MEM_READ_WRITE, "copy's target", &to);
    if (status == CLT_OK) {
        clt_limits found = {0};
        status = touch(device, from);
        if (status == CLT_OK)
            status = touch(device, to);
        if (status == CLT_OK)
            status = measure_fma(device, to, &found.flops);
        if (status == CLT_OK)
            status = measure_copy(device, from, to, 0, &found.copy_bytes);
        /* Where memory is slow to answer, a processor's own prefetching reaches half of it. */
        if (status == CLT_OK && (device->quirks & CLT_QUIRK_BUILTINS))
            status = measure_copy(device, from, to, AHEAD, &found.copy_bytes);
        if (status == CLT_OK)
            *limits = found;
        clt_release_buffer(to);
    }
    clt_release_buffer(from);
    return status;
}
