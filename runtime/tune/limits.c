/* Measures the highest rates of a device, with kernels that do nothing else. */
#include <stdio.h>

#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "tune/measure_node.h"

enum { COPY_BYTES = 64 << 20, BLOCKS = 9, AHEAD = 512 };

/* A kernel that measures a limit. `work` counts the operations, or the bytes moved, of a launch. */
typedef struct clt_limit_kernel {
    clt_device *device;
    cl_kernel kernel;
    size_t global, local;
    double work;
} clt_limit_kernel;

struct clt_meter {
    clt_device *device;
    cl_mem from, to;
    clt_limit_kernel kernels[CLT_LIMIT_KINDS];
    clt_limits limits; /* the best that were measured */
};

static clt_status enqueue(void *user)
{
    const clt_limit_kernel *k = user;
    CLT_CL(clEnqueueNDRangeKernel(k->device->queue, k->kernel, 1, NULL, &k->global, &k->local, 0,
                                  NULL, NULL),
           "clEnqueueNDRangeKernel", k->device);
    return CLT_OK;
}

/* Takes the best of several blocks. A limit measured in a disturbed moment would flatter all
 * kernels. */
static clt_status measure_best(clt_limit_kernel *k, int blocks, double *rate)
{
    clt_timing timing;
    CLT_TRY(clt_time_calls(k->device, enqueue, k, blocks, 0.03, &timing));
    *rate = k->work / timing.least;
    return CLT_OK;
}

/* The number of chains is large enough to hide the latency of a fused multiply-add, and small
 * enough to stay in registers. */
static clt_status make_fma(clt_device *device, cl_mem buffer, clt_limit_kernel *k)
{
    const bool cpu = clt_caps_is_cpu(&device->caps);
    const int width = cpu ? device->caps.vector_width : 1, chains = cpu ? 12 : 8;
    const cl_int rounds = cpu ? 2000 : 1000;
    k->device = device;
    k->local = cpu ? 1 : 256;
    k->global = (size_t)device->caps.compute_units * (cpu ? 8 : 2048);
    k->work = 2.0 * chains * width * 16 * rounds * (double)k->global;
    char options[64];
    snprintf(options, sizeof options, "-DVW=%d -DCHAINS=%d -DCPU=%d -DAHEAD=0", width, chains, cpu);
    CLT_TRY(clt_device_kernel(device, "bench/limits.cl", options, "clt_fma_peak", &k->kernel));
    CLT_CL(clSetKernelArg(k->kernel, 0, sizeof buffer, &buffer), "clSetKernelArg", device);
    CLT_CL(clSetKernelArg(k->kernel, 1, sizeof rounds, &rounds), "clSetKernelArg", device);
    return CLT_OK;
}

/* Makes a kernel that copies (or exchanges) and prefetches `ahead` floats ahead. */
static clt_status make_copy(const clt_meter *m, clt_limit_kind kind, int ahead, clt_limit_kernel *k)
{
    clt_device *device = m->device;
    const bool cpu = clt_caps_is_cpu(&device->caps);
    const int width = cpu ? device->caps.vector_width : 4;
    const size_t vectors = COPY_BYTES / sizeof(float) / (size_t)width;
    k->device = device;
    k->local = cpu ? 1 : 256;
    k->global = cpu ? (size_t)device->caps.compute_units * 16 : vectors / 4;
    k->work = (kind == CLT_LIMIT_COPY ? 2.0 : 4.0) * COPY_BYTES;
    /* Chunks of equal size must cover everything. */
    while (vectors % k->global)
        k->global--;
    const cl_int chunk = (cl_int)(vectors / k->global);
    char options[64];
    snprintf(options, sizeof options, "-DVW=%d -DCHAINS=1 -DCPU=%d -DAHEAD=%d", width, cpu, ahead);
    CLT_TRY(clt_device_kernel(device, "bench/limits.cl", options,
                              kind == CLT_LIMIT_COPY ? "clt_copy" : "clt_exchange", &k->kernel));
    CLT_CL(clSetKernelArg(k->kernel, 0, sizeof m->from, &m->from), "clSetKernelArg", device);
    CLT_CL(clSetKernelArg(k->kernel, 1, sizeof m->to, &m->to), "clSetKernelArg", device);
    CLT_CL(clSetKernelArg(k->kernel, 2, sizeof chunk, &chunk), "clSetKernelArg", device);
    return CLT_OK;
}

