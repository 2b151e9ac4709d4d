#include "device/discover/clblast.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"

#define SONAME "libclblast.so.1"

/* From clblast_c.h, which a build without CLBlast does not have. */
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

/* Finds a function. memcpy, because dlsym returns a data pointer and ISO C has no conversion to a
 * function. */
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

/* Codes above -1000 are OpenCL's own; CLBlast adds lower ones. */
static clt_status fail(int code, const char *call, const clt_device *device)
{
    if (code > -1000)
        return clt_cl_fail(code, call, device);
    return clt_fail(CLT_OPENCL, "%s failed on %s: status %d of CLBlast", call, device->label, code);
}

/* The parameters that CLBlast has for one OpenCL device, which several clt_devices may share. Kept
 * until the process ends, as CLBlast keeps its own. */
typedef struct clt_clblast_state {
    cl_device_id id;
    pthread_mutex_t mutex; /* held from setting parameters to queueing the product */
    bool known;            /* the fields below are CLBlast's state */
    clt_blas_set sets[CLT_BLAS_KERNELS];
    /* Products with m n k below limit^3 go to the direct kernel. `most_direct` is the largest
     * product sent there and `least_packed` the smallest other one, since they were last forgotten
     * because no limit separated them. */
    size_t limit;
    double most_direct, least_packed;
    struct clt_clblast_state *next;
} clt_clblast_state;

static pthread_mutex_t states_mutex = PTHREAD_MUTEX_INITIALIZER;
static clt_clblast_state *states;

static clt_status state_of(clt_device *device, clt_clblast_state **out)
{
    clt_status status = CLT_OK;
    *out = device->clblast;
    if (*out)
        return CLT_OK;
    pthread_mutex_lock(&states_mutex);
    for (*out = states; *out && (*out)->id != device->id;)
        *out = (*out)->next;
    if (!*out && (*out = CLT_NEW(clt_clblast_state)) != NULL) {
        (*out)->id = device->id;
        (*out)->next = states;
        pthread_mutex_init(&(*out)->mutex, NULL);
        states = *out;
    }
    status = *out ? CLT_OK : CLT_OUT_OF_MEMORY;
    pthread_mutex_unlock(&states_mutex);
    device->clblast = *out;
    return status;
}

static clt_status override(clt_device *device, const char *kernel, int count,
                           const char *const *names, const size_t *values)
{
    const char *own[CLT_BLAS_PARAMETERS];
    memcpy(own, names, (size_t)count * sizeof *own);
    const int code =
        library.override(device->id, kernel, PRECISION_SINGLE, (size_t)count, own, values);
    return code ? fail(code, "CLBlastOverrideParameters", device) : CLT_OK;
}

static clt_status set_tiles(clt_device *device, clt_blas_kernel kernel, const clt_blas_set *set)
{
    size_t values[CLT_BLAS_PARAMETERS];
    const char *const *names;
    const int count = clt_blas_parameters(kernel, &names);
    for (int i = 0; i < count; i++)
        values[i] = (size_t)set->values[i];
    return override(device, clt_blas_kernel_name(kernel), count, names, values);
}

static bool goes_direct(double products, size_t limit)
{
    return products < (double)limit * (double)limit * (double)limit;
}

/* Chooses a limit that sends this product and all earlier ones to the kernels they need. The limit
 * should change rarely and have few values, because each change takes time and each value needs
 * another program. */
static size_t limit_for(clt_clblast_state *s, double products, bool packed)
{
    static const size_t always = (size_t)1 << 20, never = 0, between[] = {128, 512};
    if (packed && products < s->least_packed)
        s->least_packed = products;
    if (!packed && products > s->most_direct)
        s->most_direct = products;
    if (s->known && goes_direct(products, s->limit) != packed)
        return s->limit;
    if (s->most_direct < 0)
        return never;
    for (int i = 0; i < 2 && s->least_packed < INFINITY; i++)
        if (goes_direct(s->most_direct, between[i]) && !goes_direct(s->least_packed, between[i]))
            return between[i];
    s->least_packed = packed ? products : INFINITY;
    s->most_direct = packed ? -1 : products;
    return packed ? never : always;
}

/* Sets CLBlast's parameters for the product, where they differ. */
static clt_status prepare(clt_device *device, clt_clblast_state *s, const clt_clblast_gemm *g)
{
    if (!s->known) {
        s->least_packed = INFINITY;
        s->most_direct = -1;
    }
    const double products = (double)g->m * (double)g->n * (double)g->k;
    const size_t limit = limit_for(s, products, g->packed);
    const bool known = s->known, same = known && limit == s->limit;
    s->known = false; /* until all calls have succeeded */
    for (clt_blas_kernel kernel = 0; kernel < CLT_BLAS_KERNELS; kernel++)
        if (!known || memcmp(&s->sets[kernel], &g->sets[kernel], sizeof *s->sets) != 0)
            CLT_TRY(set_tiles(device, kernel, &g->sets[kernel]));
    const char *const name = "XGEMM_MIN_INDIRECT_SIZE";
    if (!same)
        CLT_TRY(override(device, "GemmRoutine", 1, &name, &limit));
    memcpy(s->sets, g->sets, sizeof s->sets);
    s->limit = limit;
    s->known = true;
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
        clReleaseMemObject(packing); /* enqueued commands retain it until they have run */
    return code ? fail(code, "CLBlastSgemm", device) : CLT_OK;
}

static clt_status enqueue_batch(clt_device *device, const clt_clblast_gemm *g, cl_event *event)
{
    const int code = library.batched(
        ROW_MAJOR, g->trans_a ? TRANSPOSED : AS_IS, g->trans_b ? TRANSPOSED : AS_IS, (size_t)g->m,
        (size_t)g->n, (size_t)g->k, 1, g->a, (size_t)g->a_offset, (size_t)g->lda, (size_t)g->a_step,
        g->b, (size_t)g->b_offset, (size_t)g->ldb, (size_t)g->b_step, 0, g->c, (size_t)g->c_offset,
        (size_t)g->n, (size_t)(g->m * g->n), (size_t)g->pairs, &device->queue, event);
    return code ? fail(code, "CLBlastSgemmStridedBatched", device) : CLT_OK;
}

clt_status clt_clblast_enqueue(clt_device *device, const clt_clblast_gemm *g, cl_event *event)
{
    clt_clblast_state *state;
    if (!clt_clblast_found())
        return clt_fail(CLT_UNSUPPORTED, "%s was not found (Debian: libclblast1)", SONAME);
    if (!g->k)
        return enqueue_zeros(device, g, event);
    CLT_TRY(state_of(device, &state));
    pthread_mutex_lock(&state->mutex);
    clt_status status = prepare(device, state, g);
    CLT_NEXT(status,
             g->pairs == 1 ? enqueue_one(device, g, event) : enqueue_batch(device, g, event));
    pthread_mutex_unlock(&state->mutex);
    return status;
}
