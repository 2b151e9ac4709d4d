/*
 * Gradients of the weights and the bias of a convolution in the batch-blocked layout. A work-group
 * computes the weights of TO output channels and CI_BLOCK input channels over one chunk of the
 * batch. It adds up vectors, one lane for each image, and adds the lanes at the end.
 *
 * kernel clt_batch_blocked_conv_weight_grad(x, x_at, g, g_at, mask, mask_at, dw, dw_at, db, db_at,
 *                                   n, groups, ci, ih, iw, co, oh, ow, chunk)
 *   x     [B][groups * ci][ih][iw] in batch blocks
 *   g     [B][groups * co][oh][ow] in batch blocks: gradient of the convolution's output; with
 *         UNPOOL the gradient of its 2 x 2 pooled output, [B][groups * co][oh / 2][ow / 2]
 *   mask  uchar, as the forward kernel wrote it; read only with UNPOOL
 *   dw    [chunks][groups * co][ci][KY][KX], db [chunks][groups * co]: sums over each chunk of the
 *         batch. One chunk's sums are the gradients; clt_batch_blocked_sum_chunks adds several.
 *   n images; ci, co channels of a group; chunk: blocks of LANES images in a chunk
 *   global size: (ceil(ci / CI_BLOCK), groups * ceil(co / TO), chunks), local (1, 1, 1), where
 *   chunks = ceil(ceil(n / LANES) / chunk), but at least 1, so that n = 0 gives zeros
 *
 * Build options (defaults in brackets):
 *   LANES; KY, KX; SY, SX, DY, DX [1]; PY, PX [0]
 *   IN0, IN1 [f]   how x and g are stored (core/storage.clh)
 *   BIAS [0]       1: computes db
 *   UNPOOL [0]     1: g / 4 flows to the elements in the mask (average), 2: g (maximum)
 *   TO, TI, TK [2, 1, KX]
 *                  register tile, output channels x input channels x columns of taps, each at most
 *                  8. It takes TO * TI * TK + TO + 1 registers of LANES floats: with 16 registers
 *                  for example 2 x 1 x 5, 3 x 1 x 3 or 3 x 4 x 1.
 *   TR [1]         rows of taps of the tile, at most 8; above 1 only with TI = 1. x and g are read
 *                  once for all these rows. The tile takes TO * TR * TK + TO + 1 registers, and TO
 *                  more for the bias if CI_BLOCK is 1 and the tile has all taps.
 *   CI_BLOCK [TI]  input channels of a work-group, a multiple of TI. TO * CI_BLOCK * KY * KX *
 *                  LANES floats are on the stack, and should fit into a part of the first-level
 *                  cache.
 *   UNROLL [1]     columns of an iteration of the inner loop
 *   TOGETHER [1]   blocks of images that a pass of the register tile takes; with UNPOOL 1. Their
 *                  planes of TO + TI channels should fit into the first-level cache.
 *   BAND, COLUMNS  with UNPOOL: rows that are unpooled at a time, an even number, and ow / 2 * 2.
 *                  TO * BAND * COLUMNS * LANES more floats are on the stack.
 *
 * kernel clt_batch_blocked_sum_chunks(part, part_at, out, out_at, count, chunk, n)
 *   out[i] = sum over c of part[c][i], for i < count, over ceil(ceil(n / LANES) / chunk) chunks, in
 *   order. A work-item computes SPREAD [1024] elements.
 *   global size: (ceil(count / SPREAD), 1, 1), local (1, 1, 1)
 */
#include "core/batch_blocked/halves.clh"
#include "core/batch_blocked/stride.clh"

#ifndef BIAS
#define BIAS 0
#endif
#ifndef UNPOOL
#define UNPOOL 0
#endif
#ifndef TO
#define TO 2
#endif
#ifndef TI
#define TI 1
#endif
#ifndef TK
#define TK KX
#endif
#ifndef TR
#define TR 1
#endif
#ifndef CI_BLOCK
#define CI_BLOCK TI
#endif
#ifndef UNROLL
#define UNROLL 1
#endif
#ifndef TOGETHER
#define TOGETHER 1
#endif
#ifndef SPREAD
#define SPREAD 1024
#endif

