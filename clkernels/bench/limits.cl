/*
 * Measures the limits of a device: the peak rates that other kernels are compared with
 * (runtime/tune/limits.c).
 *
 * kernel clt_fma_peak(out, rounds)
 *   Computes CHAINS independent chains of fused multiply-adds in registers. A work-item executes
 *   2 * CHAINS * VW * 16 * rounds floating-point operations and writes VW floats.
 * kernel clt_copy(from, to, chunk)
 *   A work-item copies `chunk` vectors of VW floats: neighbouring vectors on CPUs, on GPUs vectors
 *   that lie get_global_size(0) apart.
 * kernel clt_exchange(one, other, chunk)
 *   Exchanges the contents of two arrays. The vectors of a work-item are those of clt_copy.
 *
 * Build options: VW (1, 4, 8, 16); CHAINS (accumulators); CPU (0, 1); AHEAD (how many floats ahead
 * the copies on CPUs prefetch; 0: only the processor prefetches).
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
    /* a and b depend on arguments, so that the compiler cannot compute the chains. The chains tend
     * to 2 b, far from zero, because subnormal numbers would be slow. */
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
    /* PoCL builds vloadN and vstoreN from smaller loads and stores, so pointers to vectors are
     * used. */
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
