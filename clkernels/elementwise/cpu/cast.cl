/*
 * Conversion between element types on CPUs, with the results of elementwise/cast.clh. Work-groups
 * have one work-item, which converts `share` elements, VW at a time: `via` makes a VIA of a vector
 * of elements, `made` makes elements of a VIA. f16 is converted by integer arithmetic on whole
 * vectors, because drivers convert halves one by one.
 * Build options: VW, lanes of a vector of floats; FROM_x and TO_x as in elementwise/cast.clh.
 * Global size: ceil(count / share).
 */
#define LANES VW
#include "core/batch_blocked/common.clh"

#if defined(FROM_F64) || defined(TO_F64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define TO_DOUBLES(v) CLT_JOIN(convert_double, VW)(v)
#endif

#define VECTOR(T) CLT_JOIN(T, VW)
#define AS_UINTS(v) CLT_JOIN(as_uint, VW)(v)
#define TO_UINTS(v) CLT_JOIN(convert_uint, VW)(v)
#define TO_USHORTS(v) CLT_JOIN(convert_ushort, VW)(v)
#define TO_FLOATS(v) CLT_JOIN(convert_float, VW)(v)

/* Bit patterns without the sign: infinity, and the bit that makes a NaN quiet. */
#define INFINITY_F32 0x7F800000u
#define INFINITY_F16 0x7C00u
#define QUIET_F32 0x00400000u

#if defined(FROM_F16)
#define FROM ushort
#define VIA vecf
/* As clt_widen_h of core/batch_blocked/halves.clh, which explains the arithmetic. */
INLINE vecf via(VECTOR(ushort) x)
{
    const vecu bits = TO_UINTS(x), magnitude = (bits & 0x7FFFu) << 13;
    const vecu top = magnitude & 0x0F800000u, normal = magnitude + (112u << 23);
    const vecu small = AS_UINTS(AS_FLOATS(normal + (1u << 23)) - 0x1p-14f);
    const vecu quiet = select((vecu)(0u), (vecu)(QUIET_F32), magnitude > 0x0F800000u);
    const vecu finite = select(normal, small, top == 0u);
    const vecu result = select(finite, magnitude | INFINITY_F32 | quiet, top == 0x0F800000u);
    return AS_FLOATS(result | (bits & 0x8000u) << 16);
}
#elif defined(FROM_BF16)
#define FROM ushort
#define VIA vecf
#define via(x) AS_FLOATS(TO_UINTS(x) << 16)
#elif defined(FROM_I32)
#define FROM int
#define VIA veci
#define via(x) (x)
#elif defined(FROM_U8)
#define FROM uchar
#define VIA veci
#define via(x) TO_INTS(x)
#elif defined(FROM_F64)
#define FROM double
#define VIA VECTOR(double)
#define via(x) (x)
#define AS_MASK(v) TO_INTS(v)
#else
#define FROM float
#define VIA vecf
#define via(x) (x)
#endif
#ifndef AS_MASK
#define AS_MASK(v) (v)
#endif

#if defined(TO_F16)
#define TO ushort
/* As clt_narrow_h of core/batch_blocked/halves.clh, which explains the arithmetic. */
INLINE VECTOR(ushort) made(VIA x)
{
    const vecu bits = AS_UINTS(TO_FLOATS(x)), magnitude = bits & 0x7FFFFFFFu;
    const vecu held = min(magnitude, (vecu)(0x47800000u));
    const vecu normal = (held - (112u << 23) + 0xFFFu + (held >> 13 & 1u)) >> 13;
    const vecu small = AS_UINTS(AS_FLOATS(magnitude) + 0.5f) - 0x3F000000u;
    const vecu number = select(normal, small, magnitude < 0x38800000u);
    const vecu nan = INFINITY_F16 | 0x200u | (magnitude >> 13 & 0x3FFu);
    const vecu result = select(number, nan, magnitude > INFINITY_F32);
    return TO_USHORTS(result | (bits >> 16 & 0x8000u));
}
#elif defined(TO_BF16)
#define TO ushort
INLINE VECTOR(ushort) made(VIA x)
{
    const vecu bits = AS_UINTS(TO_FLOATS(x));
    const vecu number = bits + 0x7FFFu + (bits >> 16 & 1u), nan = bits | QUIET_F32;
    return TO_USHORTS(select(number, nan, (bits & 0x7FFFFFFFu) > INFINITY_F32) >> 16);
}
#elif defined(TO_F64)
#define TO double
#define made(x) TO_DOUBLES(x)
#elif defined(TO_F32)
#define TO float
#define made(x) TO_FLOATS(x)
#elif defined(FROM_I32) || defined(FROM_U8)
#ifdef TO_I32
#define TO int
#define made(x) (x)
#else
#define TO uchar
#define made(x) TO_BYTES((x) & 255)
#endif
#elif defined(TO_I32)
#define TO int
/* Values outside of the range, and NaN, are replaced before the conversion, whose result would be
 * undefined for them. */
INLINE veci made(VIA x)
{
    const VIA least = (VIA)(-2147483648.0f), beyond = (VIA)(2147483648.0f);
    const VIA held = select((VIA)(0.0f), x, x > least && x < beyond);
    const VIA ends = select(held, least, x <= least);
    return select(TO_INTS(ends), (veci)(2147483647), AS_MASK(x >= beyond));
}
#else
#define TO uchar
INLINE VECTOR(uchar) made(VIA x)
{
    const VIA above = select((VIA)(0.0f), x, x > (VIA)(0.0f));
    return TO_BYTES(TO_INTS(select(above, (VIA)(255.0f), above > (VIA)(255.0f))));
}
#endif

typedef VECTOR(FROM) from_vec __attribute__((aligned(1)));
typedef VECTOR(TO) to_vec __attribute__((aligned(1)));
#define FAR 2048 /* how many bytes ahead of the loads are prefetched */

KERNEL void cast(global const FROM *x, long x_offset, global TO *out, long out_offset, long count,
                 long share)
{
    const long first = (long)get_global_id(0) * share;
    const int size = (int)min(share, count - first);
    x += x_offset + first;
    out += out_offset + first;
    int i = 0;
    for (; i + VW <= size; i += VW) {
        PREFETCH(x + i + FAR / (int)sizeof(FROM));
        PREFETCH(out + i + FAR / (int)sizeof(TO));
        *(global to_vec *)(out + i) = made(via(*(global const from_vec *)(x + i)));
    }
    if (i < size) {
        FROM read[VW];
        TO written[VW];
        for (int l = 0; l < VW; l++)
            read[l] = i + l < size ? x[i + l] : 0;
        *(private to_vec *)written = made(via(*(private const from_vec *)read));
        for (int l = 0; i + l < size; l++)
            out[i + l] = written[l];
    }
}
