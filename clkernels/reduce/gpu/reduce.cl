/*
 * Sums, maxima and counts over axes on GPUs. Result o of `count` has index (i0 .. i3) in
 * k0 x .. x k3 and begins at x[i0 * a0 + .. + i3 * a3]. Its `length` elements lie
 * j0 * b0 + .. + j3 * b3 further, for (j0 .. j3) in r0 x .. x r3. With several parts, each group
 * computes partial results over one of `parts` equal shares, and a second launch of the same kernel
 * joins them. The last launch divides by `divisor`, if it is not 0.
 *
 * The file has one kernel a program. `rows` (with ROWS) is for results whose elements lie side by
 * side: WIDTH work-items of a group compute one result. `columns` is for results that lie side by
 * side in the operand: WIDTH work-items compute V results each, and GROUP / WIDTH such rows of
 * work-items share the elements. In both, neighbouring work-items read neighbouring elements, and a
 * tree in local memory joins the work-items' results.
 *
 * Build options: ROWS; OP: 0 (sum), 1 (maximum) or 2 (number of elements that equal y[o]); V: 4 if
 * float4 fits the elements (rows) or the results (columns), else 1; KEPT, REDUCED: how many of the
 * sizes k and r are used, the last ones; GROUP: work-items of a group; WIDTH.
 */
#include "core/gpu/halves.clh"
#include "core/gpu/tree.clh"

#if V == 4
#define VEC float4
#define READ(p) GET4(IN0, p)
#else
#define VEC float
#define READ(p) GET(IN0, p)
#endif

#if OP == 1
#define NEUTRAL (-INFINITY)
#define JOIN(a, b) ((b) > (a) || isnan(b) ? (b) : (a))
#else
#define NEUTRAL 0.0f
#define JOIN(a, b) ((a) + (b))
#endif

#define SIZES(x) long x##0, long x##1, long x##2, long x##3
#if OP == 2
#define OPERANDS                                                                                   \
    global const STORED(IN0) *x_base, long x_offset, global const float *y_base, long y_offset
#else
#define OPERANDS global const STORED(IN0) *x_base, long x_offset
#endif
#define ARGUMENTS                                                                                  \
    OPERANDS, global float *out_base, long out_offset, int count, int parts, int length,           \
        int divisor, SIZES(k), SIZES(a), SIZES(r), SIZES(b)

/* The offset of index `at` in n0 x .. x n3 with strides s0 .. s3, of which the last `rank` are
 * used. */
static inline long strided_offset(int at, int rank, int n1, int n2, int n3, long s0, long s1, long s2,
                        long s3)
{
    if (rank < 2)
        return at * s3;
    const int at2 = at / n3;
    if (rank == 2)
        return (at - at2 * n3) * s3 + at2 * s2;
    const int at1 = at2 / n2, at0 = at1 / n1;
    return (at - at2 * n3) * s3 + (at2 - at1 * n2) * s2 + (at1 - at0 * n1) * s1 + at0 * s0;
}

/* Reduces the elements at, at + step, .. below `end`, counted from x, V side by side. With two
 * sizes (REDUCED 2), the indices advance by additions, because divisions are slow. */
static inline VEC gather(global const STORED(IN0) *x, VEC y, int at, int step, int end, int r1, int r2,
                         int r3, long b0, long b1, long b2, long b3)
{
    VEC all = NEUTRAL;
#if REDUCED == 2
    int j2 = at / r3, j3 = at - j2 * r3;
    const int step2 = step / r3, step3 = step - step2 * r3;
#endif
#pragma unroll 4
    for (; at < end; at += step) {
#if REDUCED == 2
        const VEC v = READ(x + j2 * b2 + j3 * b3);
        j2 += step2;
        j3 += step3;
        if (j3 >= r3) {
            j3 -= r3;
            j2++;
        }
#else
        const VEC v = READ(x + strided_offset(at, REDUCED, r1, r2, r3, b0, b1, b2, b3));
#endif
#if OP == 0
        all += v;
#elif OP == 1
        all = (v > all | isnan(v)) ? v : all;
#else
        all += (v == y) ? (VEC)(1.0f) : (VEC)(0.0f);
#endif
    }
    return all;
}

static inline float join_parts(VEC v)
{
#if V == 4
    const float xy = JOIN(v.x, v.y), zw = JOIN(v.z, v.w);
    return JOIN(xy, zw);
#else
    return v;
#endif
}

/* The share of the elements of part `part`, a multiple of V, and the factor for the result. */
#define ELEMENTS                                                                                   \
    const int share = (length + parts * V - 1) / (parts * V) * V;                                  \
    const int begin = min(part * share, length);                                                   \
    const float factor = divisor ? 1.0f / (float)divisor : 1.0f;

#ifdef ROWS

CLT_TREE(tree, float, JOIN, WIDTH, 1)

/* WIDTH work-items compute one result. Partial results are [count, parts]. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void rows(ARGUMENTS)
{
    local float s[GROUP];
    const int lid = (int)get_local_id(0), lane = lid % WIDTH;
    const int o = (int)get_group_id(0) * (GROUP / WIDTH) + lid / WIDTH, at = min(o, count - 1);
    const int part = (int)get_group_id(1);
    ELEMENTS
    const int end = o < count ? min(begin + share, length) : 0;
    VEC y = 0.0f;
#if OP == 2
    y = y_base[y_offset + at];
#endif
    const VEC all = gather(x_base + x_offset + strided_offset(at, KEPT, k1, k2, k3, a0, a1, a2, a3), y,
                           begin + lane * V, WIDTH * V, end, r1, r2, r3, b0, b1, b2, b3);
    const float total = tree(s, join_parts(all), lid, lane);
    if (lane == 0 && o < count)
        out_base[out_offset + (long)o * parts + part] = total * factor;
}

#else

#define JOIN_VEC(a, b) ((b) > (a) | isnan(b) ? (b) : (a))
#if OP == 1
CLT_TREE(tree, VEC, JOIN_VEC, (GROUP / WIDTH), WIDTH)
#else
CLT_TREE(tree, VEC, CLT_ADD, (GROUP / WIDTH), WIDTH)
#endif

/* Partial results are [parts, count]. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void columns(ARGUMENTS)
{
    local VEC s[GROUP];
    const int lid = (int)get_local_id(0), lane = lid % WIDTH, row = lid / WIDTH;
    const int blocks = ((int)k3 + WIDTH * V - 1) / (WIDTH * V), group = (int)get_group_id(0);
    const int outer = group / blocks, column = ((group - outer * blocks) * WIDTH + lane) * V;
    const int part = (int)get_group_id(1);
    const int o = outer * (int)k3 + column, inside = column < k3;
    ELEMENTS
    const int end = inside ? min(begin + share, length) : 0;
    VEC y = 0.0f;
#if OP == 2
    y = *(global const VEC *)(y_base + y_offset + (inside ? o : 0));
#endif
    const VEC all =
        gather(x_base + x_offset + strided_offset(outer, KEPT - 1, k0, k1, k2, 0, a0, a1, a2) + column, y,
               begin + row, GROUP / WIDTH, end, r1, r2, r3, b0, b1, b2, b3);
    const VEC total = tree(s, all, lid, row);
    if (row == 0 && inside)
        *(global VEC *)(out_base + out_offset + (long)part * count + o) = total * factor;
}

#endif
