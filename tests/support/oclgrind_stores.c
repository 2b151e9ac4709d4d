/* Makes Oclgrind's check for uninitialised values right where the host stores to parts of buffers
 * (tools/oclgrind.sh loads it before Oclgrind's library). Oclgrind 21.10 records which bytes of a
 * buffer are initialised. A write or copy by the host replaces the whole record by one of the
 * stored size, and a fill does so once for each repetition of its pattern. Later reads outside the
 * new record are reported. The record of a released buffer also stays for the next buffer in its
 * place. Here kernels do these stores, and buffers are never released. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <CL/cl.h>

#define REAL(function, name)                                                                       \
    __typeof__(&(function)) name = (__typeof__(&(function)))dlsym(RTLD_NEXT, #function)
enum { MOST_CONTEXTS = 64 };

static const char source[] =
    "kernel void store_bytes(global uchar *to, ulong at, global const uchar *from, ulong first,\n"
    "                        ulong period) {\n"
    "    const ulong i = get_global_id(0);\n"
    "    to[at + i] = from[first + i % period];\n"
    "}\n"
    "kernel void store_words(global uint *to, ulong at, global const uint *from, ulong first,\n"
    "                        ulong period) {\n"
    "    const ulong i = get_global_id(0);\n"
    "    to[at + i] = from[first + i % period];\n"
    "}\n";

typedef struct part {
    cl_mem buffer;
    size_t offset;
} part;

typedef struct waiting {
    cl_uint n;
    const cl_event *events;
} waiting;

static void check(cl_int code, const char *what)
{
    if (code == CL_SUCCESS)
        return;
    fprintf(stderr, "oclgrind_stores: %s fails with %d\n", what, code);
    abort();
}

static cl_program program_of(cl_context context)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        cl_context context;
        cl_program program;
    } built[MOST_CONTEXTS];
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < MOST_CONTEXTS && built[i].program && built[i].context != context)
        i++;
    check(i < MOST_CONTEXTS ? CL_SUCCESS : CL_OUT_OF_RESOURCES, "a program for another context");
    if (!built[i].program) {
        const char *text = source;
        cl_int code;
        check(clRetainContext(context), "clRetainContext");
        built[i].context = context;
        built[i].program = clCreateProgramWithSource(context, 1, &text, NULL, &code);
        check(code, "clCreateProgramWithSource");
        check(clBuildProgram(built[i].program, 0, NULL, "", NULL, NULL), "clBuildProgram");
    }
    pthread_mutex_unlock(&lock);
    return built[i].program;
}

static cl_context context_of(cl_command_queue queue)
{
    cl_context context;
    check(clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL),
          "clGetCommandQueueInfo");
    return context;
}

/* Stores `bytes` of `from`, again from its begin after each `period` bytes. */
static cl_int store(cl_command_queue queue, part to, part from, size_t period, size_t bytes,
                    waiting wait, cl_event *event)
{
    const size_t size = (to.offset | from.offset | period | bytes) % 4 ? 1 : 4;
    const cl_ulong at = to.offset / size, first = from.offset / size, repeat = period / size;
    const size_t count = bytes / size;
    cl_int code;
    cl_kernel kernel = clCreateKernel(program_of(context_of(queue)),
                                      size == 4 ? "store_words" : "store_bytes", &code);
    check(code, "clCreateKernel");
    check(clSetKernelArg(kernel, 0, sizeof to.buffer, &to.buffer), "clSetKernelArg");
    check(clSetKernelArg(kernel, 1, sizeof at, &at), "clSetKernelArg");
    check(clSetKernelArg(kernel, 2, sizeof from.buffer, &from.buffer), "clSetKernelArg");
    check(clSetKernelArg(kernel, 3, sizeof first, &first), "clSetKernelArg");
    check(clSetKernelArg(kernel, 4, sizeof repeat, &repeat), "clSetKernelArg");
    code = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, wait.n, wait.events, event);
    clReleaseKernel(kernel);
    return code;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code)
{
    REAL(clCreateBuffer, create);
    cl_mem buffer = create(context, flags, size, host, code);
    if (buffer)
        clRetainMemObject(buffer);
    return buffer;
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                            size_t size, const void *host, cl_uint n_wait, const cl_event *wait,
                            cl_event *event)
{
    REAL(clEnqueueWriteBuffer, write);
    size_t whole;
    if (clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof whole, &whole, NULL) != CL_SUCCESS ||
        (!offset && size == whole) || !size || offset > whole || size > whole - offset)
        return write(queue, buffer, blocking, offset, size, host, n_wait, wait, event);
    cl_int code;
    cl_mem staged = clCreateBuffer(context_of(queue), CL_MEM_READ_ONLY, size, NULL, &code);
    check(code, "clCreateBuffer");
    cl_event written;
    code = write(queue, staged, CL_FALSE, 0, size, host, n_wait, wait, &written);
    if (code == CL_SUCCESS) {
        code = store(queue, (part){buffer, offset}, (part){staged, 0}, size, size,
                     (waiting){1, &written}, event);
        clReleaseEvent(written);
    }
    clReleaseMemObject(staged);
    return code == CL_SUCCESS && blocking ? clFinish(queue) : code;
}

cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void *pattern, size_t size,
                           size_t offset, size_t bytes, cl_uint n_wait, const cl_event *wait,
                           cl_event *event)
{
    cl_int code;
    cl_mem staged = clCreateBuffer(context_of(queue), CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, size,
                                   (void *)pattern, &code);
    check(code, "clCreateBuffer");
    code = store(queue, (part){buffer, offset}, (part){staged, 0}, size, bytes,
                 (waiting){n_wait, wait}, event);
    clReleaseMemObject(staged);
    return code;
}

cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset,
                           size_t to_offset, size_t bytes, cl_uint n_wait, const cl_event *wait,
                           cl_event *event)
{
    return store(queue, (part){to, to_offset}, (part){from, from_offset}, bytes, bytes,
                 (waiting){n_wait, wait}, event);
}
