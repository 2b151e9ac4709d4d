/* The kernels that reduce on devices, and their memory. */
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"
#include "comm/core/reduction.h"
#include "comm/transports/peer.h"
#include "device/core/cl.h"
#include "device/program/program.h"

/* Numbers of work-items that keep any device busy. On CPUs each work-item has a contiguous
 * range. */
enum { ITEMS = 65536, CPU_ITEMS = 64 };

clt_status clt_peer_check(const clt_comm *comm, int device, const char *what, cl_int error)
{
    if (error == CL_SUCCESS)
        return CLT_OK;
    return clt_fail(CLT_OPENCL, "comm: %s on device %d (%s) failed: %s (%d)", what, device,
                    comm->members[device].name, clt_cl_code_name(error), error);
}

/* Returns the program of an earlier device of the same kind in the same context, or NULL. */
static cl_program program_of_alike(const clt_comm *comm, int device)
{
    const clt_peer_member *p = &comm->peers->members[device];
    for (int k = 0; k < device; k++) {
        const clt_peer_member *other = &comm->peers->members[k];
        if (comm->members[k].context == comm->members[device].context &&
            other->is_cpu == p->is_cpu && other->has_double == p->has_double)
            return other->program;
    }
    return NULL;
}

/* Builds the program for this device and the later devices that will use it. */
static clt_status build(clt_comm *comm, int device)
{
    const clt_comm_member *m = &comm->members[device];
    clt_peer_member *p = &comm->peers->members[device];
    cl_device_id list[CLT_COMM_MAX_DEVICES];
    cl_uint count = 0;
    char options[128];
    clt_str text = {0};
    cl_int error = CL_SUCCESS;
    for (int k = device; k < comm->count; k++) {
        const clt_peer_member *other = &comm->peers->members[k];
        bool listed = comm->members[k].context != m->context || other->is_cpu != p->is_cpu ||
                      other->has_double != p->has_double;
        for (cl_uint i = 0; i < count; i++)
            listed = listed || list[i] == comm->members[k].device;
        if (!listed)
            list[count++] = comm->members[k].device;
    }
    snprintf(options, sizeof options, "-cl-std=CL1.2 -w -DCPU=%d -DDOUBLE=%d -DLANES=%d", p->is_cpu,
             p->has_double, CLT_REDUCE_LANES);
    clt_status status = clt_source_resolve("comm/reduce.cl", NULL, &text);
    if (status == CLT_OK) {
        const char *source = clt_str_text(&text);
        p->program = clCreateProgramWithSource(m->context, 1, &source, NULL, &error);
        status = clt_peer_check(comm, device, "clCreateProgramWithSource", error);
    }
    clt_str_free(&text);
    CLT_TRY(status);
    clt_object_created(CLT_OBJECT_PROGRAM);
    return clt_peer_check(comm, device, "building comm/reduce.cl",
                          clBuildProgram(p->program, count, list, options, NULL, NULL));
}