static void release(clt_limit_kernel *k)
{
    if (k->kernel)
        clt_release_kernel(k->kernel);
    *k = (clt_limit_kernel){0};
}

/* Keeps the faster of two kernels, with and without prefetching. Where memory has a high latency, a
 * processor's own prefetching reaches only half of its rate. */
static clt_status measure_memory(clt_meter *m, int blocks, clt_limit_kind kind, double *best)
{
    clt_limit_kernel *kept = &m->kernels[kind], other = {0};
    double rate = 0;
    CLT_TRY(make_copy(m, kind, 0, kept));
    CLT_TRY(measure_best(kept, blocks, best));
    if (!(m->device->quirks & CLT_QUIRK_BUILTINS))
        return CLT_OK;
    clt_status status = make_copy(m, kind, AHEAD, &other);
    CLT_NEXT(status, measure_best(&other, blocks, &rate));
    if (status == CLT_OK && rate > *best) {
        const clt_limit_kernel slower = *kept;
        *kept = other;
        other = slower;
        *best = rate;
    }
    release(&other);
    return status;
}

/* Writes the buffer: the driver may otherwise back it with one page of zeros, or with none. */
static clt_status touch(clt_device *device, cl_mem buffer)
{
    const cl_float one = 1;
    CLT_CL(
        clEnqueueFillBuffer(device->queue, buffer, &one, sizeof one, 0, COPY_BYTES, 0, NULL, NULL),
        "clEnqueueFillBuffer", device);
    return CLT_OK;
}

static clt_status measure(clt_meter *m, int blocks)
{
    clt_limit_kernel *fma = &m->kernels[CLT_LIMIT_FLOPS];
    CLT_TRY(clt_device_buffer_create(m->device, COPY_BYTES, CL_MEM_READ_WRITE, "copy's source",
                                     &m->from));
    CLT_TRY(clt_device_buffer_create(m->device, COPY_BYTES, CL_MEM_READ_WRITE, "copy's target",
                                     &m->to));
    CLT_TRY(touch(m->device, m->from));
    CLT_TRY(touch(m->device, m->to));
    CLT_TRY(make_fma(m->device, m->to, fma));
    CLT_TRY(measure_best(fma, blocks, &m->limits.flops));
    CLT_TRY(measure_memory(m, blocks, CLT_LIMIT_COPY, &m->limits.copy_bytes));
    return measure_memory(m, blocks, CLT_LIMIT_UPDATE, &m->limits.update_bytes);
}

clt_status clt_meter_create(clt_device *device, int blocks, clt_meter **meter)
{
    clt_meter *m = clt_calloc(1, sizeof *m);
    CLT_TRY_MEMORY(m);
    m->device = device;
    const clt_status status = measure(m, blocks > 0 && blocks < BLOCKS ? blocks : BLOCKS);
    if (status != CLT_OK) {
        clt_meter_destroy(m);
        return status;
    }
    *meter = m;
    return CLT_OK;
}

clt_limits clt_meter_limits(const clt_meter *meter)
{
    return meter->limits;
}

clt_status clt_meter_rate(const clt_meter *meter, clt_limit_kind kind, double *rate)
{
    clt_limit_kernel kernel = meter->kernels[kind];
    clt_timing timing;
    CLT_TRY(clt_time_calls(meter->device, enqueue, &kernel, 1, 0.02, &timing));
    *rate = kernel.work / timing.median;
    return CLT_OK;
}

void clt_meter_destroy(clt_meter *m)
{
    if (!m)
        return;
    for (int i = 0; i < CLT_LIMIT_KINDS; i++)
        release(&m->kernels[i]);
    if (m->from)
        clt_release_buffer(m->from);
    if (m->to)
        clt_release_buffer(m->to);
    clt_free(m);
}

clt_status clt_device_measure_limits(clt_device *device, int blocks, clt_limits *limits)
{
    clt_meter *meter;
    CLT_TRY(clt_meter_create(device, blocks, &meter));
    *limits = meter->limits;
    clt_meter_destroy(meter);
    return CLT_OK;
}
