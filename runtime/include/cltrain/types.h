/* Element types. */
#ifndef CLTRAIN_TYPES_H
#define CLTRAIN_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include <cltrain/export.h>

CLT_BEGIN_DECLS

/* One row an element type: name, value, bytes. F64 is for reference tests only. */
#define CLT_DTYPE_LIST(X)                                                                          \
    X(F32, 0, 4)                                                                                   \
    X(F16, 1, 2)                                                                                   \
    X(BF16, 2, 2)                                                                                  \
    X(I32, 3, 4)                                                                                   \
    X(U8, 4, 1)                                                                                    \
    X(F64, 5, 8)

typedef enum clt_dtype {
#define CLT_DTYPE_ENUM(name, value, bytes) CLT_##name = value,
    CLT_DTYPE_LIST(CLT_DTYPE_ENUM)
#undef CLT_DTYPE_ENUM
} clt_dtype;

/* Bytes of one element; 0 for an unknown type. */
CLT_API int clt_dtype_size(clt_dtype dtype);

/* "f32", "f16", "bf16", "i32", "u8", "f64"; "?" for an unknown type. */
CLT_API const char *clt_dtype_name(clt_dtype dtype);

/* Most dimensions of a tensor. */
#define CLT_MAX_RANK 8

CLT_END_DECLS

#endif
