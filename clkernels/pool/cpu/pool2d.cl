/*
 * Pooling of values in plain order, and its gradients, on CPUs: vectors hold neighbouring windows
 * of a row. All work-groups have one work-item. Work-item (i, j) computes `share` planes
 * (channels of images) from plane i * share on, and of each plane `band` rows from row j * band on:
 * rows of y, or rows of dx. With DIRECT they always are rows of windows.
 *
 * A part of a plane with the padding around it is copied to a tile in private memory, so that no
 * window needs a check for edges: `chunk` columns of windows and `rows` rows at a time. With
 * DIRECT, windows read the plane itself. The host sets DIRECT if no window leaves the plane; for
 * gradients also only if windows neither overlap nor leave gaps.
 *
 * Build options, computed by runtime/ops/pool/pool2d_cpu.c:
 * - VW: width of a vector (4, 8 or 16 floats); MAX: 1 for maxima, 0 for means.
 * - KH, KW, SY, SX, DIL_Y, DIL_X: size, stride and dilation of a window; DIRECT.
 * - SEPARATE: rows of windows are reduced first, and each reduced row serves all windows that
 *   contain it.
 * - TILE: floats of the tile; WINDOWS: elements of the arrays with one value for each window of the
 *   tile.
 */
#define LANES VW
#include "core/batch_blocked/common.clh"

#define SPAN_Y ((KH - 1) * DIL_Y + 1)
#define SPAN_X ((KW - 1) * DIL_X + 1)
/* Strides that a window reaches beyond its own one along x. */
#define SHIFT ((SPAN_X - 1) / SX)
#define UNROLL (KH * KW <= 16)
#define ROUND_UP(n) (((n) + VW - 1) / VW * VW)

#define NUMBERS                                                                                    \
    int planes, int H, int W, int OH, int OW, int py, int px, int count_pad, int share, int band,  \
        int chunk, int rows

#define EACH_PLANE(p)                                                                              \
    for (long p = (long)get_global_id(0) * share, behind = min(p + share, (long)planes);           \
         p < behind; p++)

#if DIRECT
#define SPACE global
#else
#define SPACE private
#endif
#define READ(p) (*(SPACE const vecf_anywhere *)(p))
#define READ_OWN(p) (*(private const vecf_anywhere *)(p))
#define READ_INTS(p) (*(private const veci_anywhere *)(p))
#define WRITE_OWN(v, p) (*(private vecf_anywhere *)(p) = (v))
#define WRITE_INTS(v, p) (*(private veci_anywhere *)(p) = (v))
typedef veci veci_anywhere __attribute__((aligned(4)));

#define EMPTY (MAX ? -INFINITY : 0.0f)

/* The even or odd elements of two vectors, and their interleaving, by one shuffle each. Shuffles
 * made of halves have undefined elements, which crash Oclgrind. */
#ifdef __clang__
#define PICK __builtin_shufflevector
#if VW == 4
#define EVEN(a, b) PICK(a, b, 0, 2, 4, 6)
#define ODD(a, b) PICK(a, b, 1, 3, 5, 7)
#define ZIP_LOW(a, b) PICK(a, b, 0, 4, 1, 5)
#define ZIP_HIGH(a, b) PICK(a, b, 2, 6, 3, 7)
#elif VW == 8
#define EVEN(a, b) PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD(a, b) PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#define ZIP_LOW(a, b) PICK(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH(a, b) PICK(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define EVEN(a, b) PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD(a, b) PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#define ZIP_LOW(a, b) PICK(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH(a, b) PICK(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#endif
#else
#define EVEN(a, b) ((vecf)((a).even, (b).even))
#define ODD(a, b) ((vecf)((a).odd, (b).odd))
#define ZIP_LOW(a, b) clt_zip((a).lo, (b).lo)
#define ZIP_HIGH(a, b) clt_zip((a).hi, (b).hi)
#if VW == 4
#define HALF 2
#elif VW == 8
#define HALF 4
#else
#define HALF 8
#endif
INLINE vecf clt_zip(CLT_JOIN(float, HALF) a, CLT_JOIN(float, HALF) b)
{
    vecf r;
    r.even = a;
    r.odd = b;
    return r;
}
#endif

