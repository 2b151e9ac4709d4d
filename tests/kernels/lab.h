/*
 * Runs kernels of clkernels/ on the first CPU device (otherwise any device) by plain OpenCL calls,
 * without the runtime: building, arguments, launches, timing, and values in batch-blocked layout.
 */
#ifndef CLT_TESTS_KERNELS_LAB_H
#define CLT_TESTS_KERNELS_LAB_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "device/core/cl.h"
#include "device/program/program.h"

enum { LAB_GUARD = 64, LAB_MAX_PROGRAMS = 256, LAB_SIGNALLING = 0x7fa00000 };

typedef struct lab {
    cl_context context;
    cl_device_id device;
    cl_command_queue queue;
    cl_kernel kernels[LAB_MAX_PROGRAMS];
    char *keys[LAB_MAX_PROGRAMS];
    int count;
    int lanes;
    int n; /* images in the batch */
} lab;

/* A device buffer between two guards of signalling NaNs. Kernels get the offset LAB_GUARD
 * elements. */
typedef struct lab_buffer {
    cl_mem mem;
    long count; /* 4-byte elements, or bytes if `size` is 1 */
    size_t size;
} lab_buffer;

#define LAB_CHECK(call)                                                                            \
    do {                                                                                           \
        cl_int lab_code = (call);                                                                  \
        if (lab_code != CL_SUCCESS) {                                                              \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, lab_code);               \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)

static inline void lab_open(lab *l)
{
    cl_platform_id platforms[16];
    cl_uint count = 0;
    *l = (lab){.lanes = 8};
    const char *lanes = getenv("CLT_TEST_LANES");
    if (lanes)
        l->lanes = atoi(lanes);
    if (clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS)
        count = 0;
    for (cl_uint pass = 0; pass < 2 && !l->device; pass++) {
        for (cl_uint i = 0; i < count && !l->device; i++)
            clGetDeviceIDs(platforms[i], pass ? CL_DEVICE_TYPE_ALL : CL_DEVICE_TYPE_CPU, 1,
                           &l->device, NULL);
    }
    if (!l->device) {
        fprintf(stderr, "no OpenCL device\n");
        exit(2);
    }
    cl_int code;
    l->context = clCreateContext(NULL, 1, &l->device, NULL, NULL, &code);
    LAB_CHECK(code);
    l->queue = clCreateCommandQueue(l->context, l->device, 0, &code);
    LAB_CHECK(code);
}

static inline void lab_close(lab *l)
{
    for (int i = 0; i < l->count; i++) {
        clReleaseKernel(l->kernels[i]);
        free(l->keys[i]);
    }
    clReleaseCommandQueue(l->queue);
    clReleaseContext(l->context);
}

/* Returns the kernel of `file`, built with the printf-like options. Equal requests share a
 * kernel. */
