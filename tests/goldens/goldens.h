/*
 * Reads the goldens of this folder in a test; README.md says what is in them. A missing file or
 * tensor, or one of another type or size, fails the test.
 */
#ifndef GOLDENS_H
#define GOLDENS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cltrain/checkpoint.h>
#include <cltrain/status.h>

/* The order of `grad_error`. */
#define GOLDEN_PARAMETERS 8
static const char *const golden_parameters[GOLDEN_PARAMETERS] = {
    "conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
    "fc1.weight",   "fc1.bias",   "fc2.weight",   "fc2.bias",
};

/* Path of a file of this folder, for example "ops/conv2d.safetensors". The folder is that of the
 * source, or $CLT_GOLDENS for tests that run elsewhere. */
static inline void golden_path(const char *file, char *path, size_t room)
{
    const char *other = getenv("CLT_GOLDENS");
    const char *slash = strrchr(__FILE__, '/');
    int length = slash ? (int)(slash - __FILE__) : 1;
    if (other)
        snprintf(path, room, "%s/%s", other, file);
    else
        snprintf(path, room, "%.*s/%s", length, slash ? __FILE__ : ".", file);
}

/* Opens a file of this folder. */
static inline clt_tensors *golden_open(const char *file)
{
    char path[4096];
    golden_path(file, path, sizeof path);
    clt_tensors *tensors = NULL;
    if (clt_tensors_open(path, &tensors) != CLT_OK)
        fail_msg("%s", clt_error_message());
    return tensors;
}

/* The tensor "PREFIX.NAME" (prefix NULL: "NAME"), or NULL if there is none. */
static inline const clt_tensor *golden_try(const clt_tensors *tensors, const char *prefix,
                                           const char *name)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s%s", prefix ? prefix : "", prefix ? "." : "", name);
    for (int i = 0; i < clt_tensors_count(tensors); i++) {
        const clt_tensor *tensor = clt_tensors_at(tensors, i);
        if (strcmp(tensor->name, full) == 0)
            return tensor;
    }
    return NULL;
}

static inline const clt_tensor *golden_find(const clt_tensors *tensors, const char *prefix,
                                            const char *name)
{
    const clt_tensor *tensor = golden_try(tensors, prefix, name);
    if (!tensor)
        fail_msg("no golden tensor %s %s", prefix ? prefix : "", name);
    return tensor;
}

static inline int64_t golden_count(const clt_tensor *tensor)
{
    return clt_tensor_bytes(tensor) / (tensor->dtype == CLT_FILE_F64  ? 8
                                       : tensor->dtype == CLT_FILE_U8 ? 1
                                                                      : 4);
}

/* Elements of a tensor of that type; `count` -1 takes any number of them. */
static inline const void *golden_data(const clt_tensors *tensors, const char *prefix,
                                      const char *name, clt_file_dtype dtype, int64_t count)
{
    const clt_tensor *tensor = golden_find(tensors, prefix, name);
    if (tensor->dtype != dtype || (count >= 0 && golden_count(tensor) != count))
        fail_msg("golden tensor %s has another type or size", tensor->name);
    return tensor->data;
}

static inline const double *golden_f64(const clt_tensors *tensors, const char *prefix,
                                       const char *name, int64_t count)
{
    return golden_data(tensors, prefix, name, CLT_FILE_F64, count);
}

static inline const float *golden_f32(const clt_tensors *tensors, const char *prefix,
                                      const char *name, int64_t count)
{
    return golden_data(tensors, prefix, name, CLT_FILE_F32, count);
}

static inline const int32_t *golden_i32(const clt_tensors *tensors, const char *prefix,
                                        const char *name, int64_t count)
{
    return golden_data(tensors, prefix, name, CLT_FILE_I32, count);
}

static inline const uint8_t *golden_u8(const clt_tensors *tensors, const char *prefix,
                                       const char *name, int64_t count)
{
    return golden_data(tensors, prefix, name, CLT_FILE_U8, count);
}

/* Whether position p of a batch of `batch` is ignored in the cases that end in i. */
static inline int golden_ignored(int64_t p, int64_t batch)
{
    return p < batch / 2 && p % 3 != 0;
}

#endif
