/*
 * All reductions for one instruction set. reduction.c includes this file with TARGET (an
 * attribute), SUFFIX, WIDE_UNIT and SHORT_UNIT defined. The last two are UNIT of reduction_body.h
 * for types of 32 and of 16 bits. NAME_from_to reduces `from` and writes `to`.
 */
#define SUFFIXED2(name, suffix) name##suffix
#define SUFFIXED1(name, suffix) SUFFIXED2(name, suffix)
#define SUFFIXED(name) SUFFIXED1(name, SUFFIX)

#define UNIT WIDE_UNIT
#define TYPE float
#define RESULT float
#define ARITH float
#define ORDER float
#define MASK uint32_t
#define LOAD SAME
#define SAVE SAME
#define RELOAD SAME
#define LEAST -INFINITY
#define MOST INFINITY
#define OVERFLOWS 0
#define NAME SUFFIXED(reduce_f32)
#include "comm/core/reduction_body.h"
#define TYPE int32_t
#define RESULT int32_t
#define ARITH uint32_t
#define ORDER int32_t
#define MASK uint32_t
#define LOAD AS_ARITH
#define SAVE AS_RESULT
#define RELOAD AS_ARITH
#define LEAST INT32_MIN
#define MOST INT32_MAX
#define OVERFLOWS 0
#define NAME SUFFIXED(reduce_i32)
#include "comm/core/reduction_body.h"
#define TYPE double
#define RESULT double
#define ARITH double
#define ORDER double
#define MASK uint64_t
#define LOAD SAME
#define SAVE SAME
#define RELOAD SAME
#define LEAST -INFINITY
#define MOST INFINITY
#define OVERFLOWS 1
#define NAME SUFFIXED(reduce_f64)
#include "comm/core/reduction_body.h"
#undef UNIT
#define UNIT SHORT_UNIT
#define TYPE uint16_t
#define RESULT uint16_t
#define ARITH float
#define ORDER float
#define MASK uint32_t
#define LOAD LOAD_F16
#define SAVE SAVE_F16
#define RELOAD LOAD_F16
#define LEAST -INFINITY
#define MOST INFINITY
#define OVERFLOWS 0
#define NAME SUFFIXED(reduce_f16)
#include "comm/core/reduction_body.h"
#define TYPE uint16_t
#define RESULT float
#define ARITH float
#define ORDER float
#define MASK uint32_t
#define LOAD LOAD_F16
#define SAVE SAME
#define RELOAD SAME
#define LEAST -INFINITY
#define MOST INFINITY
#define OVERFLOWS 0
#define NAME SUFFIXED(reduce_f16_f32)
#include "comm/core/reduction_body.h"
#define TYPE float
#define RESULT uint16_t
#define ARITH float
#define ORDER float
#define MASK uint32_t
#define LOAD SAME
#define SAVE SAVE_F16
#define RELOAD LOAD_F16
#define LEAST -INFINITY
#define MOST INFINITY
#define OVERFLOWS 0
#define NAME SUFFIXED(reduce_f32_f16)
#include "comm/core/reduction_body.h"
#define TYPE uint16_t
#define RESULT uint16_t
#define ARITH float
#define ORDER float
#define MASK uint32_t
#define LOAD LOAD_BF16
#define SAVE SAVE_BF16
#define RELOAD LOAD_BF16
#define LEAST -INFINITY
#define MOST INFINITY
#define OVERFLOWS 0
#define NAME SUFFIXED(reduce_bf16)
#include "comm/core/reduction_body.h"
#define TYPE uint16_t
#define RESULT float
#define ARITH float
#define ORDER float
#define MASK uint32_t
#define LOAD LOAD_BF16
#define SAVE SAME
#define RELOAD SAME
#define LEAST -INFINITY
#define MOST INFINITY
#define OVERFLOWS 0
#define NAME SUFFIXED(reduce_bf16_f32)
#include "comm/core/reduction_body.h"
#define TYPE float
#define RESULT uint16_t
#define ARITH float
#define ORDER float
#define MASK uint32_t
#define LOAD SAME
#define SAVE SAVE_BF16
#define RELOAD LOAD_BF16
#define LEAST -INFINITY
#define MOST INFINITY
#define OVERFLOWS 0
#define NAME SUFFIXED(reduce_f32_bf16)
#include "comm/core/reduction_body.h"
#undef UNIT

static clt_reduce_fn SUFFIXED(reduce_for)(clt_dtype from, clt_dtype to)
{
    if (from == CLT_F32)
        return to == CLT_F32    ? SUFFIXED(reduce_f32)
               : to == CLT_F16  ? SUFFIXED(reduce_f32_f16)
               : to == CLT_BF16 ? SUFFIXED(reduce_f32_bf16)
                                : NULL;
    if (from == CLT_F16)
        return to == CLT_F16   ? SUFFIXED(reduce_f16)
               : to == CLT_F32 ? SUFFIXED(reduce_f16_f32)
                               : NULL;
    if (from == CLT_BF16)
        return to == CLT_BF16  ? SUFFIXED(reduce_bf16)
               : to == CLT_F32 ? SUFFIXED(reduce_bf16_f32)
                               : NULL;
    if (from != to)
        return NULL;
    return from == CLT_F64 ? SUFFIXED(reduce_f64) : from == CLT_I32 ? SUFFIXED(reduce_i32) : NULL;
}

#undef SUFFIXED
#undef SUFFIXED1
#undef SUFFIXED2
#undef SUFFIX
#undef WIDE_UNIT
#undef SHORT_UNIT
#undef TARGET