#define TILE_ROWS TO
#define TILE_COLS TI
#include "core/batch_blocked/tile.clh"

#define TAPS (KY * KX)
/* The index of the sum of (o, i, ky, kx) in the work-group's block. */
#define SUM_AT(o, i, ky, kx) ((((o) * CI_BLOCK + (i)) * KY + (ky)) * KX + (kx))

#ifdef KX

/* A tile has LINES lines: input channels, or with TR > 1 rows of taps of one channel. */
#if TR > 1
#define LINES TR
#define CHANNEL(i) 0
#define TAP_ROW(i) i
#else
#define LINES TI
#define CHANNEL(i) i
#define TAP_ROW(i) 0
#endif
/* 1 if the tile's pass over the gradient also adds up the bias. */
#define BIAS_INSIDE (BIAS && CI_BLOCK == 1 && TR > 1 && TR >= KY && TK >= KX)

/* Parts of clt_weight_tile; they use its variables. HOLDS: the tile has tap k of line i. */
#define TAP_AT(i, k) (i * TK + k)
#define HOLDS(i, k)                                                                                \
    ((TK == KX || kx0 + k < KX) && (TAP_ROW(i) == 0 || KY % TR == 0 || ky + TAP_ROW(i) < KY))
#define SUM_OF(o, i, k) sums[SUM_AT(o, i0 + CHANNEL(i), ky + TAP_ROW(i), kx0 + k)]
#define GET_SUM(k, o, i)                                                                           \
    if (HOLDS(i, k))                                                                               \
        a[o][TAP_AT(i, k)] = SUM_OF(o, i, k);
#define GET_TAPS(i, o, b) FOR_C(TK, GET_SUM, o, i)
#define GET_ROW(o, a, b) FOR_B(LINES, GET_TAPS, o, 0)
#define GET_BIAS(o, p, q) b[o] = bias[o];
#define PUT_BIAS(o, p, q) bias[o] = all ? b[o] : select(bias[o], b[o], valid);
#define ADD_BIAS(o, p, q) b[o] += d##o;
#if BIAS_INSIDE
#define ADD_BIASES FOR_A(TO, ADD_BIAS, 0, 0)
#else
#define ADD_BIASES
#endif
#if TR > 1
#define ROW_INSIDE(i) ((uint)(top + TAP_ROW(i) * DY) < (uint)ih)
#else
#define ROW_INSIDE(i) 1
#endif

/*
 * Adds products of the gradient and of the inputs under tap (ky + r, kx0 + k) to sum (o, i0 + i,
 * ky + r, kx0 + k), for rows first .. last - 1 of the gradient in `together` blocks of images, which
 * are g_block and x_block apart. Row `first` of channel o is at g + o * g_plane; rows are g_row
 * apart. Unless `all`, only the lanes in `valid` are added. Channels
 * from `no` and `ni` on repeat the last one, and their sums are not used. With BIAS_INSIDE, the
 * gradient is also added to bias[o].
 */
#if UNPOOL
#define G_SPACE private
typedef float g_type;
#define clt_load_g(g) (*(private const vecf_anywhere *)(g))
#else
#define G_SPACE global
typedef STORED(IN1) g_type;
#define clt_load_g(g) LOAD_AS(IN1, g)
#endif

