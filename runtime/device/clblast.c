#include "device/clblast.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define SONAME "libclblast.so.1"

/* Of clblast_c.h, which a build without CLBlast lacks. */
enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112, PRECISION_SINGLE = 32 };

typedef int (*sgemm_function)(int layout, int trans_a, int trans_b, size_t m, size_t n, size_t k,
                              float alpha, cl_mem a, size_t a_offset, size_t lda, cl_mem b,
                              size_t b_offset, size_t ldb, float beta, cl_mem c, size_t c_offset,
                              size_t ldc, cl_command_queue *queue, cl_event *event, cl_mem packing);
typedef int (*batched_function)(int layout, int trans_a, int trans_b, size_t m, size_t n, size_t k,
                                float alpha, cl_mem a, size_t a_offset, size_t lda, size_t a_step,
                                cl_mem b, size_t b_offset, size_t ldb, size_t b_step, float beta,
                                cl_mem c, size_t c_offset, size_t ldc, size_t c_step, size_t count,
                                cl_command_queue *queue, cl_event *event);
typedef int (*override_function)(cl_device_id device, const char *kernel, int precision,
                                 size_t count, const char **names, const size_t *values);

static struct {
    bool found;
    sgemm_function sgemm;
    batched_function batched;
    override_function override;
} library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* dlsym gives data pointers; ISO C has no conversion to functions. */
static bool find(void *handle, const char *name, void *function)
{
    void *symbol = dlsym(handle, name);
    if (symbol)
        memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void open_library(void)
{
    void *handle = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return;
    library.found = find(handle, "CLBlastSgemmWithTempBuffer", &library.sgemm) &&
                    find(handle, "CLBlastSgemmStridedBatched", &library.batched) &&
                    find(handle, "CLBlastOverrideParameters", &library.override);
    if (!library.found)
        dlclose(handle);
}

bool clt_clblast_found(void)
{
    pthread_once(&once, open_library);
    return library.found;
}

/* Codes above -1000 are OpenCL's own; CLBlast adds some below. */
static clt_status fail(int code, const char *call, const clt_device *device)
{
    if (code > -1000)
        return clt_cl_fail(code, call, device);
    return clt_fail(CLT_OPENCL, "%s failed on %s: status %d of CLBlast", call, device->label, code);
}

/* CLBlast takes its direct kernels below a size of its own; here the choice is the caller's. */
static clt_status choose_kernels(clt_device *device, bool packed)
{
    const int wanted = packed ? 1 : 2;
    if (device->clblast_kernels == wanted)
        return CLT_OK;
    const char *name = "XGEMM_MIN_INDIRECT_SIZE";
    const size_t least = packed ? 0 : 1 << 20; /* its cube is compared with m n k */
    const int code =
        library.override(device->id, "GemmRoutine", PRECISION_SINGLE, 1, &name, &least);
    if (code)
        return fail(code, "CLBlastOverrideParameters", device);
    device->clblast_kernels = wanted;
    return CLT_OK;
}

static clt_status enqueue_zeros(clt_device *device, const clt_clblast_gemm *g, cl_event *event)
{
    const float zero = 0;
    CLT_CL(clEnqueueFillBuffer(device->queue, g->c, &zero, sizeof zero,
                               (size_t)g->c_offset * sizeof zero,
                               (size_t)(g->pairs * g->m * g->n) * sizeof zero, 0, NULL, event),
           "clEnqueueFillBuffer", device);
    return CLT_OK;
}

static clt_status enqueue_one(clt_device *device, const clt_clblast_gemm *g, cl_event *event)
{
    cl_mem packing = NULL;
    cl_int code = CL_SUCCESS;
    if (g->packed && g->packing) {
        const cl_buffer_region region = {(size_t)g->packing_offset, (size_t)g->packing_bytes};
        packing = clCreateSubBuffer(g->packing, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                    &region, &code);
        CLT_CL(code, "clCreateSubBuffer", device);
    }
    code =
        library.sgemm(ROW_MAJOR, g->trans_a ? TRANSPOSED : AS_IS, g->trans_b ? TRANSPOSED : AS_IS,
                      (size_t)g->m, (size_t)g->n, (size_t)g->k, 1, g->a, (size_t)g->a_offset,
                      (size_t)g->lda, g->b, (size_t)g->b_offset, (size_t)g->ldb, 0, g->c,
                      (size_t)g->c_offset, (size_t)g->n, &device->queue, event, packing);
    if (packing)
        clReleaseMemObject(packing); /* the commands hold it until they have run */
    return code ? fail(code, "CLBlastSgemm", device) : CLT_OK;
}

clt_status clt_clblast_enqueue(clt_device *device, const clt_clblast_gemm *g, cl_event *event)
{
    if (!clt_clblast_found())
        return clt_fail(CLT_UNSUPPORTED, "%s was not found (Debian: libclblast1)", SONAME);
    if (!g->k)
        return enqueue_zeros(device, g, event);
    CLT_TRY(choose_kernels(device, g->packed));
    if (g->pairs == 1)
        return enqueue_one(device, g, event);
    const int code = library.batched(
        ROW_MAJOR, g->trans_a ? TRANSPOSED : AS_IS, g->trans_b ? TRANSPOSED : AS_IS, (size_t)g->m,
        (size_t)g->n, (size_t)g->k, 1, g->a, (size_t)g->a_offset, (size_t)g->lda, (size_t)g->a_step,
        g->b, (size_t)g->b_offset, (size_t)g->ldb, (size_t)g->b_step, 0, g->c, (size_t)g->c_offset,
        (size_t)g->n, (size_t)(g->m * g->n), (size_t)g->pairs, &device->queue, event);
    return code ? fail(code, "CLBlastSgemmStridedBatched", device) : CLT_OK;
}
