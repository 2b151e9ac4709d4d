/* CLBlast products use the parameters that they ask for, even if others use the device too. */
#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "device/discover/clblast.h"
#include "ops/harness/settled.h"
#include "support/devices.h"

enum { M = 67, N = 130, K = 41, LARGE = 3 };

static clt_runtime *runtime;
static clt_device **devices;
static int count;
static clt_caps gpu; /* the device's limits, as those of a GPU */

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

/* Of the library's file: its size and its time. */
static uint64_t library_hash(void)
{
    struct link_map *map;
    struct stat file;
    void *handle = dlopen("libclblast.so.1", RTLD_NOW);
    assert_non_null(handle);
    assert_int_equal(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
    assert_int_equal(stat(map->l_name, &file), 0);
    dlclose(handle);
    const int64_t parts[] = {file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec};
    return clt_hash(parts, sizeof parts, 0);
}

static int set_up(void **state)
{
    (void)state;
    clt_runtime_options settings;
    clt_runtime_options_init(&settings);
    settings.cache_dir = "";
    if (clt_runtime_create(&settings, &runtime) != CLT_OK ||
        clt_devices_open(runtime, clt_test_devices("pocl"), NULL, &devices, &count) != CLT_OK)
        return -1;
    op_settled_read(devices[0]->identity ^ library_hash());
    gpu = devices[0]->caps;
    gpu.kind = CLT_KIND_GPU;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    op_settled_write();
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    return 0;
}

/* A product A[m, K] B[K, N]. Each operand lies behind other data in its buffer. */
typedef struct product {
    clt_device *device;
    clt_clblast_gemm gemm;
    float *a, *b, *c;
    clt_status status;
} product;

enum { BEFORE = 64 };

static cl_mem buffer(const clt_device *device, float *data, size_t floats)
{
    cl_int code;
    cl_mem made = clCreateBuffer(device->context, CL_MEM_COPY_HOST_PTR,
                                 (BEFORE + floats) * sizeof *data, data, &code);
    assert_int_equal(code, CL_SUCCESS);
    return made;
}

static float *numbers(size_t floats, unsigned seed)
{
    float *made = malloc((BEFORE + floats) * sizeof *made);
    assert_non_null(made);
    for (size_t i = 0; i < BEFORE + floats; i++) {
        seed = seed * 1664525u + 1013904223u;
        made[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
    }
    return made;
}

static void open_product(product *p, clt_device *device, int64_t m, bool packed)
{
    *p = (product){.device = device,
                   .gemm = {.m = m,
                            .n = N,
                            .k = K,
                            .lda = K,
                            .ldb = N,
                            .pairs = 1,
                            .packed = packed,
                            .a_offset = BEFORE,
                            .b_offset = BEFORE,
                            .c_offset = BEFORE},
                   .a = numbers((size_t)m * K, 1),
                   .b = numbers((size_t)K * N, 2),
                   .c = numbers((size_t)m * N, 3)};
    p->gemm.a = buffer(device, p->a, (size_t)m * K);
    p->gemm.b = buffer(device, p->b, (size_t)K * N);
    p->gemm.c = buffer(device, p->c, (size_t)m * N);
    for (clt_blas_kernel kernel = 0; kernel < CLT_BLAS_KERNELS; kernel++)
        assert_true(clt_blas_set_choice(kernel, 0, &gpu, &p->gemm.sets[kernel]));
}

static void close_product(product *p)
{
    clReleaseMemObject(p->gemm.a);
    clReleaseMemObject(p->gemm.b);
    clReleaseMemObject(p->gemm.c);
    free(p->a);
    free(p->b);
    free(p->c);
}

/* Compares with sums in double. Data before the result must not change. */
static void check(product *p)
{
    const size_t floats = (size_t)p->gemm.m * N;
    float *got = malloc((BEFORE + floats) * sizeof *got);
    assert_non_null(got);
    ok(clt_clblast_enqueue(p->device, &p->gemm, NULL));
    assert_int_equal(clEnqueueReadBuffer(p->device->queue, p->gemm.c, CL_TRUE, 0,
                                         (BEFORE + floats) * sizeof *got, got, 0, NULL, NULL),
                     CL_SUCCESS);
    assert_memory_equal(got, p->c, BEFORE * sizeof *got);
    for (int64_t i = 0; i < p->gemm.m; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += (double)p->a[BEFORE + i * K + k] * (double)p->b[BEFORE + k * N + j];
            const double difference = fabs(sum - (double)got[BEFORE + i * N + j]);
            if (!(difference < 1e-5))
                fail_msg("row %d, column %d: %g instead of %g", (int)i, (int)j,
                         (double)got[BEFORE + i * N + j], sum);
        }
    free(got);
}

/* CLBlast compiles its kernels anew in each process. Returns whether the function was right before,
 * with the same code, library and driver. */
static bool was_right(const char *function)
{
    return op_is_settled(clt_hash_text(function, op_settled.code));
}

static void is_right(const char *function)
{
    op_settle(clt_hash_text(function, op_settled.code));
}

static void every_set_is_right(void **state)
{
    const bool settled = was_right(__func__);
    (void)state;
    for (clt_blas_kernel kernel = 0; kernel < CLT_BLAS_KERNELS; kernel++) {
        product p;
        int index = 0;
        open_product(&p, devices[0], M, kernel == CLT_BLAS_PACKED);
        for (; clt_blas_set_choice(kernel, index, &gpu, &p.gemm.sets[kernel]); index++) {
            const uint64_t key =
                clt_hash(p.gemm.sets, sizeof p.gemm.sets, op_settled.code + (uint64_t)kernel);
            if (!op_is_settled(key))
                check(&p);
            op_settle(key);
        }
        assert_true(index > 3);
        /* The previous parameters work again. */
        assert_true(clt_blas_set_choice(kernel, 0, &gpu, &p.gemm.sets[kernel]));
        if (!settled)
            check(&p);
        close_product(&p);
    }
    is_right(__func__);
}

/* Large products are packed and small ones direct, then the other way round. */
static void products_alternate(void **state)
{
    const bool settled = was_right(__func__);
    (void)state;
    for (int packed = 0; packed < 2 && !settled; packed++) {
        product small, large;
        open_product(&small, devices[0], M, !packed);
        open_product(&large, devices[0], (int64_t)M * LARGE, packed);
        for (int round = 0; round < 3; round++) {
            check(&small);
            check(&large);
        }
        close_product(&small);
        close_product(&large);
    }
    is_right(__func__);
}

static void *run(void *user)
{
    product *p = user;
    for (int i = 0; i < 50 && p->status == CLT_OK; i++)
        p->status = clt_clblast_enqueue(p->device, &p->gemm, NULL);
    clFinish(p->device->queue);
    return NULL;
}

/* Two threads use different kernels at the same time. Each has its own clt_device of one OpenCL
 * device. */
static void others_do_not_disturb(void **state)
{
    (void)state;
    clt_device **more;
    int n_more;
    pthread_t thread;
    product p, q;
    ok(clt_devices_open(runtime, clt_test_devices("pocl"), NULL, &more, &n_more));
    assert_ptr_equal(more[0]->id, devices[0]->id);
    open_product(&p, devices[0], M, false);
    open_product(&q, more[0], M, true);
    check(&p);
    check(&q);
    assert_int_equal(pthread_create(&thread, NULL, run, &p), 0);
    run(&q);
    pthread_join(thread, NULL);
    ok(p.status);
    ok(q.status);
    check(&p);
    check(&q);
    close_product(&p);
    close_product(&q);
    clt_devices_close(more, n_more);
}

/* A set with work-groups that are too large for the device is an error, and later products are not
 * affected. */
static void a_refused_set_is_an_error(void **state)
{
    (void)state;
    product p;
    open_product(&p, devices[0], M, false);
    const clt_blas_set right = p.gemm.sets[CLT_BLAS_DIRECT];
    /* CLBlast checks the work-group before it compiles, but does not reject numbers that are not
     * its own. */
    if (devices[0]->caps.max_work_group < 128 * 128) {
        p.gemm.sets[CLT_BLAS_DIRECT] = (clt_blas_set){{2, 128, 128, 128, 128, 1, 1, 1, 1, 128}};
        assert_false(clt_blas_set_fits(CLT_BLAS_DIRECT, &p.gemm.sets[CLT_BLAS_DIRECT], &gpu));
        assert_int_equal(clt_clblast_enqueue(p.device, &p.gemm, NULL), CLT_OPENCL);
        assert_non_null(strstr(clt_error_message(), "CLBlast"));
    }
    p.gemm.sets[CLT_BLAS_DIRECT] = right;
    check(&p);
    close_product(&p);
}

int main(void)
{
    if (!clt_clblast_found()) {
        puts("libclblast.so.1 was not found");
        return 77;
    }
    if (!strcmp(clt_test_devices("pocl"), "pocl")) {
        puts("PoCL takes a minute to compile each set's program: it runs the first one in "
             "ops.matmul");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_is_right),
        cmocka_unit_test(products_alternate),
        cmocka_unit_test(others_do_not_disturb),
        cmocka_unit_test(a_refused_set_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
