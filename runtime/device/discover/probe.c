#include "device/discover/probe.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "device/program/program.h"

static const char half_text[] = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
                                "kernel void half_probe(global float *x)\n"
                                "{\n"
                                "    const size_t i = get_global_id(0);\n"
                                "    const half a = (half)x[i];\n"
                                "    x[i] = (float)fma(a, (half)2.0f, (half)0.25f);\n"
                                "}\n";

enum { COUNT = 4 };

/* The last result, 2 * 1024 + 0.25, is rounded, because half has 11 bits. */
static const float given[COUNT] = {1.5f, -0.125f, 0.0f, 1024.0f};
static const float wanted[COUNT] = {3.25f, 0.0f, 0.25f, 2048.0f};

static clt_status run(clt_device *device, cl_kernel kernel, cl_mem buffer, float *out)
{
    const size_t global = COUNT;
    CLT_CL(
        clEnqueueWriteBuffer(device->queue, buffer, CL_TRUE, 0, sizeof given, given, 0, NULL, NULL),
        "clEnqueueWriteBuffer", device);
    CLT_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), "clSetKernelArg", device);
    CLT_CL(clEnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL),
           "clEnqueueNDRangeKernel", device);
    CLT_CL(clEnqueueReadBuffer(device->queue, buffer, CL_TRUE, 0, sizeof given, out, 0, NULL, NULL),
           "clEnqueueReadBuffer", device);
    return CLT_OK;
}

/* The compiler's own macros choose the kernel's name, so nothing has to run. */
static const char width_text[] = "#if defined(__AVX512F__)\n"
                                 "#define NAME width_16\n"
                                 "#elif defined(__AVX__)\n"
                                 "#define NAME width_8\n"
                                 "#elif defined(__SSE__)\n"
                                 "#define NAME width_4\n"
                                 "#else\n"
                                 "#define NAME width_unknown\n"
                                 "#endif\n"
                                 "kernel void NAME(global float *x)\n"
                                 "{\n"
                                 "    x[0] = 0.0f;\n"
                                 "}\n";

void clt_probe_width(clt_device *device)
{
    if (!(device->quirks & CLT_QUIRK_HOST_WIDTH) || !clt_caps_is_cpu(&device->caps))
        return;
    /* Without these settings PoCL compiles for the host, and the reported width is right. */
    if (!getenv("POCL_LLVM_CPU_NAME") && !getenv("POCL_KERNELLIB_NAME"))
        return;
    cl_program program;
    if (clt_program_build(device, "width probe", width_text, "", &program) != CLT_OK)
        return;
    for (int width = device->caps.vector_width; width >= 4; width /= 2) {
        char name[32];
        snprintf(name, sizeof name, "width_%d", width);
        cl_kernel kernel = clCreateKernel(program, name, NULL);
        if (!kernel)
            continue;
        clReleaseKernel(kernel);
        if (width < 16 && device->caps.vector_width == 16)
            device->caps.vector_registers /= 2; /* AVX-512 doubles their number */
        device->caps.vector_width = width;
        device->info.vector_width = width;
        break;
    }
    clReleaseProgram(program);
    clt_object_released(CLT_OBJECT_PROGRAM);
}

void clt_probe_half(clt_device *device)
{
    if (!device->caps.fp16)
        return;
    float got[COUNT] = {0};
    cl_kernel kernel = NULL;
    cl_mem buffer = NULL;
    clt_status status =
        clt_device_kernel_from_text(device, "half probe", half_text, NULL, "half_probe", &kernel);
    CLT_NEXT(status, clt_device_buffer_create_raw(device, sizeof given, CL_MEM_READ_WRITE,
                                                  "half probe", &buffer));
    CLT_NEXT(status, run(device, kernel, buffer, got));
    bool right = status == CLT_OK;
    for (int i = 0; i < COUNT; i++)
        right = right && got[i] == wanted[i];
    clt_release_kernel(kernel);
    clt_release_buffer(buffer);
    if (right)
        return;
    clt_log(CLT_LOG_WARN, "%s claims half precision, but %s: not used", device->label,
            status == CLT_OK ? "computes it wrongly" : clt_error_message());
    device->caps.fp16 = false;
    device->info.fp16 = 0;
}
