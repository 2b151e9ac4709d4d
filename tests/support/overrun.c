/* Deliberate errors that the Oclgrind gate must find. Writes 16 numbers into a buffer of 16 numbers
 * (argument 16) or fewer. With the argument "race" all work-items write the same place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CL/cl.h>

static const char source[] = "kernel void fill(global int *out) { out[get_global_id(0)] = 1; }\n"
                             "kernel void race(global int *out) { out[0] = get_global_id(0); }\n";

static void must(cl_int status, const char *what)
{
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s: %d\n", what, status);
        exit(3);
    }
}

int main(int argc, char **argv)
{
    const char *argument = argc > 1 ? argv[1] : "16";
    int race = strcmp(argument, "race") == 0;
    size_t room = race ? 16 : (size_t)atoi(argument), global = 16;
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
    cl_kernel kernel = clCreateKernel(program, race ? "race" : "fill", &status);
    must(status, "clCreateKernel");
    cl_mem out = clCreateBuffer(context, CL_MEM_READ_WRITE, room * sizeof(cl_int), NULL, &status);
    must(status, "clCreateBuffer");
    must(clSetKernelArg(kernel, 0, sizeof(out), &out), "clSetKernelArg");
    must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL),
         "clEnqueueNDRangeKernel");
    must(clFinish(queue), "clFinish");
    clReleaseMemObject(out);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return 0;
}
