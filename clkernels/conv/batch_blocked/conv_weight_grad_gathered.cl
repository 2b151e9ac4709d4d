/*
 * Gradients of the weights and the bias of a convolution in the batch-blocked layout, as a matrix
 * product that sums over pixels and images. Its vectors hold output channels, not images: there
 * are no lanes to add up, and the sums are an eighth as large. `groups` of the convolution is 1.
 *
 * A work-group computes blocks of co_block output channels and ci_block input channels. It takes
 * strips of at most PIXELS pixels of the gradient, in three steps:
 *
 *   1. clt_turn_grads transposes the gradients of a strip: channels become the lanes.
 *   2. clt_gather_inputs copies the inputs that TC channels have under each tap. Planes of x that
 *      are a power of two apart would evict each other from the caches.
 *   3. clt_products adds the products of a tile of TC input channels x TO vectors of output
 *      channels to the sums of a tap. Pixels whose input lies in the padding are left out.
 *
 * kernel clt_batch_blocked_conv_weight_grad_gathered(x, x_at, g, g_at, area, area_at, dw, dw_at,
 *                           db, db_at, n, ci, ih, iw, co, oh, ow, rows, together, ci_block,
 *                           co_block, window)
 *   x     [B][ci][ih][iw] in batch blocks
 *   g     [B][co][oh][ow] in batch blocks: gradient of the convolution's output
 *   area  scratch memory: AREA(ci_block, co_block) floats for each work-group
 *   dw    OIHW as PyTorch's: [co][ci][ky][kx]; db [co], written only if BIAS
 *   n images; rows: rows of g of a strip; together: blocks of images of a strip, 1 unless rows =
 *   oh; together * rows * ow is at most PIXELS
 *   ci_block, co_block: channels of a block, multiples of TC and of TO * LANES
 *   window: ky, kx, sy, sx, dy, dx, py, px of the convolution
 *   global size: (any number of work-groups, which share the blocks, 1, 1), local (1, 1, 1)
 *
 * Build options (defaults in brackets):
 *   LANES
 *   IN0, IN1 [f]      how x and g are stored (core/storage.clh)
 *   BIAS [0]          1: computes db
 *   TC, TO [6, 2]     register tile, input channels x vectors of output channels, at most 8 x 8; it
 *                     takes TC * TO + TO + 1 registers of LANES floats
 *   OTAIL [0]         (vectors of co) % TO
 *   PIXELS [32]       see above
 */
#include "core/batch_blocked/halves.clh"
#include "core/batch_blocked/transpose.clh"
#include "core/batch_blocked/window.clh"

#ifndef BIAS
#define BIAS 0
#endif
#ifndef TC
#define TC 6
#endif
#ifndef TO
#define TO 2
#endif
#ifndef OTAIL
#define OTAIL 0
#endif
#ifndef PIXELS
#define PIXELS 32
#endif

#define TILE_ROWS TC
#define TILE_COLS TO
#include "core/batch_blocked/tile.clh"

/* Floats of a row of a tile's sums, and from a tile's sums to the next tile's. */
#define M_ROW (TO * LANES)
#define M_STEP(ci_block, taps) ((ci_block) * (taps) * M_ROW)

/*
 * The scratch memory of a work-group:
 *   u  [co_block / TO][PIXELS][LANES][TO] vectors of the strip's gradients of each image
 *   v  [taps][TC] rows of PIXELS vectors of inputs, images in the lanes. A row has an odd number of
 *      vectors, so that rows fall into different sets of a cache.
 *   m  [co_block / TO][ci_block][taps][TO] vectors of sums
 *   bias  [co_block]
 */
#define U_STEP (PIXELS * LANES * M_ROW)
#define V_ROW ((PIXELS | 1) * LANES)
#define U_SIZE(co_block) ((co_block) / (TO * LANES) * U_STEP)
#define V_SIZE(taps) ((taps) * TC * V_ROW)
#define M_SIZE(ci_block, co_block, taps) ((co_block) / (TO * LANES) * M_STEP(ci_block, taps))
#define AREA(ci_block, co_block, taps)                                                             \
    (U_SIZE(co_block) + V_SIZE(taps) + M_SIZE(ci_block, co_block, taps) + (co_block))

/* Rows `top` to `bottom` - 1 of g, in `blocks` blocks of images from `block` on. */
typedef struct strip {
    int block, blocks, top, bottom;
} strip;