static inline cl_kernel lab_kernel(lab *l, const char *file, const char *kernel,
                                   const char *options, ...)
{
    char key[1024];
    int at = snprintf(key, sizeof key, "%s %s -cl-std=CL1.2 -DLANES=%d ", file, kernel, l->lanes);
    const int head = (int)(strlen(file) + strlen(kernel)) + 2;
    va_list args;
    va_start(args, options);
    vsnprintf(key + at, sizeof key - (size_t)at, options, args);
    va_end(args);
    for (int i = 0; i < l->count; i++) {
        if (!strcmp(l->keys[i], key))
            return l->kernels[i];
    }
    assert_true(l->count < LAB_MAX_PROGRAMS);
    clt_str text = {0};
    assert_int_equal(clt_source_resolve(file, NULL, &text), CLT_OK);
    const char *source = clt_str_text(&text);
    cl_int code;
    cl_program program = clCreateProgramWithSource(l->context, 1, &source, NULL, &code);
    LAB_CHECK(code);
    code = clBuildProgram(program, 1, &l->device, key + head, NULL, NULL);
    if (code != CL_SUCCESS) {
        static char log[100000];
        clGetProgramBuildInfo(program, l->device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        fprintf(stderr, "%s\n%s\n", key, log);
        exit(2);
    }
    clt_str_free(&text);
    cl_kernel made = clCreateKernel(program, kernel, &code);
    LAB_CHECK(code);
    clReleaseProgram(program);
    l->kernels[l->count] = made;
    l->keys[l->count++] = strdup(key);
    return made;
}

/* Makes a buffer. `size` 4: floats or ints, all signalling NaN. `size` 1: bytes of 0xa5. */
static inline lab_buffer lab_make(lab *l, long count, size_t size)
{
    const size_t bytes = (size_t)(count + 2 * LAB_GUARD) * size;
    char *start = malloc(bytes);
    if (size == 4) {
        for (long i = 0; i < count + 2 * LAB_GUARD; i++)
            ((uint32_t *)(void *)start)[i] = LAB_SIGNALLING;
    } else {
        memset(start, 0xa5, bytes);
    }
    cl_int code;
    lab_buffer b = {.count = count, .size = size};
    b.mem =
        clCreateBuffer(l->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, start, &code);
    LAB_CHECK(code);
    free(start);
    return b;
}

static inline void lab_free(lab_buffer *b)
{
    if (b->mem)
        clReleaseMemObject(b->mem);
    *b = (lab_buffer){0};
}

static inline void lab_write(lab *l, const lab_buffer *b, const void *from)
{
    LAB_CHECK(clEnqueueWriteBuffer(l->queue, b->mem, CL_TRUE, LAB_GUARD * b->size,
                                   (size_t)b->count * b->size, from, 0, NULL, NULL));
}

/* Reads all elements, after a check that nothing wrote into the guards. */
static inline void lab_read(lab *l, const lab_buffer *b, void *to)
{
    const size_t guard = LAB_GUARD * b->size, bytes = (size_t)b->count * b->size;
    unsigned char *all = malloc(bytes + 2 * guard);
    LAB_CHECK(
        clEnqueueReadBuffer(l->queue, b->mem, CL_TRUE, 0, bytes + 2 * guard, all, 0, NULL, NULL));
    for (size_t i = 0; i < guard; i++) {
        static const unsigned char nan_bytes[4] = {0, 0, 0xa0, 0x7f};
        const unsigned char want = b->size == 4 ? nan_bytes[i % 4] : 0xa5;
        assert_int_equal(all[i], want);
        assert_int_equal(all[guard + bytes + i], want);
    }
    memcpy(to, all + guard, bytes);
    free(all);
}

/* Returns the elements of a batch-blocked value with `each` elements per image. */
static inline long lab_batch_blocked_count(const lab *l, long each)
{
    return (l->n + l->lanes - 1) / l->lanes * (long)l->lanes * each;
}

/* Makes a batch-blocked value from [n][each]. Vector lanes beyond n are signalling NaN. */
static inline lab_buffer lab_put(lab *l, const float *plain, long each)
{
    const long count = lab_batch_blocked_count(l, each);
    lab_buffer b = lab_make(l, count, 4);
    uint32_t *packed = malloc((size_t)(count ? count : 1) * 4);
    for (long i = 0; i < count; i++)
        packed[i] = LAB_SIGNALLING;
    for (long i = 0; i < l->n; i++) {
        for (long e = 0; e < each; e++)
            memcpy(&packed[(i / l->lanes * each + e) * l->lanes + i % l->lanes],
                   &plain[i * each + e], 4);
    }
    if (count)
        lab_write(l, &b, packed);
    free(packed);
    return b;
}

/* The same for bytes. Vector lanes beyond n are 0xa5. */
static inline lab_buffer lab_put_bytes(lab *l, const unsigned char *plain, long each)
{
    const long count = lab_batch_blocked_count(l, each);
    lab_buffer b = lab_make(l, count, 1);
    unsigned char *packed = malloc((size_t)(count ? count : 1));
    memset(packed, 0xa5, (size_t)count);
    for (long i = 0; i < l->n; i++) {
        for (long e = 0; e < each; e++)
            packed[(i / l->lanes * each + e) * l->lanes + i % l->lanes] = plain[i * each + e];
    }
    if (count)
        lab_write(l, &b, packed);
    free(packed);
    return b;
}

/* Reads a batch-blocked value as [n][each]. */
static inline void lab_get(lab *l, const lab_buffer *b, float *plain, long each)
{
    float *packed = malloc((size_t)(b->count ? b->count : 1) * 4);
    lab_read(l, b, packed);
    for (long i = 0; i < l->n; i++) {
        for (long e = 0; e < each; e++)
            plain[i * each + e] = packed[(i / l->lanes * each + e) * l->lanes + i % l->lanes];
    }
    free(packed);
}

/* The same for bytes. */
static inline void lab_get_bytes(lab *l, const lab_buffer *b, unsigned char *plain, long each)
{
    unsigned char *packed = malloc((size_t)(b->count ? b->count : 1));
    lab_read(l, b, packed);
    for (long i = 0; i < l->n; i++) {
        for (long e = 0; e < each; e++)
            plain[i * each + e] = packed[(i / l->lanes * each + e) * l->lanes + i % l->lanes];
    }
    free(packed);
}

/* Makes a value without a batch dimension. */
static inline lab_buffer lab_put_plain(lab *l, const void *values, long count, size_t size)
{
    lab_buffer b = lab_make(l, count, size);
    if (count)
        lab_write(l, &b, values);
    return b;
}

/* Sets the arguments and enqueues the kernel with work-groups of one item. Kinds of arguments: b:
 * const lab_buffer * (two arguments), i: int, f: float, l: long. A range with a 0 is not
 * launched. */
static inline void lab_run(lab *l, cl_kernel kernel, size_t gx, size_t gy, size_t gz,
                           const char *kinds, ...)
{
    va_list args;
    va_start(args, kinds);
    cl_uint at = 0;
    for (const char *k = kinds; *k; k++) {
        if (*k == 'b') {
            const lab_buffer *b = va_arg(args, const lab_buffer *);
            const cl_long offset = LAB_GUARD;
            LAB_CHECK(clSetKernelArg(kernel, at++, sizeof b->mem, &b->mem));
            LAB_CHECK(clSetKernelArg(kernel, at++, sizeof offset, &offset));
        } else if (*k == 'i') {
            const cl_int value = va_arg(args, int);
            LAB_CHECK(clSetKernelArg(kernel, at++, sizeof value, &value));
        } else if (*k == 'l') {
            const cl_long value = va_arg(args, long);
            LAB_CHECK(clSetKernelArg(kernel, at++, sizeof value, &value));
        } else {
            const cl_float value = (cl_float)va_arg(args, double);
            LAB_CHECK(clSetKernelArg(kernel, at++, sizeof value, &value));
        }
    }
    va_end(args);
    const size_t global[3] = {gx, gy, gz}, local[3] = {1, 1, 1};
    if (gx && gy && gz)
        LAB_CHECK(clEnqueueNDRangeKernel(l->queue, kernel, 3, NULL, global, local, 0, NULL, NULL));
}

static inline float lab_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 40) / 8388608.0 - 1.0);
}

static inline float *lab_randoms(long count, uint64_t seed)
{
    /* Never allocates a single element: gcc 12 warns of every index if it finds a path with count
     * 0. */
    float *values = malloc(((size_t)count + 16) * sizeof *values);
    for (long i = 0; i < count; i++)
        values[i] = lab_random(&seed);
    return values;
}

/* Returns the largest |error| / (8 eps sqrt(terms) sum|terms|) of `count` values. Fails if it is
 * above 1. */
static inline double lab_compare(const char *what, const float *got, const double *want,
                                 const double *sum, long count, long terms)
{
    double worst = 0.0;
    for (long i = 0; i < count; i++) {
        const double limit = 8.0 * 0x1p-24 * sqrt((double)terms) * sum[i] + 1e-30;
        const double ratio = fabs((double)got[i] - want[i]) / limit;
        if (!(ratio <= 1.0)) {
            fail_msg("%s: element %ld is %.9g, not %.9g (%.2f of the limit)", what, i,
                     (double)got[i], want[i], ratio);
        }
        worst = fmax(worst, ratio);
    }
    return worst;
}

static inline double lab_cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