/* Every SX-th element from p + at on. Taps whose elements lie in the same vectors share the loads,
 * because the compiler removes equal ones. */
INLINE vecf clt_strided(SPACE const float *p, int at)
{
#if SX == 1
    return READ(p + at);
#elif SX == 2
    const vecf a = READ(p + at / 2 * 2), b = READ(p + at / 2 * 2 + VW);
    return at % 2 ? ODD(a, b) : EVEN(a, b);
#elif SX == 4
    SPACE const float *q = p + at / 4 * 4;
    const vecf a = READ(q), b = READ(q + VW), c = READ(q + 2 * VW), d = READ(q + 3 * VW);
    const vecf ab = at % 2 ? ODD(a, b) : EVEN(a, b);
    const vecf cd = at % 2 ? ODD(c, d) : EVEN(c, d);
    return at % 4 / 2 ? ODD(ab, cd) : EVEN(ab, cd);
#else
    float lane[VW];
#pragma unroll
    for (int l = 0; l < VW; l++)
        lane[l] = p[at + l * SX];
    return READ_OWN(lane);
#endif
}

/* Interleaves of[0] .. of[SX - 1] to SX consecutive vectors of a row, and passes them to PUT. */
#if SX == 1
#define SPREAD(of, PUT) PUT(of[0], 0)
#elif SX == 2
#define SPREAD(of, PUT)                                                                            \
    PUT(ZIP_LOW(of[0], of[1]), 0);                                                             \
    PUT(ZIP_HIGH(of[0], of[1]), VW)
#elif SX == 4
#define SPREAD(of, PUT)                                                                            \
    {                                                                                              \
        const vecf e = ZIP_LOW(of[0], of[2]), f = ZIP_HIGH(of[0], of[2]);                  \
        const vecf o = ZIP_LOW(of[1], of[3]), q = ZIP_HIGH(of[1], of[3]);                  \
        PUT(ZIP_LOW(e, o), 0);                                                                 \
        PUT(ZIP_HIGH(e, o), VW);                                                               \
        PUT(ZIP_LOW(f, q), 2 * VW);                                                            \
        PUT(ZIP_HIGH(f, q), 3 * VW);                                                           \
    }
#endif

/* Joins two parts of a window, of which `a` is the earlier: the first maximum, or the last NaN; or
 * the sum. If `nan` is 0, no element is NaN, and the maximum is a single instruction. */
INLINE vecf clt_join(vecf a, vecf b, int nan)
{
    if (!MAX)
        return a + b;
    return nan ? select(a, b, b > a | b != b) : select(a, b, b > a);
}

/* One row of VW windows side by side, reduced. */
INLINE vecf clt_row_of_windows(SPACE const float *p, int nan)
{
    vecf all = clt_strided(p, 0);
#pragma unroll
    for (int kx = 1; kx < KW; kx++)
        all = clt_join(all, clt_strided(p, kx * DIL_X), nan);
    return all;
}

/* VW windows side by side, reduced. The first one begins at p; rows have `width` elements. */
INLINE vecf clt_windows(SPACE const float *p, int width, int nan)
{
    vecf all = clt_row_of_windows(p, nan);
#if UNROLL
#pragma unroll
#endif
    for (int ky = 1; ky < KH; ky++)
        all = clt_join(all, clt_row_of_windows(p + (long)ky * DIL_Y * width, nan), nan);
    return all;
}

/* The taps (ky * KW + kx) of the windows' maxima, or `first` if all elements are minus infinity.
 * `nan` as in clt_join. */
