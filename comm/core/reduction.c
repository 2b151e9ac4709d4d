/*
 * Reduces all arrays in one pass, LANES elements at a time. Squares are added in LANES separate
 * sums: element i belongs to vector lane i % LANES. At the end the lanes are added in order. This
 * order is the same for every vector width. This file is compiled without contraction to fused
 * multiply-adds.
 */
#include "comm/core/reduction.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { LANES = CLT_REDUCE_LANES, CLT_REDUCE_MOST = CLT_COMM_MAX_DEVICES };

/* Bytes that are prefetched ahead. On server processors with large caches this is a fifth faster at
 * 16 MB, and a third at 64 MB, than the processor's own prefetching. */
enum { AHEAD = 2048, LINE = 64 };

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

static double batch_blocked_sum(const double *lane)
{
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

/* --- 16-bit floating-point types as vectors of 32 bits ---------------------------------------- */

/* U: a vector of unsigned 32-bit integers, S: of 16-bit integers, F: of floats. 65504 is the
 * largest f16. Values below 2^-14 are rounded by adding 0.5, whose last bit is the least f16. */
#define FROM_F16(U, F, v)                                                                          \
    ({                                                                                             \
        const U half_ = __builtin_convertvector(v, U);                                             \
        const U body_ = (half_ & 0x7fff) << 13;                                                    \
        const U special_ = (U)((half_ & 0x7c00) == 0x7c00);                                        \
        const F scaled_ = (F)body_ * 0x1p112f;                                                     \
        (F)((U)scaled_ | (special_ & 0x7f800000) | (half_ & 0x8000) << 16);                        \
    })
#define TO_F16(U, S, F, v)                                                                         \
    ({                                                                                             \
        const U all_ = (U)(v), sign_ = all_ & 0x80000000u, size_ = all_ ^ sign_;                   \
        const U large_ = (U)(size_ >= 0x47800000), nan_ = (U)(size_ > 0x7f800000);                 \
        const U small_ = (U)(size_ < 0x38800000) & ~large_;                                        \
        const U tiny_ = (U)((F)size_ + 0.5f) - 0x3f000000;                                         \
        const U usual_ = (size_ - 0x38000000 + 0xfff + (size_ >> 13 & 1)) >> 13;                   \
        const U huge_ = 0x7c00 | (nan_ & 0x200);                                                   \
        const U found_ = (large_ & huge_) | (small_ & tiny_) | (~(large_ | small_) & usual_);      \
        __builtin_convertvector(found_ | sign_ >> 16, S);                                          \
    })
#define FROM_BF16(U, F, v) ((F)(__builtin_convertvector(v, U) << 16))
#define TO_BF16(U, S, F, v)                                                                        \
    ({                                                                                             \
        const U all_ = (U)(v), nan_ = (U)((all_ & 0x7fffffff) > 0x7f800000);                       \
        const U rounded_ = (all_ + 0x7fff + (all_ >> 16 & 1)) >> 16;                               \
        const U quiet_ = all_ >> 16 | 0x40;                                                        \
        __builtin_convertvector((nan_ & quiet_) | (~nan_ & rounded_), S);                          \
    })

#define SAME(v) (v)
#define AS_ARITH(v) ((ARITHS)(v))
#define AS_RESULT(v) ((RESULTS)(v))
#define LOAD_F16(v) FROM_F16(MASKS, ARITHS, v)
#define SAVE_F16(v) TO_F16(MASKS, RESULTS, ARITHS, v)
#define LOAD_BF16(v) FROM_BF16(MASKS, ARITHS, v)
#define SAVE_BF16(v) TO_BF16(MASKS, RESULTS, ARITHS, v)

/* Vectors of 16 bytes, which all supported processors have. */
#define TARGET
#define WIDE_UNIT 2
#define SHORT_UNIT 4
#define SUFFIX _16
#include "comm/core/reduction_types.h"

#ifdef __x86_64__
#define TARGET __attribute__((target("avx2")))
#define WIDE_UNIT 4
#define SHORT_UNIT 8
#define SUFFIX _32
#include "comm/core/reduction_types.h"
#define TARGET __attribute__((target("avx512f")))
#define WIDE_UNIT 8
#define SHORT_UNIT 16
#define SUFFIX _64
#include "comm/core/reduction_types.h"
#endif

clt_reduce_fn clt_reduce_for(clt_dtype from, clt_dtype to)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return reduce_for_64(from, to);
    if (__builtin_cpu_supports("avx2"))
        return reduce_for_32(from, to);
#endif
    return reduce_for_16(from, to);
}