/* Of an axis: the first pixel of g whose input under a tap lies in the image, and the pixel behind
 * the last. `at` is the input of pixel 0. */
INLINE int clt_first_inside(int at, int stride, int out)
{
    return at < 0 ? min((stride - 1 - at) / stride, out) : 0;
}

INLINE int clt_end_inside(int at, int stride, int in, int out)
{
    return at < in ? min((in - 1 - at) / stride + 1, out) : 0;
}

/* Transposes the gradients of a vector of channels, of which `count` exist, to `to`: pixel by pixel
 * and image by image a vector, M_ROW floats apart. Images from n on and channels from `count` on
 * become 0. Returns the sum of all gradients. */
INLINE vecf clt_turn_grads(global const STORED(IN1) * g, private const strip *s, int n, int co,
                           int oh, int ow, int count, global float *to)
{
    const long plane = (long)oh * ow * LANES;
    vecf sum = 0.0f;
    for (int b = 0; b < s->blocks; b++) {
        global const STORED(IN1) *from = g + ((s->block + b) * co * (long)oh + s->top) * ow * LANES;
        const veci valid = clt_valid_lanes(s->block + b, n);
        const int whole = n - (s->block + b) * LANES >= LANES && count >= LANES;
        for (int p = 0; p < (s->bottom - s->top) * ow; p++, from += LANES) {
            float row[LANES * LANES];
            for (int i = 0; i < LANES; i++) {
                vecf v = LOAD_AS(IN1, from + (whole ? i : min(i, count - 1)) * plane);
                if (!whole)
                    v = select((vecf)0.0f, v, i < count ? valid : (veci)0);
                *(private vecf_anywhere *)(row + i * LANES) = v;
            }
            for (int l = 0; l < LANES; l += 4) {
#define GET_FOUR(i) (*(private const clt_four_anywhere *)(row + (i) * LANES + l))
#define PUT_LANE(j, value)                                                                         \
    {                                                                                              \
        const vecf turned = value;                                                                 \
        STORE(turned, to + (l + j) * M_ROW);                                                       \
        sum += turned;                                                                             \
    }
                CLT_FOUR_COLUMNS(GET_FOUR, PUT_LANE)
            }
            to += LANES * M_ROW;
        }
    }
    return sum;
}

/* Copies the inputs under tap (ky, kx) of `count` channels of x. Images from n on become 0. */
INLINE void clt_gather_inputs(global const STORED(IN0) * x, private const strip *s, int n, int ci,
                              private const window *w, int ih, int iw, int oh, int ow, int count,
                              int tap, global float *v)
{
    const int sy = w->sy, sx = w->sx;
    const int y0 = tap / w->kx * w->dy - w->py, x0 = tap % w->kx * w->dx - w->px;
    const int left = clt_first_inside(x0, sx, ow), right = clt_end_inside(x0, sx, iw, ow);
    const int first = max(s->top, clt_first_inside(y0, sy, oh));
    const int last = min(s->bottom, clt_end_inside(y0, sy, ih, oh));
    for (int b = 0; b < s->blocks; b++) {
        const veci valid = clt_valid_lanes(s->block + b, n);
        const int whole = n - (s->block + b) * LANES >= LANES;
        for (int i = 0; i < count; i++) {
            for (int r = first; r < last; r++) {
                global const STORED(IN0) *from =
                    x + ((((s->block + b) * (long)ci + i) * ih + r * sy + y0) * iw + x0) * LANES;
                global float *to =
                    v + i * V_ROW + (b * (s->bottom - s->top) + r - s->top) * ow * LANES;
                if (whole)
                    for (int c = left; c < right; c++)
                        STORE(LOAD_AS(IN0, from + c * sx * LANES), to + c * LANES);
                else
                    for (int c = left; c < right; c++)
                        STORE(select((vecf)0.0f, LOAD_AS(IN0, from + c * sx * LANES), valid),
                              to + c * LANES);
            }
        }
    }
}

/* Where the pixels of a tap lie in a strip: runs[0] x runs[1] runs of `length` pixels, which are
 * steps[0] and steps[1] pixels apart. */
typedef struct runs {
    int count[2], step[2], first, length;
} runs;

