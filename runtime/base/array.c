/* Views of a caller's memory: checks, and copies that walk over strides. */
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

bool clt_dtype_of_tensor(clt_dtype dtype)
{
    return clt_dtype_size(dtype) && dtype != CLT_I64;
}

clt_array clt_array_dense(const void *host, clt_dtype dtype, int rank, const int64_t *shape)
{
    clt_array a = {.host = (void *)(uintptr_t)host, .dtype = dtype, .rank = rank};
    int64_t stride = clt_dtype_size(dtype);
    for (int d = rank - 1; d >= 0; d--) {
        a.shape[d] = shape[d];
        a.strides[d] = stride;
        stride *= shape[d];
    }
    a.bytes = stride;
    return a;
}

const char *clt_shape_text(int rank, const int64_t *shape, char text[CLT_SHAPE_TEXT])
{
    int length = snprintf(text, CLT_SHAPE_TEXT, "[");
    for (int d = 0; d < rank; d++)
        length += snprintf(text + length, (size_t)(CLT_SHAPE_TEXT - length), "%s%lld",
                           d ? ", " : "", (long long)shape[d]);
    snprintf(text + length, (size_t)(CLT_SHAPE_TEXT - length), "]");
    return text;
}

static clt_status check_dims(const char *what, clt_dtype dtype, int rank, const int64_t *shape)
{
    if (!clt_dtype_size(dtype))
        return clt_fail(CLT_INVALID_ARGUMENT, "%s has the unknown element type %d", what,
                        (int)dtype);
    if (rank > 0 && !shape)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s has rank %d, and its shape is NULL", what, rank);
    if (rank < 0 || rank > CLT_MAX_RANK)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s has rank %d, which is not in 0 to %d", what, rank,
                        CLT_MAX_RANK);
    int64_t bytes = clt_dtype_size(dtype);
    for (int d = 0; d < rank; d++)
        if (shape[d] < 0 || __builtin_mul_overflow(bytes, shape[d] ? shape[d] : 1, &bytes))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "%s has size %lld in dimension %d: sizes must be at least 0, and the "
                            "bytes fit in 63 bits",
                            what, (long long)shape[d], d);
    return CLT_OK;
}

static clt_status describe(clt_array *array, const void *host, struct _cl_mem *buffer,
                           clt_dtype dtype, int rank, const int64_t *shape)
{
    if (!array)
        return clt_fail(CLT_INVALID_ARGUMENT, "the place for an array is NULL");
    CLT_TRY(check_dims("the array", dtype, rank, shape));
    const clt_array a = clt_array_dense(host, dtype, rank, shape);
    if (!host && !buffer && clt_array_elements(&a))
        return clt_fail(CLT_INVALID_ARGUMENT, "an array with elements needs memory, which is NULL");
    *array = a;
    return CLT_OK;
}

clt_status clt_array_of(clt_array *array, const void *host, clt_dtype dtype, int rank,
                        const int64_t *shape)
{
    return describe(array, host, NULL, dtype, rank, shape);
}

clt_status clt_array_of_buffer(clt_array *array, struct _cl_mem *buffer, int64_t offset,
                               clt_dtype dtype, int rank, const int64_t *shape)
{
    if (offset < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "an array begins at byte %lld of its buffer",
                        (long long)offset);
    CLT_TRY(describe(array, NULL, buffer, dtype, rank, shape));
    array->buffer = buffer;
    array->offset = offset;
    array->bytes = 0;
    return CLT_OK;
}

int64_t clt_array_elements(const clt_array *array)
{
    int64_t elements = 1;
    for (int d = 0; d < array->rank; d++)
        if (__builtin_mul_overflow(elements, array->shape[d], &elements))
            return -1;
    return elements;
}

int clt_array_is_dense(const clt_array *array)
{
    int64_t stride = clt_dtype_size(array->dtype);
    if (!clt_array_elements(array))
        return 1;
    for (int d = array->rank - 1; d >= 0; d--) {
        if (array->shape[d] > 1 && array->strides[d] != stride)
            return 0;
        stride *= array->shape[d];
    }
    return 1;
}

