/* Types of elements, and reductions of elements. */
#ifndef CLTRAIN_TYPES_H
#define CLTRAIN_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include <cltrain/export.h>

CLT_BEGIN_DECLS

/* One row an element type: name, value, bytes. In graphs F64 is for reference tests
 * only. Arrays of a caller (<cltrain/array.h>) may have I64, graphs and data sets may not. */
#define CLT_DTYPE_LIST(X)                                                                          \
    X(F32, 0, 4)                                                                                   \
    X(F16, 1, 2)                                                                                   \
    X(BF16, 2, 2)                                                                                  \
    X(I32, 3, 4)                                                                                   \
    X(U8, 4, 1)                                                                                    \
    X(F64, 5, 8)                                                                                   \
    X(I64, 6, 8)

typedef enum clt_dtype {
#define CLT_DTYPE_ENUM(name, value, bytes) CLT_##name = value,
    CLT_DTYPE_LIST(CLT_DTYPE_ENUM)
#undef CLT_DTYPE_ENUM
} clt_dtype;

/* Bytes of one element; 0 for an unknown type. */
CLT_API int clt_dtype_size(clt_dtype dtype);

/* "f32", "f16", "bf16", "i32", "u8", "f64", "i64"; "?" for an unknown type. */
CLT_API const char *clt_dtype_name(clt_dtype dtype);

/*
 * The reductions of <cltrain/comm.h>, for f32, f64, f16, bf16 and i32. They go in the order of the
 * participants. f16 and bf16 are added in f32 and rounded to the nearest once, at the end. Integers
 * wrap. A NaN makes a minimum or maximum NaN. If all participants are empty, sum and mean are 0, a
 * minimum is the largest value of the type (infinity), and a maximum the least.
 */
typedef enum clt_comm_reduction {
    CLT_COMM_SUM = 0,
    CLT_COMM_MEAN = 1, /* the sum divided by the number of participants that are not empty;
                          integers are rounded towards 0 */
    CLT_COMM_MIN = 2,
    CLT_COMM_MAX = 3
} clt_comm_reduction;

/* Most dimensions of a tensor. */
#define CLT_MAX_RANK 8

CLT_END_DECLS

#endif