INLINE veci clt_taps(SPACE const float *p, int width, veci first, int nan)
{
    vecf best = -INFINITY;
    veci where = first;
    if (!nan) {
        /* The first tap that equals the maximum. Going from the last tap to the first needs no
         * extra condition. */
        best = clt_windows(p, width, 0);
#if UNROLL
#pragma unroll
#endif
        for (int ky = KH - 1; ky >= 0; ky--)
#pragma unroll
            for (int kx = KW - 1; kx >= 0; kx--)
                where = select(where, (veci)(ky * KW + kx),
                               clt_strided(p + (long)ky * DIL_Y * width, kx * DIL_X) == best);
        return select(where, first, best == -INFINITY);
    }
#if UNROLL
#pragma unroll
#endif
    for (int ky = 0; ky < KH; ky++)
#pragma unroll
        for (int kx = 0; kx < KW; kx++) {
            const vecf v = clt_strided(p + (long)ky * DIL_Y * width, kx * DIL_X);
            const veci better = v > best | v != v;
            best = select(best, v, better);
            where = select(where, (veci)(ky * KW + kx), better);
        }
    return where;
}

/* --- with a tile ------------------------------------------------------------------------------ */

#if !DIRECT

/* Copies rows x width elements of a plane from (top, left) on to the tile. The part outside the
 * plane becomes EMPTY. `width` is a multiple of VW. Returns whether an element is NaN. */
INLINE int clt_stage(global const float *plane, int H, int W, private float *tile, int top,
                      int left, int rows, int width)
{
    const int begin = clamp(-left, 0, width), end = clamp(W - left, begin, width);
    veci nan = 0;
    int rest_nan = 0;
    for (int r = 0; r < rows; r++, tile += width) {
        const int y = top + r;
        const bool inside = y >= 0 && y < H;
        for (int c = 0; c < (inside ? begin : width); c += VW)
            WRITE_OWN((vecf)EMPTY, tile + c);
        if (!inside)
            continue;
        for (int c = end / VW * VW; c < width; c += VW)
            WRITE_OWN((vecf)EMPTY, tile + c);
        global const float *from = plane + (long)y * W + left;
        int c = begin;
        for (; c + VW <= end; c += VW) {
            const vecf v = LOAD(from + c);
            PREFETCH(from + c + AHEAD);
            nan |= v != v;
            WRITE_OWN(v, tile + c);
        }
        if (c < end && end - begin >= VW) {
            const vecf v = LOAD(from + end - VW);
            nan |= v != v;
            WRITE_OWN(v, tile + end - VW);
        } else {
            for (; c < end; c++) {
                const float v = from[c];
                rest_nan |= v != v;
                tile[c] = v;
            }
        }
    }
    return any(nan) || rest_nan;
}

/* Number of elements along one axis that the means of windows o, o + 1, .. count. */
INLINE veci clt_counted(int o, int stride, int padding, int kernel_size, int size, int count_pad)
{
    const veci from = (o + LANE_NUMBERS) * stride - padding;
    const veci end = min(from + kernel_size, (veci)(size + padding));
    return count_pad ? end - from : min(end, (veci)size) - max(from, (veci)0);
}

/* The factors from sum to mean of windows x, x + 1, .. in a row whose windows count `high` elements
 * along y. */
INLINE vecf clt_factors(int high, int x, int W, int px, int count_pad)
{
    const veci counted = high * clt_counted(x, SX, px, KW, W, count_pad);
    return 1.0f / CLT_JOIN(convert_float, VW)(counted);
}

/* Number of taps in front of the image along one axis. */
INLINE int clt_before(int from, int dilation)
{
    return from < 0 ? (dilation - 1 - from) / dilation : 0;
}

/* The first tap in the image of windows (y, x), (y, x + 1), ..; -1 if there is none. */
INLINE veci clt_first_taps(int y, int x, int py, int px)
{
    const int from_x = x * SX - px, ky = clt_before(y * SY - py, DIL_Y);
    if (ky >= KH)
        return -1;
    if (from_x >= 0)
        return ky * KW;
    const veci from = from_x + LANE_NUMBERS * SX;
    const veci kx = select((veci)0, (DIL_X - 1 - from) / DIL_X, from < 0);
    return select((veci)-1, ky * KW + kx, kx < KW);
}

