/*
 * 3 x 3 convolution in the batch-blocked layout by Winograd's minimal filtering, F(4 x 4, 3 x 3). A
 * tile of 4 x 4 outputs takes 36 products of transformed inputs and transformed weights for each
 * channel, instead of 144. Stride, dilation and groups are 1.
 *
 * A work-group computes `share` channels of y for strips of TX tiles. It takes `together` strips at a
 * time, in three steps:
 *
 *   1. clt_tile_of_inputs transforms the inputs x of all channels to v (36 points).
 *   2. clt_all_products computes m = u v for each point: u is [share][ci], v is [ci][TX] of each
 *      strip. The weights u of a point are read from far memory once for all these strips.
 *   3. clt_tile_of_outputs transforms m to outputs, and adds bias and activation.
 *
 * kernel clt_batch_blocked_winograd_weights(w, w_at, u, u_at, ci, co, first_to)
 *                           (build option WEIGHTS)
 *   w   OIHW as PyTorch's: [co][ci][3][3]
 *   u   [36][count][U_ROW(from)]: transformed weights from channel to channel; 0 at the end of a
 *       row. `from` means the ci channels and `to` the co. With FLIP, for the data gradient, it is
 *       the reverse, and the taps are mirrored. Row i is channel first_to + i of `to`.
 *   global size: (ceil(from / LANES), count, 1), local (1, 1, 1)
 *
 * kernel clt_batch_blocked_winograd(x, x_at, u, u_at, bias, bias_at, y, y_at, area, area_at,
 *                           n, ci, ih, iw, co, oh, ow, first_c, count, share, together)
 *   x     [B][ci][ih][iw] in batch blocks
 *   u     as the first kernel wrote it
 *   bias  [co]; read only if BIAS
 *   y     [B][co][oh][ow] in batch blocks
 *   area  scratch memory: together * AREA(ci, share) floats for each work-group
 *   n images; share: channels of y of a work-group, a multiple of TC
 *   first_c, count: the channels of y that are computed. If first_c > 0 and a work-group takes all its
 *   strips together, v is in `area` from the launch for the channels before, whose share was equal.
 *   global size: (any number of work-groups, which share the strips, ceil(count / share), 1), local
 *   (1, 1, 1)
 *
 * Build options (defaults in brackets):
 *   LANES
 *   PY, PX [0]     padding above and on the left
 *   BIAS [0]       1: adds the bias
 *   ACT [0]        1: ReLU
 *   FLIP [0]       see u
 *   TX, TC [4, 6]  register tile, tiles of outputs x channels, at most 8 x 8; it takes
 *                  TX * TC + TX + 1 registers of LANES floats
 *   CTAIL [0]      co % TC
 */
#include "core/batch_blocked/common.clh"

#ifndef BIAS
#define BIAS 0
#endif
#ifndef ACT
#define ACT 0
#endif
#ifndef FLIP
#define FLIP 0
#endif
#ifndef PY
#define PY 0
#endif
#ifndef PX
#define PX 0
#endif
#ifndef TX
#define TX 4
#endif
#ifndef TC
#define TC 6
#endif
#ifndef CTAIL
#define CTAIL 0
#endif

#define TILE_ROWS TC
#define TILE_COLS TX
#include "conv/batch_blocked/winograd.clh"

#define U_ROW(channels) (((channels) + LANES - 1) / LANES * LANES)

/* Transform a column or row of a tile; PUT(i, value) receives each result. TRANSFORM_SUMS makes
 * four outputs of six sums m0 .. m5, TRANSFORM_WEIGHTS six numbers of three weights g0 .. g2. */