INLINE void clt_weight_tile(private vecf *sums, private vecf *bias, G_SPACE const g_type *g,
                            int g_plane, int g_row, global const STORED(IN0) * x, int together,
                            long g_block, long x_block, int ih, int iw, int ow, int first, int last,
                            int no, int ni, int i0, int ky, int kx0, veci valid, int all)
{
    /* In columns from `high` on, some tap of the tile lies behind the image. */
    const int end = iw + PX - (min(kx0 + TK, KX) - 1) * DX;
    const int high = min(end > 0 ? (end + SX - 1) / SX : 0, ow);
    const int step = SX * LANES + (ih < 0); /* see conv.cl */
    vecf a[TO][LINES * TK], b[TO];
    FOR_A(TO, GET_ROW, 0, 0)
#if BIAS_INSIDE
    FOR_A(TO, GET_BIAS, 0, 0)
#endif
    const int above = PY - ky * DY;
#if TR > 1
    const int from = first, to = last;
    const int most = (min(TR, KY - ky) - 1) * DY; /* from the first row of taps to the last */
#else
    /* The rows whose input row lies in the image. */
    const int below = ih - 1 + above;
    const int from = max(first, above > 0 ? (above + SY - 1) / SY : 0);
    const int to = min(last, below < 0 ? 0 : below / SY + 1);
#endif
    const int ix0 = kx0 * DX - PX;
    global const STORED(IN0) *row = x + ((from * SY - above) * iw + ix0) * LANES;
    /* Steps from the end of a row to the beginning of the next. */
    const int next_x = (SY * iw - ow * SX) * LANES, next_g = g_row - ow * LANES;
#define POINT_X(i, a, b)                                                                           \
    global const STORED(IN0) *x##i =                                                               \
        row + (min(CHANNEL(i), ni - 1) * ih + TAP_ROW(i) * DY) * iw * LANES;
#define POINT_G(o, a, b)                                                                           \
    G_SPACE const g_type *g##o = g + min(o, no - 1) * g_plane + (from - first) * g_row;
    for (int block = 0; block < together; block++, row += x_block, g += g_block) {
        FOR_A(LINES, POINT_X, 0, 0)
        FOR_A(TO, POINT_G, 0, 0)
        for (int r = from; r < to; r++) {
#if TR > 1
            const int top = r * SY - above, inside = top >= 0 && top + most < ih;
#else
            const int inside = 1;
#endif
#define LOAD_G(o, a, b) const vecf d##o = clt_load_g(g##o);
#define ADD(o, i, k) a[o][TAP_AT(i, k)] = fma(v, d##o, a[o][TAP_AT(i, k)]);
#define TAP(k, i, b)                                                                               \
    if (HOLDS(i, k)) {                                                                             \
        const vecf v = LOAD_AS(IN0, x##i + k * DX * LANES);                                        \
        FOR_A(TO, ADD, i, k)                                                                       \
    }
#define TAP_CHECKED(k, i, b)                                                                       \
    if (HOLDS(i, k) && (uint)(ix0 + c * SX + k * DX) < (uint)iw && ROW_INSIDE(i)) {                \
        const vecf v = LOAD_AS(IN0, x##i + k * DX * LANES);                                        \
        FOR_A(TO, ADD, i, k)                                                                       \
    }
#define TAPS_OF(i, M, b) FOR_C(TK, M, i, 0)
#define NEXT_X(i, a, b) x##i += step;
#define NEXT_G(o, a, b) g##o += LANES;
#define NEXT_ROW_X(i, a, b) x##i += next_x;
#define NEXT_ROW_G(o, a, b) g##o += next_g;
            int c = 0;
#if PX > 0 || TR > 1
            for (; c < ow && (!inside || ix0 + c * SX < 0); c++) {
                FOR_A(TO, LOAD_G, 0, 0)
                FOR_B(LINES, TAPS_OF, TAP_CHECKED, 0)
                ADD_BIASES
                FOR_A(LINES, NEXT_X, 0, 0)
                FOR_A(TO, NEXT_G, 0, 0)
            }
#endif
#pragma unroll UNROLL
            for (; c < high; c++) {
                FOR_A(TO, LOAD_G, 0, 0)
                FOR_B(LINES, TAPS_OF, TAP, 0)
                ADD_BIASES
                FOR_A(LINES, NEXT_X, 0, 0)
                FOR_A(TO, NEXT_G, 0, 0)
            }
#if PX > 0 || TR > 1
            for (; c < ow; c++) {
                FOR_A(TO, LOAD_G, 0, 0)
                FOR_B(LINES, TAPS_OF, TAP_CHECKED, 0)
                ADD_BIASES
                FOR_A(LINES, NEXT_X, 0, 0)
                FOR_A(TO, NEXT_G, 0, 0)
            }
#endif
            FOR_A(LINES, NEXT_ROW_X, 0, 0)
            FOR_A(TO, NEXT_ROW_G, 0, 0)
        }
    }
#define PUT_SUM(k, o, i)                                                                           \
    if (HOLDS(i, k)) {                                                                             \
        private vecf *to = &SUM_OF(o, i, k);                                                       \
        *to = all ? a[o][TAP_AT(i, k)] : select(*to, a[o][TAP_AT(i, k)], valid);                   \
    }
#define PUT_TAPS(i, o, b) FOR_C(TK, PUT_SUM, o, i)
#define PUT_ROW(o, a, b) FOR_B(LINES, PUT_TAPS, o, 0)
    FOR_A(TO, PUT_ROW, 0, 0)
#if BIAS_INSIDE
    FOR_A(TO, PUT_BIAS, 0, 0)
#endif
}

#if UNPOOL
/* Computes rows first .. last - 1 of the gradient before pooling, for `no` channels. */
INLINE void clt_unpool_band(private vecf *band, global const STORED(IN1) * g, global const uchar *mask,
                            int oh, int ow, int first, int last, int no)
{
    const int ph = oh / 2, pw = ow / 2;
    for (int o = 0; o < no; o++) {
        for (int r = first; r < last; r += 2) {
            private vecf *to = band + (o * BAND + r - first) * COLUMNS;
            for (int c = 0; c < pw; c++) {
                const int at = ((o * ph + r / 2) * pw + c) * LANES;
                const vecf v = LOAD_AS(IN1, g + at) * (UNPOOL == 1 ? 0.25f : 1.0f);
                const veci bits = TO_INTS(LOAD_BYTES(mask + at));
                to[2 * c] = select((vecf)0.0f, v, (bits & 1) != 0);
                to[2 * c + 1] = select((vecf)0.0f, v, (bits & 2) != 0);
                to[COLUMNS + 2 * c] = select((vecf)0.0f, v, (bits & 4) != 0);
                to[COLUMNS + 2 * c + 1] = select((vecf)0.0f, v, (bits & 8) != 0);
            }
        }
    }
}
#endif

/* Adds the sums of `rows` rows of the gradient to the bias of `no` channels. */
INLINE void clt_bias_rows(private vecf *bias, G_SPACE const g_type *g, int g_plane, int g_row, int ow,
                          int rows, int no, veci valid, int all)
{
    for (int o = 0; o < no; o++) {
        vecf s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
        for (int r = 0; r < rows; r++) {
            G_SPACE const g_type *row = g + o * g_plane + r * g_row;
            int c = 0;
            for (; c + 4 <= ow; c += 4) {
                s0 += clt_load_g(row + c * LANES);
                s1 += clt_load_g(row + (c + 1) * LANES);
                s2 += clt_load_g(row + (c + 2) * LANES);
                s3 += clt_load_g(row + (c + 3) * LANES);
            }
            for (; c < ow; c++)
                s0 += clt_load_g(row + c * LANES);
        }
        const vecf sum = bias[o] + ((s0 + s1) + (s2 + s3));
        bias[o] = all ? sum : select(bias[o], sum, valid);
    }
}

KERNEL void clt_batch_blocked_conv_weight_grad(global const STORED(IN0) * x, long x_at,
                                       global const STORED(IN1) * g, long g_at, global const uchar *mask, long mask_at,
                                       global float *dw, long dw_at, global float *db, long db_at,
                                       int n, int groups, int ci, int ih, int iw, int co, int oh,
                                       int ow, int chunk)
{
    const int tiles = (co + TO - 1) / TO;
    const int i0 = get_global_id(0) * CI_BLOCK;
    const int group = get_global_id(1) / tiles, o0 = get_global_id(1) % tiles * TO;
    const int no = min(TO, co - o0), ni = min(CI_BLOCK, ci - i0);
    const int blocks = clt_blocks(n);
    const int from = get_global_id(2) * chunk, to = min(from + chunk, blocks);
#if UNPOOL
    const int height = oh / 2 * 2, width = COLUMNS, g_size = (oh / 2) * (ow / 2);
    vecf band[TO * BAND * COLUMNS];
#else
    const int height = oh, width = ow, g_size = oh * ow;
#endif
    vecf sums[TO * CI_BLOCK * TAPS];
    vecf bias[TO];
    for (int i = 0; i < TO * CI_BLOCK * TAPS; i++)
        sums[i] = 0.0f;
    for (int o = 0; o < TO; o++)
        bias[o] = 0.0f;
    const int whole = min(to, n / LANES); /* blocks before this one have all their images */
    const long x_block = (long)groups * ci * ih * iw * LANES;
    int together = 1;
    for (int b = from; b < to; b += together) {
        const veci valid = clt_valid_lanes(b, n);
        const int all = n - b * LANES >= LANES;
        together = clamp(whole - b, 1, TOGETHER);
        global const STORED(IN0) *xb = x + x_at + b * x_block + ((long)group * ci + i0) * ih * iw * LANES;
        const long g_from = (((long)b * groups + group) * co + o0) * g_size * LANES;
        global const STORED(IN1) *gb = g + g_at + g_from;
#if UNPOOL
        for (int first = 0; first < height; first += BAND) {
            const int last = min(first + BAND, height);
            private const float *gs = (private const float *)band;
            const int g_plane = BAND * COLUMNS * LANES, g_row = COLUMNS * LANES;
            clt_unpool_band(band, gb, mask + mask_at + g_from, oh, ow, first, last, no);
#else
        {
            const int first = 0, last = height, g_plane = oh * ow * LANES, g_row = ow * LANES;
            global const STORED(IN1) *gs = gb;
#endif
            const long g_block = (long)groups * co * g_size * LANES;
            for (int t = 0; t < together && BIAS && !BIAS_INSIDE && i0 == 0; t++)
                clt_bias_rows(bias, gs + t * g_block, g_plane, g_row, width, last - first, no,
                              valid, all);
            for (int i = 0; i < ni; i += TI) {
                for (int ky = 0; ky < KY; ky += TR) {
                    for (int kx = 0; kx < KX; kx += TK)
                        clt_weight_tile(sums, bias, gs, g_plane, g_row,
                                        xb + i * ih * iw * LANES, together, g_block, x_block, ih,
                                        iw, width, first, last, no, ni - i, i, ky, kx, valid, all);
                }
            }
        }
    }
    const long row = ((long)get_global_id(2) * groups + group) * co + o0;
    dw += dw_at + (row * ci + i0) * TAPS;
    for (int o = 0; o < no; o++) {
        for (int i = 0; i < ni * TAPS; i++)
            dw[(long)o * ci * TAPS + i] = clt_sum_lanes(sums[o * CI_BLOCK * TAPS + i]);
        if (BIAS && i0 == 0)
            db[db_at + row + o] = clt_sum_lanes(bias[o]);
    }
}

#endif

KERNEL void clt_batch_blocked_sum_chunks(global const float *part, long part_at, global float *out,
                                 long out_at, int count, int chunk, int n)
{
    const int chunks = max((clt_blocks(n) + chunk - 1) / chunk, 1);
    const int from = get_global_id(0) * SPREAD, to = min(from + SPREAD, count);
    part += part_at;
    out += out_at;
    int i = from;
    for (; i + LANES <= to; i += LANES) {
        vecf sum = LOAD(part + i);
        for (int c = 1; c < chunks; c++)
            sum += LOAD(part + (long)c * count + i);
        STORE(sum, out + i);
    }
    for (; i < to; i++) {
        float sum = part[i];
        for (int c = 1; c < chunks; c++)
            sum += part[(long)c * count + i];
        out[i] = sum;
    }
}