/* Stores a vector, or its first `count` elements if the whole row is shorter than a vector. */
INLINE void clt_put(vecf v, global float *y, int at, int count)
{
    if (count >= VW)
        STORE(v, y + at);
    else
        clt_store_part(v, y, count);
}

/* Where the vector with window `at` begins, of a row of `count` windows. The last vector begins
 * earlier, so that all its lanes are windows. */
#define BEGIN(at, count) ((count) >= VW ? min(at, (count)-VW) : 0)

KERNEL void pool2d(global const float *x, long x_offset, global float *y, long y_offset, NUMBERS)
{
    float tile[TILE], factors[WINDOWS];
#if SEPARATE
    float reduced[TILE];
#endif
    const int first = (int)get_global_id(1) * band, last = min(first + band, OH);
    const int columns = min(chunk, OW);
    const int width = ROUND_UP(SX * (ROUND_UP(columns) + SHIFT));
    EACH_PLANE(p)
    for (int from = 0; from < OW; from += chunk) {
        const int x0 = min(from, OW - columns);
        int counted = 0;
        for (int y0 = first; y0 < last; y0 += rows) {
            const int n = min(rows, last - y0), height = (n - 1) * SY + SPAN_Y;
            const int nan = clt_stage(x + x_offset + p * H * W, H, W, tile, y0 * SY - py,
                                      x0 * SX - px, height, width);
#if SEPARATE
            for (int r = 0; r < height; r++)
                for (int c = 0; c < columns; c += VW)
                    WRITE_OWN(clt_row_of_windows(tile + r * width + c * SX, nan),
                              reduced + r * ROUND_UP(columns) + c);
#endif
            for (int r = 0; r < n; r++) {
                global float *to = y + y_offset + (p * OH + y0 + r) * OW + x0;
                const int high = clt_counted(y0 + r, SY, py, KH, H, count_pad).s0;
                for (int c = 0; !MAX && high != counted && c < columns; c += VW)
                    WRITE_OWN(clt_factors(high, x0 + c, W, px, count_pad), factors + c);
                counted = high;
                for (int c = 0; c < columns; c += VW) {
                    const int at = BEGIN(c, columns);
#if SEPARATE
                    private const float *row = reduced + r * SY * ROUND_UP(columns) + at;
                    vecf all = READ(row);
                    for (int ky = 1; ky < KH; ky++)
                        all = clt_join(all, READ(row + ky * DIL_Y * ROUND_UP(columns)), nan);
#else
                    private const float *windows = tile + r * SY * width + at * SX;
                    const vecf all =
                        nan ? clt_windows(windows, width, 1) : clt_windows(windows, width, 0);
#endif
                    clt_put(MAX ? all : all * READ_OWN(factors + at), to, at, columns);
                }
            }
        }
    }
}

/* Gathers dx from the gradient of each window: `given` goes to the element of tap `taps` (MAX), or
 * to all elements of the window (means, already multiplied by the factor). Rows of both arrays have
 * `windows` elements and begin at window (y0, x0 - SHIFT). sums[i] collects every SX-th column of
 * dx, beginning at column i. Rows of dx are written to the tile from column x0 * SX - px on. */
INLINE void clt_gather(private const int *taps, private const float *given, int windows, int y0,
                       int y_count, int top, int rows, int py, private float *tile, int columns,
                       int width)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c += VW) {
            vecf sums[SX];
#pragma unroll
            for (int i = 0; i < SX; i++)
                sums[i] = 0.0f;
            for (int ky = KH - 1; ky >= 0; ky--) {
                const int t = top + r + py - ky * DIL_Y, o = t / SY - y0;
                if (t < 0 || t % SY || o < 0 || o >= y_count)
                    continue;
#pragma unroll
                for (int kx = 0; kx < KW; kx++) {
                    const int at = o * windows + c + SHIFT - kx * DIL_X / SX;
                    const vecf g = READ_OWN(given + at);
#if MAX
                    sums[kx * DIL_X % SX] +=
                        select((vecf)0.0f, g, READ_INTS(taps + at) == ky * KW + kx);
#else
                    sums[kx * DIL_X % SX] += g;
#endif
                }
            }
            private float *to = tile + r * width + c * SX;
#ifdef SPREAD
#define PUT_OWN(v, at) WRITE_OWN(v, to + (at))
            SPREAD(sums, PUT_OWN);
#else
            for (int i = 0; i < SX; i++) {
                float lane[VW];
                WRITE_OWN(sums[i], lane);
                for (int l = 0; l < VW; l++)
                    to[l * SX + i] = lane[l];
            }
#endif
        }
}

