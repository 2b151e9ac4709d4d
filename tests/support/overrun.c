/* Deliberate errors that the Oclgrind gate must find. Writes 16 numbers into a buffer of 16 numbers
 * (argument 16) or fewer. With the argument "race" all work-items write the same place. With
 * "stores" a kernel reads a buffer that the host wrote, filled and copied to in parts; with
 * "unwritten" one part is left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CL/cl.h>

static const char source[] = "kernel void fill(global int *out) { out[get_global_id(0)] = 1; }\n"
                             "kernel void race(global int *out) { out[0] = get_global_id(0); }\n"
                             "kernel void read(global int *out, global const int *in) {\n"
                             "    out[get_global_id(0)] = in[get_global_id(0)];\n"
                             "}\n";

static void must(cl_int status, const char *what)
{
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s: %d\n", what, status);
        exit(3);
    }
}

/* Returns a buffer of 16 numbers of which the host stored all, or all but the last four. */
static cl_mem stored_in_parts(cl_context context, cl_command_queue queue, int all)
{
    const cl_int numbers[16] = {1}, two = 2;
    const size_t part = 4 * sizeof(cl_int);
    cl_int status;
    cl_mem in = clCreateBuffer(context, CL_MEM_READ_WRITE, 4 * part, NULL, &status);
    must(status, "clCreateBuffer");
    cl_mem other = clCreateBuffer(context, CL_MEM_READ_WRITE, 4 * part, NULL, &status);
    must(status, "clCreateBuffer");
    must(clEnqueueWriteBuffer(queue, other, CL_TRUE, 0, 4 * part, numbers, 0, NULL, NULL),
         "clEnqueueWriteBuffer");
    must(clEnqueueWriteBuffer(queue, in, CL_TRUE, 0, part, numbers, 0, NULL, NULL),
         "clEnqueueWriteBuffer");
    must(clEnqueueWriteBuffer(queue, in, CL_TRUE, part + 2, 2, numbers, 0, NULL, NULL),
         "clEnqueueWriteBuffer");
    must(clEnqueueFillBuffer(queue, in, &two, sizeof two, part, part, 0, NULL, NULL),
         "clEnqueueFillBuffer");
    must(clEnqueueCopyBuffer(queue, other, in, part, 2 * part, part, 0, NULL, NULL),
         "clEnqueueCopyBuffer");
    if (all)
        must(clEnqueueFillBuffer(queue, in, &two, sizeof two, 3 * part, part, 0, NULL, NULL),
             "clEnqueueFillBuffer");
    must(clFinish(queue), "clFinish");
    clReleaseMemObject(other);
    return in;
}

int main(int argc, char **argv)
{
    const char *argument = argc > 1 ? argv[1] : "16";
    int race = strcmp(argument, "race") == 0, all = strcmp(argument, "stores") == 0;
    int reads = all || strcmp(argument, "unwritten") == 0;
    size_t room = race || reads ? 16 : (size_t)atoi(argument), global = 16;
    const char *text = source;
    cl_platform_id platform;
    cl_device_id device;
    cl_int status;
    must(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    must(status, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    must(status, "clCreateCommandQueue");
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &status);
    must(status, "clCreateProgramWithSource");
    must(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    cl_kernel kernel = clCreateKernel(program, race ? "race" : reads ? "read" : "fill", &status);
    must(status, "clCreateKernel");
    cl_mem out = clCreateBuffer(context, CL_MEM_READ_WRITE, room * sizeof(cl_int), NULL, &status);
    must(status, "clCreateBuffer");
    must(clSetKernelArg(kernel, 0, sizeof(out), &out), "clSetKernelArg");
    cl_mem in = reads ? stored_in_parts(context, queue, all) : NULL;
    if (reads)
        must(clSetKernelArg(kernel, 1, sizeof(in), &in), "clSetKernelArg");
    must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL),
         "clEnqueueNDRangeKernel");
    must(clFinish(queue), "clFinish");
    if (reads)
        clReleaseMemObject(in);
    clReleaseMemObject(out);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return 0;
}
