/*
 * Sums over axes where the results lie side by side in the operand, on CPUs: work-group size 1. A
 * work-item has WIDTH neighbouring results and an equal share, in order, of the `length` elements
 * that each is made of; with more than one part, portable/reduce.cl joins the partial results.
 *
 * Result (i0, i1, i2, i3) of k0 x .. x k3 begins at x[i0 * a0 + i1 * a1 + i2 * a2 + i3]; its elements
 * lie at the sums of jk * bk for (j0 .. j3) in r0 x .. x r3.
 * Global size: ceil(k3 / WIDTH) * k0 * k1 * k2 * parts. Build option: VW, lanes of a vector.
 */
#define CAT2(a, b) a##b
#define CAT(a, b) CAT2(a, b)
#define VEC CAT(float, VW)
#define VLOAD(p) CAT(vload, VW)(0, p)
#define VSTORE(v, p) CAT(vstore, VW)(v, 0, p)
#define WIDTH 64
#define VECTORS (WIDTH / VW)

#define SIZES(x) long x##0, long x##1, long x##2, long x##3
#define DIGIT(i, n)                                                                                \
    long i = 0;                                                                                    \
    if (n > 1) {                                                                                   \
        i = rest % n;                                                                              \
        rest /= n;                                                                                 \
    }

/* Adds `run` rows, `step` apart, to WIDTH sums: those of the rows first, which keeps rounding errors
 * small. */
static inline void add_rows(global const float *x, long step, int run, VEC *total)
{
    VEC block[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
        block[v] = (VEC)(0.0f);
    for (int i = 0; i < run; i++, x += step)
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            block[v] += VLOAD(x + v * VW);
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
        total[v] += block[v];
}

static inline float add_column(global const float *x, long step, int run)
{
    float sum = 0.0f;
    for (int i = 0; i < run; i++)
        sum += x[i * step];
    return sum;
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
add(global const float *x_base, long x_offset, global float *out_base, long out_offset, long count,
    int parts, long length, int divide, SIZES(k), SIZES(a), SIZES(r), SIZES(b))
{
    long rest = (long)get_global_id(0);
    const long groups = (k3 + WIDTH - 1) / WIDTH, column = rest % groups * WIDTH;
    rest /= groups;
    DIGIT(i2, k2) DIGIT(i1, k1) DIGIT(i0, k0)
    const long part = rest, share = (length + parts - 1) / parts;
    const long end = min((part + 1) * share, length);
    const int width = (int)min((long)WIDTH, k3 - column);
    const float factor = divide && length ? 1.0f / (float)length : 1.0f;
    global const float *from = x_base + x_offset + i0 * a0 + i1 * a1 + i2 * a2 + column;
    global float *out =
        out_base + out_offset + part * count + ((i0 * k1 + i1) * k2 + i2) * k3 + column;
    VEC total[VECTORS];
    float last[WIDTH];
    for (int v = 0; v < VECTORS; v++)
        total[v] = (VEC)(0.0f);
    for (int c = 0; c < WIDTH; c++)
        last[c] = 0.0f;
    for (long at = part * share; at < end;) {
        rest = at;
        DIGIT(j3, r3) DIGIT(j2, r2) DIGIT(j1, r1) DIGIT(j0, r0)
        global const float *x = from + j0 * b0 + j1 * b1 + j2 * b2 + j3 * b3;
        const int run = (int)min(min(end - at, r3 - j3), 256L);
        at += run;
        if (width == WIDTH)
            add_rows(x, b3, run, total);
        else
            for (int c = 0; c < width; c++)
                last[c] += add_column(x + c, b3, run);
    }
    if (width == WIDTH)
        for (int v = 0; v < VECTORS; v++)
            VSTORE(total[v] * factor, out + v * VW);
    else
        for (int c = 0; c < width; c++)
            out[c] = last[c] * factor;
}
