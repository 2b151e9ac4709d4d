/*
 * What a device can do at most: the rates that other kernels are measured against.
 *
 * kernel clt_fma_peak(out, rounds)
 *   Independent chains of fused multiply-adds in registers. Each work-item does
 *   2 * CHAINS * VW * 16 * rounds operations and writes VW floats.
 * kernel clt_copy(from, to, chunk)
 *   Each work-item copies `chunk` vectors of VW floats; on GPUs neighbours take neighbouring ones.
 * kernel clt_exchange(one, other, chunk)
 *   Likewise, but both arrays are read and written.
 *
 * Build options: VW (1, 4, 8, 16), CHAINS (accumulators), CPU (0, 1), AHEAD (floats; copying on
 * CPUs fetches so far ahead itself; 0: leaves that to the processor).
 */
#if VW == 1
#define VEC float
#define VLOAD(i, p) ((p)[i])
#define VSTORE(v, i, p) ((p)[i] = (v))
#else
#define CAT2(a, b) a##b
#define CAT(a, b) CAT2(a, b)
#define VEC CAT(float, VW)
#define VLOAD CAT(vload, VW)
#define VSTORE CAT(vstore, VW)
#endif

kernel void clt_fma_peak(global float *out, int rounds)
{
    VEC x[CHAINS];
    const float seed = (float)get_global_id(0);
    /* Not constants, so that nothing can be computed at compile time. The chains tend to 2 b, which
     * is far from zero: denormal numbers are slow. */
    const VEC a = (VEC)(0.5f + 1e-9f * (float)rounds), b = (VEC)(seed + 1.0f);
#pragma unroll
    for (int c = 0; c < CHAINS; c++)
        x[c] = (VEC)(seed + (float)c);
    for (int r = 0; r < rounds; r++)
#pragma unroll
        for (int u = 0; u < 16; u++)
#pragma unroll
            for (int c = 0; c < CHAINS; c++)
                x[c] = fma(x[c], a, b);
    VEC sum = x[0];
#pragma unroll
    for (int c = 1; c < CHAINS; c++)
        sum += x[c];
    VSTORE(sum, get_global_id(0), out);
}

#if AHEAD > 0 && defined(CLT_BUILTINS)
#define FETCH(p) __builtin_prefetch((private const void *)(ulong)(p))
#else
#define FETCH(p)
#endif

/* Each work-item exchanges `chunk` vectors of two arrays. */
kernel void clt_exchange(global float *one, global float *other, int chunk)
{
#if CPU
    typedef VEC vec_anywhere __attribute__((aligned(4)));
    const long first = (long)get_global_id(0) * chunk * VW;
    for (int i = 0; i < chunk; i++) {
        FETCH(one + first + i * VW + AHEAD);
        FETCH(other + first + i * VW + AHEAD);
        global vec_anywhere *a = (global vec_anywhere *)(one + first + i * VW);
        global vec_anywhere *b = (global vec_anywhere *)(other + first + i * VW);
        const VEC held = *a;
        *a = *b;
        *b = held;
    }
#else
    const long step = get_global_size(0);
    long at = get_global_id(0);
    for (int i = 0; i < chunk; i++, at += step) {
        const VEC held = VLOAD(at, one);
        VSTORE(VLOAD(at, other), at, one);
        VSTORE(held, at, other);
    }
#endif
}

kernel void clt_copy(global const float *from, global float *to, int chunk)
{
#if CPU
    /* Not by vloadN and vstoreN, which PoCL makes of pieces. */
    typedef VEC vec_anywhere __attribute__((aligned(4)));
    const long first = (long)get_global_id(0) * chunk * VW;
    for (int i = 0; i < chunk; i++) {
        FETCH(from + first + i * VW + AHEAD);
        FETCH(to + first + i * VW + AHEAD);
        *(global vec_anywhere *)(to + first + i * VW) =
            *(global const vec_anywhere *)(from + first + i * VW);
    }
#else
    const long step = get_global_size(0);
    long at = get_global_id(0);
    for (int i = 0; i < chunk; i++, at += step)
        VSTORE(VLOAD(at, from), at, to);
#endif
}