/* Finds the bytes [*begin, *end) that the elements take. Returns false if a number overflows. */
static bool extent(const clt_array *a, int64_t *begin, int64_t *end)
{
    *begin = a->offset;
    if (__builtin_add_overflow(a->offset, (int64_t)clt_dtype_size(a->dtype), end))
        return false;
    for (int d = 0; d < a->rank; d++) {
        int64_t reach;
        if (__builtin_mul_overflow(a->strides[d], a->shape[d] - 1, &reach) ||
            __builtin_add_overflow(reach < 0 ? *begin : *end, reach, reach < 0 ? begin : end))
            return false;
    }
    return true;
}

static clt_status check_memory(const clt_array *array, const char *what)
{
    if (!array->host == !array->buffer)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s has %s: set one of them", what,
                        array->host ? "host and buffer" : "neither host nor buffer");
    if (array->bytes < 0 || array->offset < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: offset %lld and bytes %lld must be at least 0",
                        what, (long long)array->offset, (long long)array->bytes);
    return CLT_OK;
}

clt_status clt_array_check(const clt_array *array, const char *what)
{
    if (array->whole)
        return check_memory(array, what);
    CLT_TRY(check_dims(what, array->dtype, array->rank, array->shape));
    if (!clt_array_elements(array)) /* needs no memory */
        return CLT_OK;
    CLT_TRY(check_memory(array, what));
    int64_t begin = 0, end = 0;
    if (!extent(array, &begin, &end))
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: its strides leave the address space", what);
    if (array->bytes && (begin < 0 || end > array->bytes))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s has elements in bytes %lld to %lld of a memory of %lld bytes", what,
                        (long long)begin, (long long)end - 1, (long long)array->bytes);
    if (array->buffer && !clt_array_is_dense(array))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s: elements of a buffer must be row-major without gaps", what);
    return CLT_OK;
}

static bool converts(clt_dtype from, clt_dtype to)
{
    return from == to || (from == CLT_F64 && to == CLT_F32) || (from == CLT_F32 && to == CLT_F64) ||
           (from == CLT_I64 && to == CLT_I32) || (from == CLT_I32 && to == CLT_I64);
}

clt_status clt_array_fits(const clt_array *array, const char *what, clt_dtype dtype, int rank,
                          const int64_t *shape)
{
    CLT_TRY(clt_array_check(array, what));
    char wanted[CLT_SHAPE_TEXT], given[CLT_SHAPE_TEXT];
    if (array->whole) {
        const int64_t needed = clt_array_dense(NULL, dtype, rank, shape).bytes;
        if (array->host && array->bytes && array->bytes - array->offset < needed)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "%s has %lld bytes, and needs %lld for %s %s from byte %lld on", what,
                            (long long)array->bytes, (long long)needed, clt_dtype_name(dtype),
                            clt_shape_text(rank, shape, wanted), (long long)array->offset);
        return CLT_OK;
    }
    bool same = array->rank == rank;
    for (int d = 0; same && d < rank; d++)
        same = array->shape[d] == shape[d];
    if (!same || !converts(array->dtype, dtype) || (array->buffer && array->dtype != dtype))
        return clt_fail(CLT_INVALID_ARGUMENT, "%s is %s %s%s, and must be %s %s%s", what,
                        clt_dtype_name(array->dtype),
                        clt_shape_text(array->rank, array->shape, given),
                        array->buffer ? " in a buffer" : "", clt_dtype_name(dtype),
                        clt_shape_text(rank, shape, wanted),
                        array->buffer      ? ""
                        : dtype == CLT_F32 ? " (or f64)"
                        : dtype == CLT_I32 ? " (or i64)"
                                           : "");
    return CLT_OK;
}

bool clt_array_in_place(const clt_array *array, clt_dtype dtype)
{
    const uintptr_t first = (uintptr_t)array->host + (uintptr_t)array->offset;
    return array->whole || array->buffer ||
           (array->dtype == dtype && clt_array_is_dense(array) &&
            first % (uintptr_t)clt_dtype_size(dtype) == 0);
}

/* The dimensions that a copy walks over, outermost first, without those of size 1. Neighbours that
 * are one run of memory in both arrays are joined. */
typedef struct walk {
    int rank;
    int64_t shape[CLT_MAX_RANK], from[CLT_MAX_RANK], to[CLT_MAX_RANK];
} walk;