#define TRANSFORM_SUMS(PUT, m)                                                                     \
    {                                                                                              \
        const vecf sum_a = m##1 + m##2, less_a = m##1 - m##2;                                      \
        const vecf sum_b = m##3 + m##4, less_b = m##3 - m##4;                                      \
        PUT(0, (m##0 + sum_a) + sum_b)                                                             \
        PUT(1, fma(less_a, (vecf)A, less_b * B))                                                   \
        PUT(2, fma(sum_a, (vecf)0.5f, sum_b * 2.0f))                                               \
        PUT(3, fma(less_a, (vecf)(0.5f * A), fma(less_b, (vecf)(2.0f * B), m##5)))                 \
    }
#define TRANSFORM_WEIGHTS(PUT, g)                                                                  \
    {                                                                                              \
        const vecf even_a = fma(g##2, (vecf)0.5f, g##0), even_b = fma(g##2, (vecf)2.0f, g##0);     \
        PUT(0, g##0)                                                                               \
        PUT(1, fma(g##1, (vecf)A, even_a) * (-2.0f / 3))                                           \
        PUT(2, fma(g##1, (vecf)-A, even_a) * (-2.0f / 3))                                          \
        PUT(3, fma(g##1, (vecf)B, even_b) * (1.0f / 6))                                            \
        PUT(4, fma(g##1, (vecf)-B, even_b) * (1.0f / 6))                                           \
        PUT(5, g##2)                                                                               \
    }

#ifdef WEIGHTS

KERNEL void clt_batch_blocked_winograd_weights(global const float *w, long w_at, global float *u, long u_at,
                                       int ci, int co, int first_to)
{
    const int first = get_global_id(0) * LANES, to = first_to + get_global_id(1);
    const int from = FLIP ? co : ci, row = U_ROW(from);
    const long plane = (long)get_global_size(1) * row;
    float tap[9][LANES];
    vecf mid[SIDE * 3];
    w += w_at + (FLIP ? (long)first * ci + to : (long)to * ci + first) * 9;
    u += u_at + (long)get_global_id(1) * row + first;
    for (int l = 0; l < LANES; l++) {
        for (int i = 0; i < 9; i++)
            tap[FLIP ? 8 - i : i][l] = first + l < from ? w[i] : 0.0f;
        w += FLIP ? ci * 9 : 9;
    }
#define TAP(i) (*(private const vecf_anywhere *)tap[i])
    for (int x = 0; x < 3; x++) {
        const vecf g0 = TAP(x), g1 = TAP(3 + x), g2 = TAP(6 + x);
#define PUT_MID(i, value) mid[i * 3 + x] = value;
        TRANSFORM_WEIGHTS(PUT_MID, g)
    }
    for (int y = 0; y < SIDE; y++) {
        const vecf g0 = mid[y * 3], g1 = mid[y * 3 + 1], g2 = mid[y * 3 + 2];
#define PUT_U(i, value) STORE(value, u + (y * SIDE + i) * plane);
        TRANSFORM_WEIGHTS(PUT_U, g)
    }
}

#else

/*
 * The scratch memory of a work-group has, for a strip of TX tiles,
 *   v  [ceil(ci / BLOCK)][POINTS][BLOCK][TX] vectors of transformed inputs;
 *   m  [ceil(co / TC)][POINTS][TC][TX] vectors of sums.
 *
 * So the vectors that a transform reads or writes lie in few pages. From point to point there is an
 * odd number of vectors, so that the points fall into different sets of a cache.
 */
#define BLOCK 8
#define V_STEP (((BLOCK * TX) | 1) * LANES)
#define M_STEP (((TC * TX) | 1) * LANES)
#define V_SIZE(ci) (((ci) + BLOCK - 1) / BLOCK * POINTS * V_STEP)
#define M_SIZE(co) (((co) + TC - 1) / TC * POINTS * M_STEP)
#define AREA(ci, co) (V_SIZE(ci) + M_SIZE(co))
/* So many channels' transformed inputs of a point stay in the first-level cache. A multiple of
 * BLOCK. */
#define DEPTH 64

/* m[c][t] = sum over `count` channels k of u[c][k] v[k][t], for one point and `tc` channels c. With
 * `more`, the sum is added to m: its rounding errors stay those of a short sum. tc is a constant at
 * every call. */
INLINE void clt_products(global const float *u, int row, global const float *v, global float *m,
                         int count, int more, const int tc)
{
#define DECLARE(c, t) vecf a##c##t = 0.0f;
    EACH_CELL(DECLARE)
    for (int k0 = 0; k0 < count; k0 += BLOCK) {
        const int block = min(BLOCK, count - k0);
#pragma unroll 2
        for (int k = 0; k < block; k++) {
            /* Loads one weight at a time: there are no registers for all of them beside the
             * inputs. */
#define COLUMN(t) const vecf v##t = LOAD(v + t * LANES);
#define FMA(t, c, b) a##c##t = fma(v##t, w, a##c##t);
#define CHANNEL(c)                                                                                 \
    if (c < tc) {                                                                                  \
        const vecf w = u[row * c];                                                                 \
        FOR_C(TX, FMA, c, 0)                                                                       \
    }
            EACH_COL(COLUMN)
            EACH_ROW(CHANNEL)
            u++;
            v += TX * LANES;
        }
        v += POINTS * V_STEP - BLOCK * TX * LANES;
    }
#define ADD_M(c, t)                                                                                \
    if (c < tc)                                                                                    \
        a##c##t += LOAD(m + (c * TX + t) * LANES);
    if (more) {
        EACH_CELL(ADD_M)
    }
#define PUT_M(c, t)                                                                                \
    if (c < tc)                                                                                    \
        STORE(a##c##t, m + (c * TX + t) * LANES);
    EACH_CELL(PUT_M)
}

/* Computes the products of point p for `co` channels and `strips` strips, whose scratch memory is
 * AREA(ci, share) apart. */
INLINE void clt_all_products(global const float *u, global float *v, int p, int ci, int co,
                             int share, int strips)
{
    const int row = U_ROW(ci), area = AREA(ci, share);
    for (int k = 0; k < ci; k += DEPTH) {
        const int count = min(DEPTH, ci - k);
        for (int s = 0; s < strips; s++) {
            global const float *vk = v + s * area + p * V_STEP + k / BLOCK * POINTS * V_STEP;
            global float *m = v + s * area + V_SIZE(ci) + p * M_STEP;
            int c = 0;
            for (; c + TC <= co; c += TC)
                clt_products(u + c * row + k, row, vk, m + c / TC * POINTS * M_STEP, count, k, TC);
#if CTAIL
            if (c < co)
                clt_products(u + c * row + k, row, vk, m + c / TC * POINTS * M_STEP, count, k,
                             CTAIL);
#endif
        }
    }
}

INLINE vecf clt_finish(vecf v, vecf bias)
{
#if BIAS
    v += bias;
#endif
#if ACT == 1
    return clt_relu(v);
#else
    return v;
#endif
}

/* Transforms the sums of one channel into its tile of outputs from (oy, ox) on. */
INLINE void clt_tile_of_outputs(global const float *m, global float *y, vecf bias, int oh, int ow,
                                int oy, int ox)
{
    vecf mid[OUT * SIDE];
    for (int j = 0; j < SIDE; j++) {
#define LOAD_M(i, a, b) const vecf m##i = LOAD(m + (i * SIDE + j) * M_STEP);
        FOR_A(SIDE, LOAD_M, 0, 0)
#define PUT_SUM(i, value) mid[i * SIDE + j] = value;
        TRANSFORM_SUMS(PUT_SUM, m)
    }
    const int rows = min(OUT, oh - oy), columns = ow - ox;
    for (int i = 0; i < rows; i++) {
        global float *to = y + ((oy + i) * ow + ox) * LANES;
#define TAKE_M(j, a, b) const vecf m##j = mid[i * SIDE + j];
        FOR_A(SIDE, TAKE_M, 0, 0)
#define PUT_Y(j, value)                                                                            \
    if (j < columns)                                                                               \
        STORE(clt_finish(value, bias), to + j * LANES);
        TRANSFORM_SUMS(PUT_Y, m)
    }
}

/* Transforms the inputs of a strip: tiles `first` to first + used - 1. Further tiles of a strip
 * repeat the last. */
INLINE void clt_strip_of_inputs(global const float *x, int ci, int ih, int iw, int oh, int ow,
                                long first, int used, global float *v)
{
    const int tiles_x = (ow + OUT - 1) / OUT, tiles = (oh + OUT - 1) / OUT * tiles_x;
    for (int c0 = 0; c0 < ci; c0 += BLOCK) {
        const int count = min(BLOCK, ci - c0);
        for (int t = 0; t < TX; t++) {
            const long at = first + min(t, used - 1);
            const int iy = (int)(at % tiles) / tiles_x * OUT - PY;
            const int ix = (int)(at % tiles) % tiles_x * OUT - PX;
            const int inner = iy >= 0 && ix >= 0 && iy + SIDE <= ih && ix + SIDE <= iw;
            global const float *image = x + (at / tiles * ci + c0) * ih * iw * LANES;
            global float *to = v + c0 / BLOCK * POINTS * V_STEP + t * LANES;
            for (int c = 0; c < count && inner; c++)
                clt_tile_of_inputs(image + c * ih * iw * LANES, ih, iw, iy, ix, 0,
                                   to + c * TX * LANES, V_STEP);
            for (int c = 0; c < count && !inner; c++)
                clt_tile_of_inputs(image + c * ih * iw * LANES, ih, iw, iy, ix, 1,
                                   to + c * TX * LANES, V_STEP);
        }
    }
}

KERNEL void clt_batch_blocked_winograd(global const float *x, long x_at, global const float *u, long u_at,
                               global const float *bias, long bias_at, global float *y, long y_at,
                               global float *area, long area_at, int n, int ci, int ih, int iw,
                               int co, int oh, int ow, int first_c, int count, int share,
                               int together)
{
    const int tiles_x = (ow + OUT - 1) / OUT, tiles = (oh + OUT - 1) / OUT * tiles_x;
    const long all = (long)clt_blocks(n) * tiles, strips = (all + TX - 1) / TX;
    const long group = get_global_id(0), groups = get_global_size(0);
    const long begin = group * strips / groups, last = (group + 1) * strips / groups;
    const long step = AREA(ci, share);
    const int transformed = first_c > 0 && last - begin <= together;
    const int own = get_global_id(1) * share, channels = min(share, count - own);
    const int c0 = first_c + own;
    global float *v = area + area_at + (get_global_id(1) * groups + group) * together * step;
    u += u_at + (long)own * U_ROW(ci);
    for (long s0 = begin; s0 < last; s0 += together) {
        const int now = (int)min((long)together, last - s0);
        for (int s = 0; s < now && !transformed; s++) {
            const long first = (s0 + s) * TX;
            clt_strip_of_inputs(x + x_at, ci, ih, iw, oh, ow, first,
                                (int)min((long)TX, all - first), v + s * step);
        }
        for (int p = 0; p < POINTS; p++)
            clt_all_products(u + (long)p * count * U_ROW(ci), v, p, ci, channels, share, now);
        for (int s = 0; s < now; s++) {
            const long first = (s0 + s) * TX;
            const int used = (int)min((long)TX, all - first);
            for (int c = 0; c < channels; c++) {
                global const float *from =
                    v + s * step + V_SIZE(ci) + c / TC * POINTS * M_STEP + c % TC * TX * LANES;
                for (int t = 0; t < used; t++) {
                    const long at = first + t;
                    const int oy = (int)(at % tiles) / tiles_x * OUT;
                    const int ox = (int)(at % tiles) % tiles_x * OUT;
                    clt_tile_of_outputs(from + t * LANES,
                                        y + y_at + (at / tiles * co + c0 + c) * oh * ow * LANES,
                                        BIAS ? bias[bias_at + c0 + c] : 0.0f, oh, ow, oy, ox);
                }
            }
        }
    }
}

#endif