INLINE void clt_copy_out(private const float *from, global float *to, int count)
{
    int c = 0;
    for (; c + VW <= count; c += VW)
        STORE(READ_OWN(from + c), to + c);
    if (c < count && count >= VW) {
        STORE(READ_OWN(from + count - VW), to + count - VW);
    } else {
        for (; c < count; c++)
            to[c] = from[c];
    }
}

#if MAX
#define OPERANDS                                                                                   \
    global const float *x, long x_offset, global const float *dy, long dy_offset
#else
#define OPERANDS global const float *dy, long dy_offset
#endif

KERNEL void pool2d_grad(OPERANDS, global float *dx, long dx_offset, NUMBERS)
{
    float tile[TILE], given[WINDOWS];
    int taps[MAX ? WINDOWS : 1];
    const int first = (int)get_global_id(1) * band, last = min(first + band, H);
    const int all = (W - 1 + px) / SX + 1; /* dx in columns of SX elements */
    const int columns = min(chunk, all), windows = ROUND_UP(columns) + ROUND_UP(SHIFT);
    const int width = ROUND_UP(SX * (windows + SHIFT));
    EACH_PLANE(p)
    for (int from = 0; from < all; from += chunk)
        for (int top = first; top < last; top += rows) {
            const int n = min(rows, last - top);
            const int lowest = top + py - SPAN_Y + 1; /* earliest window with row `top` starts */
            const int y0 = lowest > 0 ? (lowest + SY - 1) / SY : 0;
            const int y_count = max(min((top + n - 1 + py) / SY, OH - 1) - y0 + 1, 0);
            const int x0 = min(from, all - columns), left = x0 * SX - px;
#if MAX
            const int nan = y_count && clt_stage(x + x_offset + p * H * W, H, W, tile, y0 * SY - py,
                                                 left - SHIFT * SX, (y_count - 1) * SY + SPAN_Y,
                                                 width);
#endif
            for (int r = 0; r < y_count; r++) {
                const int begin = clamp(SHIFT - x0, 0, windows);
                const int end = clamp(OW - x0 + SHIFT, begin, windows);
                private float *to = given + r * windows;
                global const float *g =
                    dy + dy_offset + (p * OH + y0 + r) * OW + x0 - SHIFT;
                for (int c = 0; c < windows; c += VW) {
                    const bool whole = c >= begin && c + VW <= end;
                    if (whole)
                        WRITE_OWN(LOAD(g + c), to + c);
                    else
                        for (int l = c; l < c + VW; l++)
                            to[l] = l >= begin && l < end ? g[l] : 0.0f;
#if MAX
                    private const float *at = tile + r * SY * width + c * SX;
                    const veci in_image = clt_first_taps(y0 + r, x0 - SHIFT + c, py, px);
                    WRITE_INTS(nan ? clt_taps(at, width, in_image, 1)
                                   : clt_taps(at, width, in_image, 0),
                               taps + r * windows + c);
#else
                    const int high = clt_counted(y0 + r, SY, py, KH, H, count_pad).s0;
                    const vecf factors = clt_factors(high, x0 - SHIFT + c, W, px, count_pad);
                    const veci here = c + LANE_NUMBERS;
                    WRITE_OWN(select((vecf)0.0f, READ_OWN(to + c) * factors,
                                     here >= begin & here < end),
                              to + c);
#endif
                }
            }
            clt_gather(taps, given, windows, y0, y_count, top, n, py, tile, columns, width);
            const int begin = max(-left, 0), end = min(W - left, columns * SX);
            for (int r = 0; r < n; r++)
                clt_copy_out(tile + r * width + begin,
                             dx + dx_offset + (p * H + top + r) * W + left + begin, end - begin);
        }
}