static walk walk_of(const clt_array *from, const clt_array *to)
{
    walk w = {0};
    for (int d = 0; d < from->rank; d++) {
        const int64_t size = from->shape[d], f = from->strides[d], t = to->strides[d];
        const int last = w.rank - 1;
        if (size == 1)
            continue;
        if (w.rank && w.from[last] == f * size && w.to[last] == t * size) {
            w.shape[last] *= size;
            w.from[last] = f;
            w.to[last] = t;
            continue;
        }
        w.shape[w.rank] = size;
        w.from[w.rank] = f;
        w.to[w.rank++] = t;
    }
    if (!w.rank)
        w = (walk){1, {1}, {0}, {0}};
    return w;
}

/* Copies `count` elements along one dimension. Returns how many were copied: fewer if one cannot be
 * converted. Elements need not be aligned. Rows without gaps have a loop of their own, which the
 * compiler vectorises. */
#define ROW(name, source, target, accepted)                                                        \
    static inline int64_t name##_by(const char *from, int64_t from_stride, char *to,               \
                                    int64_t to_stride, int64_t count)                              \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                      \
            source x;                                                                              \
            memcpy(&x, from + i * from_stride, sizeof x);                                          \
            if (!(accepted))                                                                       \
                return i;                                                                          \
            const target y = (target)x;                                                            \
            memcpy(to + i * to_stride, &y, sizeof y);                                              \
        }                                                                                          \
        return count;                                                                              \
    }                                                                                              \
    static int64_t name(const char *from, int64_t from_stride, char *to, int64_t to_stride,        \
                        int64_t count)                                                             \
    {                                                                                              \
        return from_stride == sizeof(source) && to_stride == sizeof(target)                        \
                   ? name##_by(from, sizeof(source), to, sizeof(target), count)                    \
                   : name##_by(from, from_stride, to, to_stride, count);                           \
    }
ROW(row_1, uint8_t, uint8_t, 1)
ROW(row_2, uint16_t, uint16_t, 1)
ROW(row_4, uint32_t, uint32_t, 1)
ROW(row_8, uint64_t, uint64_t, 1)
ROW(row_narrow, double, float, 1)
ROW(row_widen, float, double, 1)
ROW(row_short, int64_t, int32_t, x >= INT32_MIN && x <= INT32_MAX)
ROW(row_long, int32_t, int64_t, 1)

typedef int64_t row_function(const char *from, int64_t from_stride, char *to, int64_t to_stride,
                             int64_t count);

static row_function *row_for(clt_dtype from, clt_dtype to)
{
    if (from != to)
        return from == CLT_F64   ? row_narrow
               : from == CLT_F32 ? row_widen
               : from == CLT_I64 ? row_short
                                 : row_long;
    const int size = clt_dtype_size(from);
    return size == 1 ? row_1 : size == 2 ? row_2 : size == 4 ? row_4 : row_8;
}

static clt_status copy_rows(const clt_array *source, const clt_array *target)
{
    const walk w = walk_of(source, target);
    const int inner = w.rank - 1, size = clt_dtype_size(source->dtype);
    const bool run = source->dtype == target->dtype && w.from[inner] == size && w.to[inner] == size;
    row_function *const row = row_for(source->dtype, target->dtype);
    const char *from = (const char *)source->host + source->offset;
    char *to = (char *)target->host + target->offset;
    int64_t index[CLT_MAX_RANK] = {0}, rows = 0;
    for (;; rows++) {
        if (run)
            memcpy(to, from, (size_t)(w.shape[inner] * size));
        else {
            const int64_t done = row(from, w.from[inner], to, w.to[inner], w.shape[inner]);
            if (done < w.shape[inner])
                return clt_fail(CLT_INVALID_ARGUMENT,
                                "element %lld (counted row-major) does not fit in 32 bits",
                                (long long)(rows * w.shape[inner] + done));
        }
        int d = inner - 1;
        for (; d >= 0; d--) {
            from += w.from[d];
            to += w.to[d];
            if (++index[d] < w.shape[d])
                break;
            index[d] = 0;
            from -= w.from[d] * w.shape[d];
            to -= w.to[d] * w.shape[d];
        }
        if (d < 0)
            return CLT_OK;
    }
}

clt_status clt_array_copy(const clt_array *from, const clt_array *to)
{
    CLT_TRY(clt_array_check(from, "the source"));
    CLT_TRY(clt_array_check(to, "the target"));
    if (from->buffer || to->buffer || from->whole || to->whole)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_array_copy needs arrays of the host with a type and a shape");
    CLT_TRY(clt_array_fits(from, "the source", to->dtype, to->rank, to->shape));
    return clt_array_elements(from) ? copy_rows(from, to) : CLT_OK;
}
