/*
 * Conversion between element types: options FROM_x and TO_x, x one of F32, F16, BF16, I32, U8, F64.
 * Halves are read and written by vload_half and vstore_half, which need no half arithmetic; bf16 is
 * the upper half of an f32. Floats go to integers towards zero and are held to the type's range
 * (NaN: 0); integers to u8 keep their low bits; all else rounds to the nearest, ties to even.
 */
#if defined(FROM_F64) || defined(TO_F64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#if defined(FROM_F16)
typedef half from_type;
#define VALUE(i) vload_half(i, x)
#define VIA float
#elif defined(FROM_BF16)
typedef ushort from_type;
#define VALUE(i) as_float((uint)x[i] << 16)
#define VIA float
#elif defined(FROM_I32)
typedef int from_type;
#define VALUE(i) x[i]
#define VIA int
#elif defined(FROM_U8)
typedef uchar from_type;
#define VALUE(i) ((int)x[i])
#define VIA int
#elif defined(FROM_F64)
typedef double from_type;
#define VALUE(i) x[i]
#define VIA double
#else
typedef float from_type;
#define VALUE(i) x[i]
#define VIA float
#endif

#if defined(FROM_I32) || defined(FROM_U8)
#define TO_INTEGER(v) (v)
#define TO_BYTE(v) ((uchar)((v) & 255))
#else
#define TO_INTEGER(v) (isnan(v) ? 0 : convert_int_sat_rtz(v))
#define TO_BYTE(v) (isnan(v) ? (uchar)0 : convert_uchar_sat_rtz(v))
#endif

#if defined(TO_F16)
typedef half to_type;
#define STORE(v, i) vstore_half_rte((float)(v), i, out)
#elif defined(TO_BF16)
typedef ushort to_type;
static inline ushort to_bf16(float v)
{
    const uint u = as_uint(v);
    return isnan(v) ? (ushort)(u >> 16 | 0x40u) : (ushort)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}
#define STORE(v, i) out[i] = to_bf16((float)(v))
#elif defined(TO_I32)
typedef int to_type;
#define STORE(v, i) out[i] = TO_INTEGER(v)
#elif defined(TO_U8)
typedef uchar to_type;
#define STORE(v, i) out[i] = TO_BYTE(v)
#elif defined(TO_F64)
typedef double to_type;
#define STORE(v, i) out[i] = (double)(v)
#else
typedef float to_type;
#define STORE(v, i) out[i] = (float)(v)
#endif

kernel void cast(global const from_type *x_base, long x_offset, global to_type *out_base,
                 long out_offset, long count)
{
    const long first = (long)get_global_id(0) * 16;
    if (first >= count)
        return;
    global const from_type *x = x_base + x_offset + first;
    global to_type *out = out_base + out_offset + first;
    const int run = (int)min(16L, count - first);
    for (int i = 0; i < run; i++) {
        const VIA v = VALUE(i);
        STORE(v, i);
    }
}
