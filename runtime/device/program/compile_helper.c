/* What a helper process does: it builds the program of a request, and launches its kernels. */
#ifdef __linux__
#include <malloc.h>
#endif
#include "device/program/compile_helpers.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "device/core/cl.h"

/* A number is at most a vector of a packed launch. */
enum { MOST_BUFFERS = 64, MOST_NUMBER_BYTES = sizeof(cl_long16) };

/* A device is opened at the first request, since most runs find all kernels compiled. */
typedef struct server {
    char platform[128], name[128];
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    const char *at; /* in the request */
} server;

static long long number(server *s)
{
    char *end;
    const long long value = strtoll(s->at, &end, 10);
    s->at = end;
    return value;
}

/* Reads a text after its length. It stays in the request, which *end cuts. */
static char *text(server *s)
{
    const long long bytes = number(s);
    char *begin = (char *)s->at + 1;
    begin[bytes] = '\0';
    s->at = begin + bytes + 1;
    return begin;
}

static bool is_called(cl_device_id id, const char *name)
{
    char found[128] = "";
    return clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof found, found, NULL) == CL_SUCCESS &&
           !strcmp(found, name);
}

static bool find_device(server *s, const char *platform, const char *name)
{
    enum { MOST = 64 };
    cl_platform_id platforms[MOST];
    cl_device_id ids[MOST];
    cl_uint n = 0;
    if (clGetPlatformIDs(MOST, platforms, &n) != CL_SUCCESS)
        return false;
    for (cl_uint p = 0; p < n && p < MOST; p++) {
        char found[128] = "";
        cl_uint count = 0;
        if (clGetPlatformInfo(platforms[p], CL_PLATFORM_NAME, sizeof found, found, NULL) !=
                CL_SUCCESS ||
            strcmp(found, platform) ||
            clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MOST, ids, &count) != CL_SUCCESS)
            continue;
        for (cl_uint i = 0; i < count && i < MOST; i++)
            if (is_called(ids[i], name)) {
                s->device = ids[i];
                return true;
            }
    }
    return false;
}

static bool open_device(server *s, const char *platform, const char *name)
{
    cl_int code = CL_SUCCESS;
    if (s->queue && !strcmp(s->platform, platform) && !strcmp(s->name, name))
        return true;
    if (s->queue || strlen(platform) >= sizeof s->platform || strlen(name) >= sizeof s->name ||
        !find_device(s, platform, name))
        return false;
    strcpy(s->platform, platform);
    strcpy(s->name, name);
    s->context = clCreateContext(NULL, 1, &s->device, NULL, NULL, &code);
    if (code == CL_SUCCESS)
        s->queue = clCreateCommandQueue(s->context, s->device, 0, &code);
    return code == CL_SUCCESS && s->queue;
}

/* Small buffers come from memory that was used before, and kernels read indices from buffers. Large
 * ones are fresh pages, which are zero. */
static cl_mem zeros(const server *s, size_t bytes)
{
    enum { SMALL = 1 << 20 };
    const cl_uint zero = 0;
    cl_int code;
    cl_mem buffer = clCreateBuffer(s->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (code != CL_SUCCESS)
        return NULL;
    if (bytes <= SMALL)
        clEnqueueFillBuffer(s->queue, buffer, &zero, sizeof zero, 0, bytes, 0, NULL, NULL);
    return buffer;
}

static bool set_args(server *s, cl_kernel kernel, cl_mem *buffers, int *n_buffers)
{
    const long long n = number(s);
    bool ok = true;
    for (cl_uint i = 0; i < n; i++) {
        const char kind = s->at[1];
        s->at += 2;
        const long long bytes = number(s);
        if (kind == 'b') {
            cl_mem buffer = *n_buffers < MOST_BUFFERS && bytes ? zeros(s, (size_t)bytes) : NULL;
            ok = ok && (buffer || !bytes) &&
                 clSetKernelArg(kernel, i, sizeof buffer, &buffer) == CL_SUCCESS;
            if (buffer)
                buffers[(*n_buffers)++] = buffer;
            continue;
        }
        unsigned char value[MOST_NUMBER_BYTES];
        for (long long b = 0; b < bytes; b++) {
            const long long byte = number(s);
            if (b < MOST_NUMBER_BYTES)
                value[b] = (unsigned char)byte;
        }
        ok = ok && bytes <= MOST_NUMBER_BYTES &&
             clSetKernelArg(kernel, i, (size_t)bytes, value) == CL_SUCCESS;
    }
    return ok;
}

/* Launches one work-group, which the arguments of the true launch allow. PoCL compiles another
 * version of a kernel for ranges of 65535 work-items and more: such ranges run whole. */
static bool launch_kernel(server *s, cl_program program)
{
    enum { WIDE = 65535 };
    const char *name = text(s);
    size_t global[3] = {1, 1, 1}, local[3] = {0, 0, 0};
    cl_mem buffers[MOST_BUFFERS];
    int n_buffers = 0;
    const int work_dim = (int)number(s);
    bool wide = false;
    for (int d = 0; d < 3; d++)
        global[d] = (size_t)number(s);
    for (int d = 0; d < 3; d++)
        local[d] = (size_t)number(s);
    for (int d = 0; d < work_dim; d++)
        wide = wide || global[d] >= WIDE;
    for (int d = 0; d < work_dim && !wide && local[0]; d++)
        global[d] = local[d];
    cl_int code;
    cl_kernel kernel = clCreateKernel(program, name, &code);
    if (code != CL_SUCCESS)
        return false;
    const bool ok = set_args(s, kernel, buffers, &n_buffers) &&
                    clEnqueueNDRangeKernel(s->queue, kernel, (cl_uint)work_dim, NULL, global,
                                           local[0] ? local : NULL, 0, NULL, NULL) == CL_SUCCESS;
    clFinish(s->queue);
    for (int i = 0; i < n_buffers; i++)
        clReleaseMemObject(buffers[i]);
    clReleaseKernel(kernel);
    return ok;
}

static bool serve(server *s)
{
    const char *platform = text(s), *name = text(s), *options = text(s), *source = text(s);
    cl_int code;
    if (!open_device(s, platform, name))
        return false;
    cl_program program = clCreateProgramWithSource(s->context, 1, &source, NULL, &code);
    if (code != CL_SUCCESS)
        return false;
    bool ok = clBuildProgram(program, 1, &s->device, options, NULL, NULL) == CL_SUCCESS;
    const long long n = number(s);
    for (long long i = 0; i < n && ok; i++)
        ok = launch_kernel(s, program);
    clReleaseProgram(program);
    return ok;
}

void clt_helper_run(int socket)
{
    server s = {.queue = NULL};
    uint64_t bytes;
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* keeps large buffers fresh pages, see `zeros` */
#endif
    while (clt_helper_read(socket, &bytes, sizeof bytes)) {
        char *request = clt_alloc(bytes);
        if (!request || !clt_helper_read(socket, request, bytes))
            return;
        s.at = request;
        const char answer = serve(&s) ? CLT_HELPER_DONE : CLT_HELPER_FAILED;
        clt_free(request);
        if (!clt_helper_write(socket, &answer, 1))
            return;
    }
}
