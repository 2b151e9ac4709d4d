/*
 * Arrays: one view of memory of the caller, on the host or in an OpenCL buffer, for all calls that
 * read or write tensors. A view owns nothing, and the library never frees what it points to.
 *
 *     double t[100][4];
 *     clt_array a;
 *     const int64_t shape[] = {100, 4};
 *     clt_array_of(&a, t, CLT_F64, 2, shape);
 */
#ifndef CLTRAIN_ARRAY_H
#define CLTRAIN_ARRAY_H

#include <cltrain/status.h>
#include <cltrain/types.h>

CLT_BEGIN_DECLS

struct _cl_mem; /* cl_mem is struct _cl_mem *: this header needs no OpenCL header */

/*
 * Elements in memory. The element at index (i0, i1, ..) is at byte
 * offset + i0 * strides[0] + i1 * strides[1] + .. of the memory.
 *
 * - Either `host` or `buffer` is set, or neither if there are no elements. Calls that only read an
 * array do not write to its memory.
 * - whole 1: the memory has the elements of the tensor that the call names, in its type, row-major
 *   and without gaps. dtype, rank, shape and strides are not read. This is the short form for C:
 *   {.host = x, .whole = 1}, or CLT_HOST(x).
 * - strides are in bytes, as in NumPy and in Fortran's descriptors. They may be 0 or negative.
 *   Memory that a call writes must not overlap itself. Buffers must be row-major without gaps.
 * - The offset of a buffer that is fed must be a multiple of the element's size, and the buffer
 *   not be CL_MEM_WRITE_ONLY: kernels read it where it lies.
 * - bytes: the size of the memory that `host` points to, or 0 if unknown. An array that reaches
 *   beyond it, or before it, is refused. The size of a buffer is asked of OpenCL in any case.
 *
 * Types: a tensor takes arrays of its own type; f32 also takes f64 (rounded to the nearest), and
 * i32 also takes i64 (values out of range are refused, with the place of the first). Tensors are
 * written to arrays of these types likewise. Buffers have the tensor's type.
 */
typedef struct clt_array {
    void *host;
    struct _cl_mem *buffer;
    int64_t offset, bytes;
    int whole;
    clt_dtype dtype;
    int rank; /* at most CLT_MAX_RANK */
    int64_t shape[CLT_MAX_RANK];
    int64_t strides[CLT_MAX_RANK];
} clt_array;

/* Initializers of arrays with `whole` set. */
#define CLT_HOST(pointer)                                                                          \
    {                                                                                              \
        .host = (void *)(pointer), .whole = 1                                                      \
    }
#define CLT_BUFFER(mem, byte_offset)                                                               \
    {                                                                                              \
        .buffer = (mem), .offset = (byte_offset), .whole = 1                                       \
    }

/* An initializer of a row-major matrix without gaps in host memory: samples of `columns` numbers.
 * The element type is CLT_F32, CLT_F64, CLT_I32 or CLT_I64. */
#define CLT_MATRIX(pointer, type, rows, columns)                                                   \
    {                                                                                              \
        .host = (void *)(pointer), .dtype = (type), .rank = 2, .shape = {(rows), (columns)},       \
        .strides = {                                                                               \
            (columns) * ((type) == CLT_F64 || (type) == CLT_I64 ? 8 : 4),                          \
            (type) == CLT_F64 || (type) == CLT_I64 ? 8 : 4                                         \
        }                                                                                          \
    }

/* Describe row-major memory without gaps. The first one sets `bytes` to what the shape needs.
 * Errors: INVALID_ARGUMENT (elements without memory, an unknown type, a rank or dimension out of
 * range). */
CLT_API clt_status clt_array_of(clt_array *array, const void *host, clt_dtype dtype, int rank,
                                const int64_t *shape);
CLT_API clt_status clt_array_of_buffer(clt_array *array, struct _cl_mem *buffer, int64_t offset,
                                       clt_dtype dtype, int rank, const int64_t *shape);

/* Returns the number of elements; -1 if the product overflows. `whole` is not considered. */
CLT_API int64_t clt_array_elements(const clt_array *array);

/* Returns 1 if the elements lie row-major without gaps, else 0. */
CLT_API int clt_array_is_dense(const clt_array *array);

/* Checks an array: exactly one memory, a known type, dimensions of at least 0, and no element
 * outside `bytes`. Errors: INVALID_ARGUMENT; `what` names the array in the message. */
CLT_API clt_status clt_array_check(const clt_array *array, const char *what);

/* Copies elements between arrays of the host with equal shapes, and converts f32 and f64, i32 and
 * i64 into each other. The memory must not overlap. Errors: INVALID_ARGUMENT (an array that
 * clt_array_check refuses, buffers, `whole`, shapes or types that do not fit, an i64 that i32
 * cannot hold: nothing behind it is copied). */
CLT_API clt_status clt_array_copy(const clt_array *from, const clt_array *to);

CLT_END_DECLS

#endif