INLINE void clt_runs_of(private const strip *s, private const window *w, int ih, int iw, int oh,
                        int ow, int tap, private runs *r)
{
    const int y0 = tap / w->kx * w->dy - w->py, x0 = tap % w->kx * w->dx - w->px;
    const int sy = w->sy, sx = w->sx, rows = s->bottom - s->top;
    const int left = clt_first_inside(x0, sx, ow), right = clt_end_inside(x0, sx, iw, ow);
    const int first = max(s->top, clt_first_inside(y0, sy, oh)) - s->top;
    const int last = min(s->bottom, clt_end_inside(y0, sy, ih, oh)) - s->top;
    r->count[0] = s->blocks;
    r->count[1] = max(last - first, 0);
    r->step[0] = rows * ow;
    r->step[1] = ow;
    r->first = first * ow + left;
    r->length = right - left;
    if (r->length == ow) {
        r->length *= r->count[1];
        r->count[1] = min(r->count[1], 1);
        if (r->length == rows * ow) {
            r->length *= s->blocks;
            r->count[0] = 1;
        }
    }
}

/* m[c][o] = sum over pixels and images of v[c] u[o], for one tap, `tc` channels c and `to` vectors
 * o; rows of m are m_row apart. With `more`, adds to m. tc and to are constants at every call. */