static void describe(const clt_comm_member *m, clt_peer_member *p)
{
    cl_device_fp_config doubles = 0;
    cl_device_type type = 0;
    clGetDeviceInfo(m->device, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof doubles, &doubles, NULL);
    clGetDeviceInfo(m->device, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    p->has_double = doubles != 0;
    p->is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
}

static clt_status make(clt_comm *comm, int device, const char *what, clt_dtype dtype,
                       cl_kernel *kernel)
{
    char name[64];
    cl_int error;
    snprintf(name, sizeof name, "clt_comm_%s_%s", what, clt_dtype_name(dtype));
    cl_kernel made = clCreateKernel(comm->peers->members[device].program, name, &error);
    CLT_TRY(clt_peer_check(comm, device, name, error));
    clt_object_created(CLT_OBJECT_KERNEL);
    *kernel = made;
    return CLT_OK;
}

clt_status clt_peer_kernels_open(clt_comm *comm, int device)
{
    clt_peer_member *p = &comm->peers->members[device];
    for (int k = 0; k < comm->count && !device; k++)
        describe(&comm->members[k], &comm->peers->members[k]);
    p->program = program_of_alike(comm, device);
    if (!p->program)
        CLT_TRY(build(comm, device));
    else if (clRetainProgram(p->program) == CL_SUCCESS)
        clt_object_created(CLT_OBJECT_PROGRAM);
    for (int t = 0; t < CLT_PEER_TYPES; t++) {
        const clt_dtype dtype = (clt_dtype)t;
        if (!clt_reduce_for(dtype, dtype) || (dtype == CLT_F64 && !p->has_double))
            continue;
        CLT_TRY(make(comm, device, "reduce", dtype, &p->reduce[t]));
        if (p->has_double)
            CLT_TRY(make(comm, device, "measure", dtype, &p->measure[t]));
    }
    return CLT_OK;
}

void clt_peer_kernels_close(clt_peer_member *p)
{
    for (int t = 0; t < CLT_PEER_TYPES; t++) {
        clt_release_kernel(p->reduce[t]);
        clt_release_kernel(p->measure[t]);
    }
    if (p->program) {
        clReleaseProgram(p->program);
        clt_object_released(CLT_OBJECT_PROGRAM);
    }
    clt_release_buffer(p->others.mem);
    clt_release_buffer(p->result.mem);
    clt_release_buffer(p->partial.mem);
    clt_release_event(p->done);
    clt_free(p->sums);
}

clt_status clt_peer_scratch_reserve(clt_comm *comm, int device, clt_peer_scratch *s, size_t bytes)
{
    cl_int error;
    if (s->bytes >= bytes)
        return CLT_OK;
    cl_mem mem =
        clCreateBuffer(comm->members[device].context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    CLT_TRY(clt_peer_check(comm, device, "memory for exchanges with its peers", error));
    clt_object_created(CLT_OBJECT_BUFFER);
    clt_release_buffer(s->mem);
    *s = (clt_peer_scratch){mem, bytes};
    return CLT_OK;
}

clt_status clt_peer_copy(clt_comm *comm, int from, cl_mem source, size_t source_offset, int to,
                         cl_mem target, size_t target_offset, size_t bytes)
{
    const clt_comm_member *m = &comm->members[to];
    const bool same = comm->members[from].context == m->context;
    const cl_int error = same ? clEnqueueCopyBuffer(m->up, source, target, source_offset,
                                                    target_offset, bytes, 0, NULL, NULL)
                              : comm->peers->copy(m->up, source, target, source_offset,
                                                  target_offset, bytes, 0, NULL, NULL);
    if (error == CL_SUCCESS)
        return CLT_OK;
    return clt_fail(CLT_OPENCL,
                    "comm: a copy from device %d (%s) to device %d (%s) failed: %s (%d)", from,
                    comm->members[from].name, to, m->name, clt_cl_code_name(error), error);
}

typedef struct argument {
    size_t size;
    const void *value;
} argument;

#define ARGUMENT(v)                                                                                \
    (argument)                                                                                     \
    {                                                                                              \
        sizeof(v), &(v)                                                                            \
    }

static clt_status enqueue(clt_comm *comm, int device, cl_kernel kernel, const argument *arguments,
                          int count, size_t items)
{
    for (int i = 0; i < count; i++)
        CLT_TRY(clt_peer_check(
            comm, device, "clSetKernelArg",
            clSetKernelArg(kernel, (cl_uint)i, arguments[i].size, arguments[i].value)));
    return clt_peer_check(comm, device, "a sum",
                          clEnqueueNDRangeKernel(comm->members[device].up, kernel, 1, NULL, &items,
                                                 NULL, 0, NULL, NULL));
}

clt_status clt_peer_reduce(clt_comm *comm, int device, const clt_peer_sum *sum)
{
    const clt_peer_member *p = &comm->peers->members[device];
    const int arrays = sum->before + sum->has_own + sum->after;
    const cl_int before = sum->before, has_own = sum->has_own, after = sum->after;
    const cl_int reduction = (cl_int)sum->reduction, divisor = arrays ? arrays : 1;
    const cl_long own_first = sum->own_first, stride = sum->stride, count = sum->count;
    /* A buffer argument that is not read needs a valid buffer too. */
    const cl_mem own = sum->has_own ? sum->own : p->result.mem;
    const cl_mem others = p->others.mem ? p->others.mem : p->result.mem;
    const argument arguments[] = {ARGUMENT(own),           ARGUMENT(own_first), ARGUMENT(others),
                                  ARGUMENT(stride),        ARGUMENT(before),    ARGUMENT(has_own),
                                  ARGUMENT(after),         ARGUMENT(reduction), ARGUMENT(divisor),
                                  ARGUMENT(p->result.mem), ARGUMENT(count)};
    const size_t most = p->is_cpu ? CPU_ITEMS : ITEMS;
    return enqueue(comm, device, p->reduce[sum->dtype], arguments,
                   sizeof arguments / sizeof *arguments,
                   (size_t)sum->count < most ? (size_t)sum->count : most);
}

clt_status clt_peer_measure(clt_comm *comm, int device, clt_dtype dtype, int64_t count,
                            int64_t piece, int64_t at)
{
    const clt_peer_member *p = &comm->peers->members[device];
    const cl_long elements = count, of_piece = piece, first = at;
    const argument arguments[] = {ARGUMENT(p->result.mem), ARGUMENT(elements), ARGUMENT(of_piece),
                                  ARGUMENT(p->partial.mem), ARGUMENT(first)};
    return enqueue(comm, device, p->measure[dtype], arguments, sizeof arguments / sizeof *arguments,
                   (size_t)((count + piece - 1) / piece * CLT_REDUCE_LANES));
}

void clt_peer_add(const clt_peer_member *p, clt_dtype dtype, int64_t at, int64_t pieces,
                  double *sum_squares, bool *finite)
{
    const double *pair = p->sums + 2 * at;
    for (int64_t i = 0; i < pieces; i++) {
        double squares = 0, odd = 0;
        for (int j = 0; j < CLT_REDUCE_LANES; j++, pair += 2) {
            squares += pair[0];
            odd += pair[1];
        }
        *sum_squares += squares;
        *finite = *finite && (dtype == CLT_F64 ? odd == 0 : isfinite(squares) != 0);
    }
}