/* --- without a tile --------------------------------------------------------------------------- */

#else

/* Loop over the work-item's rows of windows in pieces without a gap, of `count` rows each: its band
 * of one plane, or all its planes at once if no row is left between planes. `plane` is the first
 * one. */
#define EACH_PIECE(plane, count)                                                             \
    const long plane = (long)get_global_id(0) * share;                                             \
    const long n_planes = min((long)share, planes - plane);                                        \
    const int first = (int)get_global_id(1) * band;                                                \
    const bool whole = H == OH * SY && band >= OH;                                                 \
    const long count = whole ? n_planes * OH : min(band, OH - first);                              \
    for (long piece = 0; piece < (whole ? 1 : n_planes); piece++)

/* Loop over the vectors of a row of at least VW windows. The last vector begins earlier, so that it
 * ends with the row. */
#define EACH_VECTOR(at)                                                                            \
    for (int c = 0, at = 0; c < OW; c += VW, at = min(c, OW - VW))

KERNEL void pool2d(global const float *x, long x_offset, global float *y, long y_offset, NUMBERS)
{
    EACH_PIECE(plane, count)
    {
        global const float *from = x + x_offset + ((plane + piece) * H + first * SY) * W;
        global float *to = y + y_offset + ((plane + piece) * OH + first) * OW;
        for (long r = 0; r < count; r++, from += SY * W, to += OW) {
            EACH_VECTOR(at)
            {
                const vecf all = clt_windows(from + at * SX, W, 1);
                for (int ky = 0; ky < KH; ky++)
                    PREFETCH(from + ky * W + at * SX + AHEAD);
                STORE(MAX ? all : all * (1.0f / (KH * KW)), to + at);
            }
        }
    }
}

#if KH == SY && KW == SX && defined SPREAD
INLINE void clt_clear(global float *x, long count)
{
    for (long i = 0; i < count; i++)
        x[i] = 0.0f;
}

#if MAX
KERNEL void pool2d_grad(global const float *x, long x_offset, global const float *dy,
                        long dy_offset, global float *dx, long dx_offset, NUMBERS)
#else
KERNEL void pool2d_grad(global const float *dy, long dy_offset, global float *dx, long dx_offset,
                        NUMBERS)
#endif
{
    EACH_PIECE(plane, count)
    {
        const long begin = ((plane + piece) * H + first * SY) * W;
        global const float *g_row = dy + dy_offset + ((plane + piece) * OH + first) * OW;
        global float *to_row = dx + dx_offset + begin;
#if MAX
        global const float *x_row = x + x_offset + begin;
#endif
        for (long r = 0; r < count; r++, g_row += OW, to_row += SY * W) {
            EACH_VECTOR(at)
            {
                vecf g = LOAD(g_row + at);
                PREFETCH(g_row + at + AHEAD);
#if MAX
                const veci taps = clt_taps(x_row + at * SX, W, (veci)0, 1);
#else
                g *= 1.0f / (KH * KW);
#endif
#pragma unroll
                for (int ky = 0; ky < KH; ky++) {
                    global float *to = to_row + ky * W + at * SX;
                    vecf of[SX];
#if MAX
                    PREFETCH(x_row + ky * W + at * SX + AHEAD);
#endif
                    PREFETCH(to + AHEAD);
#pragma unroll
                    for (int kx = 0; kx < KW; kx++)
#if MAX
                        of[kx] = select((vecf)0.0f, g, taps == ky * KW + kx);
#else
                        of[kx] = g;
#endif
#define PUT(v, at) STORE(v, to + (at))
                    SPREAD(of, PUT);
                }
            }
            for (int ky = 0; OW * SX < W && ky < SY; ky++)
                clt_clear(to_row + ky * W + OW * SX, W - OW * SX);
#if MAX
            x_row += SY * W;
#endif
        }
        if (!whole && first + count == OH)
            clt_clear(to_row, (long)(H - OH * SY) * W);
    }
}
#endif
#endif
