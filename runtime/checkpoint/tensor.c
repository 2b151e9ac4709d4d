#include "checkpoint/tensor.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

_Static_assert((int)CLT_FILE_F32 == (int)CLT_F32 && (int)CLT_FILE_F16 == (int)CLT_F16 &&
                   (int)CLT_FILE_BF16 == (int)CLT_BF16 && (int)CLT_FILE_I32 == (int)CLT_I32 &&
                   (int)CLT_FILE_U8 == (int)CLT_U8 && (int)CLT_FILE_F64 == (int)CLT_F64,
               "a clt_dtype is a clt_file_dtype of the same value");

static const struct {
    const char *name;
    int bytes;
} types[] = {
#define CLT_FILE_DTYPE_ROW(name, value, bytes) [value] = {#name, bytes},
    CLT_FILE_DTYPE_LIST(CLT_FILE_DTYPE_ROW)
#undef CLT_FILE_DTYPE_ROW
};

enum { TYPE_COUNT = (int)(sizeof types / sizeof *types) };

static bool known(clt_file_dtype dtype)
{
    return (int)dtype >= 0 && (int)dtype < TYPE_COUNT;
}

const char *clt_file_dtype_name(clt_file_dtype dtype)
{
    return known(dtype) ? types[dtype].name : "?";
}

int clt_file_dtype_size(clt_file_dtype dtype)
{
    return known(dtype) ? types[dtype].bytes : 0;
}

bool clt_file_dtype_parse(const char *name, clt_file_dtype *out)
{
    for (int i = 0; i < TYPE_COUNT; i++) {
        if (strcmp(types[i].name, name) == 0) {
            *out = (clt_file_dtype)i;
            return true;
        }
    }
    return false;
}

bool clt_file_dtype_opaque(clt_file_dtype dtype)
{
    return (int)dtype > (int)CLT_FILE_I64;
}

int64_t clt_tensor_bytes(const clt_tensor *tensor)
{
    if (!known(tensor->dtype) || tensor->rank < 0 || tensor->rank > CLT_MAX_RANK)
        return -1;
    int64_t bytes = types[tensor->dtype].bytes;
    bool empty = false;
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->dims[i] < 0)
            return -1;
        if (tensor->dims[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(bytes, tensor->dims[i], &bytes))
            return -1;
    }
    return empty ? 0 : bytes;
}

clt_status clt_tensor_init(clt_tensor *tensor, const char *name, clt_file_dtype dtype, int rank,
                           const int64_t *dims, const void *data)
{
    clt_short_text label;
    if (!name)
        return clt_fail(CLT_INVALID_ARGUMENT, "a tensor without a name");
    if (rank < 0 || rank > CLT_MAX_RANK)
        return clt_fail(CLT_INVALID_ARGUMENT, "tensor %s: rank %d; 0 to %d is possible",
                        clt_label_of(&label, name), rank, CLT_MAX_RANK);
    clt_tensor made = {.name = name, .dtype = dtype, .rank = rank, .data = data};
    for (int i = 0; i < rank; i++)
        made.dims[i] = dims[i];
    if (clt_tensor_bytes(&made) < 0) {
        clt_short_text shape;
        return clt_fail(CLT_INVALID_ARGUMENT, "tensor %s: %s is not a type and shape of a tensor",
                        clt_label_of(&label, name), clt_label_shape(&shape, &made));
    }
    *tensor = made;
    return CLT_OK;
}

const char *clt_label_of(clt_short_text *label, const char *text)
{
    size_t i = 0;
    for (; text[i] && i + 4 < sizeof label->text; i++)
        label->text[i] = (unsigned char)text[i] < 32 || text[i] == 127 ? '?' : text[i];
    /* Do not cut within a UTF-8 character. */
    while (text[i] && i > 0 && ((unsigned char)text[i] & 0xc0) == 0x80)
        i--;
    snprintf(label->text + i, 4, "%s", text[i] ? "..." : "");
    return label->text;
}

const char *clt_label_shape(clt_short_text *label, const clt_tensor *tensor)
{
    size_t room = sizeof label->text;
    int used = snprintf(label->text, room, "%s [", clt_file_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->rank && i < CLT_MAX_RANK && used < (int)room; i++)
        used += snprintf(label->text + used, room - (size_t)used, "%s%lld", i ? ", " : "",
                         (long long)tensor->dims[i]);
    if (used < (int)room)
        snprintf(label->text + used, room - (size_t)used, "]");
    return label->text;
}