INLINE void clt_products(global const float *v, global const float *u, global float *m, int m_row,
                         private const runs *r, int more, const int tc, const int to)
{
#define DECLARE(c, o) vecf a##c##o = 0.0f;
    EACH_CELL(DECLARE)
    /* The sums so far may lie in a far cache: they are prefetched, and added last. */
#define FETCH(c)                                                                                   \
    for (int i = 0; i < M_ROW; i += 16)                                                            \
        PREFETCH(m + c * m_row + i);
    EACH_ROW(FETCH)
    for (int i = 0; i < r->count[0]; i++) {
        for (int j = 0; j < r->count[1]; j++) {
            const int at = (r->first + i * r->step[0] + j * r->step[1]) * LANES;
            global const float *vt = v + at, *ut = u + at * M_ROW;
            for (int k = 0; k < r->length; k++) {
#pragma unroll
                for (int l = 0; l < LANES; l++) {
                    /* Loads one input at a time: there are no registers for all of them beside the
                     * gradients. */
#define COLUMN(o) const vecf g##o = o < to ? LOAD(ut + o * LANES) : (vecf)0.0f;
#define FMA(o, c, b)                                                                               \
    if (o < to)                                                                                    \
        a##c##o = fma(g##o, w, a##c##o);
#define CHANNEL(c)                                                                                 \
    if (c < tc) {                                                                                  \
        const vecf w = vt[c * V_ROW + l];                                                          \
        FOR_C(TO, FMA, c, 0)                                                                       \
    }
                    EACH_COL(COLUMN)
                    EACH_ROW(CHANNEL)
                    ut += M_ROW;
                }
                vt += LANES;
            }
        }
    }
#define ADD_M(c, o)                                                                                \
    if (c < tc && o < to)                                                                          \
        a##c##o += LOAD(m + c * m_row + o * LANES);
#define PUT_M(c, o)                                                                                \
    if (c < tc && o < to)                                                                          \
        STORE(a##c##o, m + c * m_row + o * LANES);
    if (more) {
        EACH_CELL(ADD_M)
    }
    EACH_CELL(PUT_M)
}

/* The products of `tc` input channels with `vectors` vectors of output channels. */
INLINE void clt_row_of_products(global const float *v, global const float *u, global float *m,
                                private const strip *s, private const window *w, int ih, int iw,
                                int oh, int ow, int vectors, int m_step, int more, const int tc)
{
    const int taps = w->ky * w->kx;
    for (int o = 0; o < vectors; o += TO, u += U_STEP, m += m_step) {
        for (int tap = 0; tap < taps; tap++) {
            global const float *vt = v + tap * TC * V_ROW;
            runs r;
            clt_runs_of(s, w, ih, iw, oh, ow, tap, &r);
#if OTAIL
            if (o + TO > vectors) {
                clt_products(vt, u, m + tap * M_ROW, taps * M_ROW, &r, more, tc, OTAIL);
                continue;
            }
#endif
            clt_products(vt, u, m + tap * M_ROW, taps * M_ROW, &r, more, tc, TO);
        }
    }
}

/* Writes the sums of `count` output channels, of `values` weights each, to rows of dw that are
 * `row` apart. */
INLINE void clt_put_weights(global const float *m, global float *dw, long row, int values,
                            int count)
{
    int e = 0;
    for (; count >= LANES && e + LANES <= values; e += LANES) {
        for (int l = 0; l < LANES; l += 4) {
#define GET_SUMS(i) CLT_FOUR(m + (e + i) * M_ROW + l)
#define PUT_ROW(j, value) STORE(value, dw + (l + j) * row + e)
            CLT_FOUR_COLUMNS(GET_SUMS, PUT_ROW)
        }
    }
    for (; e < values; e++)
        for (int l = 0; l < min(count, LANES); l++)
            dw[l * row + e] = m[e * M_ROW + l];
}

KERNEL void clt_batch_blocked_conv_weight_grad_gathered(
    global const STORED(IN0) * x, long x_at, global const STORED(IN1) * g, long g_at,
    global float *area, long area_at, global float *dw, long dw_at, global float *db, long db_at,
    int n, int ci, int ih, int iw, int co, int oh, int ow, int rows, int together, int ci_block,
    int co_block, WINDOW_ARGS)
{
    const window w = WINDOW;
    const int taps = ky * kx;
    const int i_blocks = (ci + ci_block - 1) / ci_block;
    const int blocks = i_blocks * ((co + co_block - 1) / co_block);
    const int m_step = M_STEP(ci_block, taps), batch = clt_blocks(n);
    global float *u = area + area_at + (long)get_global_id(0) * AREA(ci_block, co_block, taps);
    global float *v = u + U_SIZE(co_block), *m = v + V_SIZE(taps);
    global float *bias = m + M_SIZE(ci_block, co_block, taps);
    x += x_at;
    g += g_at;
    for (int block = get_global_id(0); block < blocks; block += get_global_size(0)) {
        const int i0 = block % i_blocks * ci_block, ni = min(ci_block, ci - i0);
        const int o0 = block / i_blocks * co_block, no = min(co_block, co - o0);
        const int vectors = (no + LANES - 1) / LANES;
        for (int i = 0; i < co_block; i++)
            bias[i] = 0.0f;
        for (int i = 0; batch == 0 && i < M_SIZE(ci_block, co_block, taps); i++)
            m[i] = 0.0f;
        strip s = {0, 0, 0, 0};
        for (; s.block < batch; s.block += together) {
            s.blocks = min(together, batch - s.block);
            for (s.top = 0; s.top < oh; s.top += rows) {
                s.bottom = min(s.top + rows, oh);
                for (int o = 0; o < vectors; o++) {
                    const vecf sum =
                        clt_turn_grads(g + (long)(o0 + o * LANES) * oh * ow * LANES, &s, n, co, oh,
                                       ow, no - o * LANES, u + o / TO * U_STEP + o % TO * LANES);
                    if (BIAS)
                        STORE(LOAD(bias + o * LANES) + sum, bias + o * LANES);
                }
                const int more = s.block > 0 || s.top > 0;
                for (int i = 0; i < ni; i += TC) {
                    const int count = min(TC, ni - i);
                    for (int tap = 0; tap < taps; tap++)
                        clt_gather_inputs(x + (long)(i0 + i) * ih * iw * LANES, &s, n, ci, &w, ih,
                                          iw, oh, ow, count, tap, v + tap * TC * V_ROW);
                    global float *mi = m + i * taps * M_ROW;
#define PRODUCTS(at, tc)                                                                           \
    clt_row_of_products(v + (at)*V_ROW, u, mi + (at)*taps * M_ROW, &s, &w, ih, iw, oh, ow,         \
                        vectors, m_step, more, tc)
                    /* The last channels in pieces of 4, 2 and 1, so that one program serves any
                     * number of them. */
                    if (count == TC) {
                        PRODUCTS(0, TC);
                        continue;
                    }
                    if (TC > 4 && count & 4)
                        PRODUCTS(0, 4);
                    if (TC > 2 && count & 2)
                        PRODUCTS(count & 4, 2);
                    if (TC > 1 && count & 1)
                        PRODUCTS(count & 6, 1);
                }
            }
        }
        for (int o = 0; o < vectors; o++)
            clt_put_weights(m + o / TO * m_step + o % TO * LANES,
                            dw + dw_at + ((long)(o0 + o * LANES) * ci + i0) * taps, (long)ci * taps,
                            ni * taps, no - o * LANES);
        for (int i = 0; BIAS && i0 == 0 && i < no; i++)
            db[db_at + o0 + i] = bias[i];
    }
}