/* Converts an IEEE half to single precision, exactly. */
static float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 31u, fraction = half & 0x3ffu, bits;
    if (exponent == 31)
        bits = sign | 0x7f800000u | fraction << 13;
    else if (exponent)
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    else {
        float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static clt_status has_elements(const clt_tensor *tensor, int64_t count)
{
    clt_short_text name, shape;
    const int64_t bytes = clt_tensor_bytes(tensor);
    if (bytes < 0 || bytes / types[tensor->dtype].bytes != count)
        return clt_fail(CLT_SHAPE, "tensor %s is %s, not %lld elements",
                        clt_label_of(&name, tensor->name), clt_label_shape(&shape, tensor),
                        (long long)count);
    return CLT_OK;
}

clt_status clt_tensor_to_f32(const clt_tensor *tensor, int64_t count, float *out)
{
    clt_short_text name, shape;
    CLT_TRY(has_elements(tensor, count));
    const char *data = tensor->data;
    switch (tensor->dtype) {
    case CLT_FILE_F32:
        memcpy(out, data, (size_t)count * sizeof *out);
        return CLT_OK;
    case CLT_FILE_F64:
        for (int64_t i = 0; i < count; i++) {
            double value;
            memcpy(&value, data + 8 * i, sizeof value);
            out[i] = (float)value;
        }
        return CLT_OK;
    case CLT_FILE_F16:
    case CLT_FILE_BF16:
        for (int64_t i = 0; i < count; i++) {
            uint16_t value;
            memcpy(&value, data + 2 * i, sizeof value);
            uint32_t bits = (uint32_t)value << 16;
            if (tensor->dtype == CLT_FILE_F16)
                out[i] = half_to_float(value);
            else
                memcpy(out + i, &bits, sizeof bits);
        }
        return CLT_OK;
    default:
        return clt_fail(CLT_UNSUPPORTED, "tensor %s is %s; only F16, BF16, F32 and F64 become F32",
                        clt_label_of(&name, tensor->name), clt_label_shape(&shape, tensor));
    }
}

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint16_t float_to_bf16(float value)
{
    const uint32_t bits = bits_of(value);
    return (uint16_t)((value != value ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u)) >>
                      16);
}

/* A magnitude below 2^-14 is subnormal in F16. Adding 0.5 rounds it, because the last bit of a
 * float in [0.5, 1) is 2^-24, the least F16. */
static uint16_t float_to_half(float value)
{
    const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu;
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t held = magnitude < 0x47800000u ? magnitude : 0x47800000u;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude < 0x38800000u)
        return (uint16_t)(sign | (bits_of(of_bits(magnitude) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (held - (112u << 23) + 0xfffu + (held >> 13 & 1u)) >> 13);
}

clt_status clt_tensor_to_half(const clt_tensor *tensor, int64_t count, clt_file_dtype type,
                              uint16_t *out)
{
    float *floats = clt_alloc((size_t)count * sizeof *floats);
    CLT_TRY_MEMORY(floats);
    const clt_status status = clt_tensor_to_f32(tensor, count, floats);
    for (int64_t i = 0; status == CLT_OK && i < count; i++)
        out[i] = type == CLT_FILE_BF16 ? float_to_bf16(floats[i]) : float_to_half(floats[i]);
    clt_free(floats);
    return status;
}

static int64_t i64_at(const clt_tensor *tensor, int64_t i)
{
    int64_t value;
    memcpy(&value, (const char *)tensor->data + 8 * i, sizeof value);
    return value;
}

clt_status clt_tensor_fits_i32(const clt_tensor *tensor)
{
    clt_short_text name, shape;
    const int64_t count = clt_tensor_bytes(tensor) / types[CLT_FILE_I64].bytes;
    for (int64_t i = 0; i < count; i++) {
        const int64_t value = i64_at(tensor, i);
        if (value < INT32_MIN || value > INT32_MAX)
            return clt_fail(CLT_MISMATCH,
                            "tensor %s, %s: element %lld is %lld, which I32 cannot hold",
                            clt_label_of(&name, tensor->name), clt_label_shape(&shape, tensor),
                            (long long)i, (long long)value);
    }
    return CLT_OK;
}

clt_status clt_tensor_to_i32(const clt_tensor *tensor, int64_t count, int32_t *out)
{
    clt_short_text name, shape;
    CLT_TRY(has_elements(tensor, count));
    if (tensor->dtype == CLT_FILE_I32) {
        memcpy(out, tensor->data, (size_t)count * sizeof *out);
        return CLT_OK;
    }
    if (tensor->dtype != CLT_FILE_I64)
        return clt_fail(CLT_UNSUPPORTED, "tensor %s is %s; only I32 and I64 become I32",
                        clt_label_of(&name, tensor->name), clt_label_shape(&shape, tensor));
    CLT_TRY(clt_tensor_fits_i32(tensor));
    for (int64_t i = 0; i < count; i++)
        out[i] = (int32_t)i64_at(tensor, i);
    return CLT_OK;
}
