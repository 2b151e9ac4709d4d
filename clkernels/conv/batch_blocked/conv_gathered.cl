/*
 * Strided convolution and its data gradient in the batch-blocked layout, as a matrix product over
 * copied inputs. The direct kernels read each channel of x at a distance of a plane, and again for
 * every few channels of y. Here the inputs of a few pixels lie one after the other. `groups` of the
 * convolution is 1.
 *
 * A work-group computes `share` channels of y for PIXELS = STRIPS * TX pixels at a time:
 *
 *   1. clt_gather copies the inputs under all taps of some channels of x to v.
 *   2. clt_products adds weights times v to the sums m, for tiles of TC channels x TX pixels.
 *   3. It writes the sums to y, with bias and activation.
 *
 * With GRAD, x means the gradient of the convolution's output and y that of its input. Row i of y
 * has phase i % sy: the same taps reach all pixels of a phase, at distances of 1 in x. So each
 * phase is a convolution without stride, of some of the taps.
 *
 * kernel clt_batch_blocked_conv_gathered_weights(w, w_at, u, u_at, ci, co, window)   (build option
 *                           GRAD)
 *   w   OIHW as PyTorch's: [co][ci][ky][kx]
 *   u   for each phase [ci][co][taps of the phase]
 *   global size: (ci, 1, 1), local (1, 1, 1)
 *
 * kernel clt_batch_blocked_conv_gathered(x, x_at, u, u_at, bias, bias_at, y, y_at, area, area_at,
 *                           n, from, ih, iw, to, oh, ow, share, window)
 *   x     [B][from][ih][iw] in batch blocks
 *   u     as the first kernel wrote it; without GRAD the weights themselves, [to][from][ky][kx]
 *   bias  [to]; read only if BIAS
 *   y     [B][to][oh][ow] in batch blocks
 *   area  scratch memory: V_SIZE + share * PIXELS * LANES floats for each work-group
 *   n images; share: channels of y that are computed together, a multiple of TC
 *   window: ky, kx, sy, sx, dy, dx, py, px of the convolution, also with GRAD
 *   global size: (any number of work-groups, which share the work, 1, 1), local (1, 1, 1)
 *
 * Build options (defaults in brackets):
 *   LANES
 *   MOST_TAPS [16]    ky * kx at most
 *   GRAD [0]          see above
 *   IN0, OUT0 [f]     how x and y are stored (core/storage.clh)
 *   BIAS, ACT [0]     1: adds the bias; 1: ReLU
 *   TX, TC [4, 3]     register tile, pixels x channels, at most 8 x 8; it takes TX * TC + TC + 1
 *                     registers of LANES floats
 *   STRIPS [4]        see above
 */
#include "core/batch_blocked/halves.clh"
#include "core/batch_blocked/window.clh"

#ifndef GRAD
#define GRAD 0
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef ACT
#define ACT 0
#endif
#ifndef TX
#define TX 4
#endif
#ifndef TC
#define TC 3
#endif
#ifndef STRIPS
#define STRIPS 4
#endif
#ifndef MOST_TAPS
#define MOST_TAPS 16
#endif

#define TILE_ROWS TC
#define TILE_COLS TX
#include "core/batch_blocked/tile.clh"

#define PIXELS (STRIPS * TX)
/* Products of a sum before it is added to m. So many rows of v, for a strip, take a quarter of a
 * first-level cache. */
#define DEPTH (MOST_TAPS > 64 ? MOST_TAPS : 64)
/* v: [STRIPS][DEPTH][TX] vectors. m: [share][STRIPS][TX] vectors. */
#define V_STEP (DEPTH * TX * LANES)
#define V_SIZE (STRIPS * V_STEP)
#define M_ROW (PIXELS * LANES)

/* The taps of a phase, and where their inputs lie: pixel (0, 0) of the phase reads (y, x). */
typedef struct taps {
    int count, at[MOST_TAPS], y[MOST_TAPS], x[MOST_TAPS];
} taps;

INLINE void clt_taps_of(int phase, private const window *w, taps *t)
{
    t->count = 0;
    for (int tap = 0; tap < w->ky * w->kx; tap++) {
        const int tap_y = tap / w->kx * w->dy, tap_x = tap % w->kx * w->dx;
#if GRAD
        const int y = phase / w->sx + w->py - tap_y, x = phase % w->sx + w->px - tap_x;
        if (y % w->sy != 0 || x % w->sx != 0)
            continue;
        t->y[t->count] = y / w->sy;
        t->x[t->count] = x / w->sx;
#else
        t->y[t->count] = tap_y - w->py;
        t->x[t->count] = tap_x - w->px;
#endif
        t->at[t->count++] = tap;
    }
}

#if GRAD
KERNEL void clt_batch_blocked_conv_gathered_weights(global const float *w, long w_at,
                                                    global float *u, long u_at, int ci, int co,
                                                    WINDOW_ARGS)
{
    const window all = WINDOW;
    const int c = get_global_id(0);
    w += w_at + (long)c * ky * kx;
    u += u_at;
    for (int phase = 0; phase < sy * sx; phase++) {
        taps t;
        clt_taps_of(phase, &all, &t);
        global float *to = u + (long)c * co * t.count;
        for (int k = 0; k < co; k++)
            for (int i = 0; i < t.count; i++)
                *to++ = w[(long)k * ci * ky * kx + t.at[i]];
        u += (long)ci * co * t.count;
    }
}
#endif

/* Copies inputs of `count` channels under each tap: at[tap][pixel] is where they are in the first
 * channel, or -1 in the padding. */
INLINE void clt_gather(global const STORED(IN0) * x, private const int *at, int taps, int count,
                       int plane, global float *v)
{
    for (int k = 0; k < count; k++, x += plane) {
        for (int i = 0; i < taps; i++) {
            global float *to = v + (k * taps + i) * TX * LANES;
            for (int p = 0; p < PIXELS; p++) {
                const int from = at[i * PIXELS + p];
                vecf value = 0.0f;
                if (from >= 0)
                    value = LOAD_AS(IN0, x + from);
                STORE(value, to + p / TX * V_STEP + p % TX * LANES);
            }
        }
    }
}

/* m[c][t] = sum over k < count of u[c][k] v[k][t], for `tc` channels c. With `more`, the sum is
 * added to m: its rounding errors stay those of a short sum. tc is a constant at every call. */
INLINE void clt_products(global const float *u, int row, global const float *v, global float *m,
                         int count, int more, const int tc)
{
#define DECLARE(c, t) vecf a##c##t = 0.0f;
    EACH_CELL(DECLARE)
#pragma unroll 2
    for (int k = 0; k < count; k++, v += TX * LANES) {
#define WEIGHT(c)                                                                                  \
    vecf w##c;                                                                                     \
    if (c < tc)                                                                                    \
        w##c = u[row * c + k];
#define FMA(c, t)                                                                                  \
    if (c < tc)                                                                                    \
        a##c##t = fma(v##t, w##c, a##c##t);
#define COLUMN(t)                                                                                  \
    const vecf v##t = LOAD(v + t * LANES);                                                         \
    ROWS_OF(FMA, t)
        EACH_ROW(WEIGHT)
        EACH_COL(COLUMN)
    }
#define ADD_M(c, t)                                                                                \
    if (c < tc)                                                                                    \
        a##c##t += LOAD(m + c * M_ROW + t * LANES);
#define PUT_M(c, t)                                                                                \
    if (c < tc)                                                                                    \
        STORE(a##c##t, m + c * M_ROW + t * LANES);
    if (more) {
        EACH_CELL(ADD_M)
    }
    EACH_CELL(PUT_M)
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

KERNEL void clt_batch_blocked_conv_gathered(global const STORED(IN0) * x, long x_at,
                                    global const float *u, long u_at, global const float *bias,
                                    long bias_at, global STORED(OUT0) * y, long y_at,
                                    global float *area, long area_at, int n, int from, int ih,
                                    int iw, int to, int oh, int ow, int share, WINDOW_ARGS)
{
    const window w = WINDOW;
    const int phases = GRAD ? sy * sx : 1, x_step_y = GRAD ? 1 : sy, x_step_x = GRAD ? 1 : sx;
    const int y_step_y = GRAD ? sy : 1, y_step_x = GRAD ? sx : 1;
    /* Pixels of a phase; the last row and column are missing in some phases. */
    const int rows = (oh + y_step_y - 1) / y_step_y, columns = (ow + y_step_x - 1) / y_step_x;
    const int size = rows * columns, plane = ih * iw * LANES;
    const long all = (long)clt_blocks(n) * size, sets = (all + PIXELS - 1) / PIXELS;
    const long items = sets * ((to + share - 1) / share);
    const long begin = get_global_id(0) * items / get_global_size(0);
    const long end = (get_global_id(0) + 1) * items / get_global_size(0);
    global float *v = area + area_at + get_global_id(0) * (long)(V_SIZE + share * M_ROW);
    global float *m = v + V_SIZE;
    x += x_at;
    y += y_at;
    bias += bias_at;
    for (long item = begin; item < end; item++) {
        const long first = item % sets * PIXELS;
        const int used = (int)min((long)PIXELS, all - first);
        const int c0 = (int)(item / sets) * share, channels = min(share, to - c0);
        const long block = first / size;
        global const STORED(IN0) *image = x + block * from * plane;
        global const float *up = u + u_at;
        for (int phase = 0; phase < phases; phase++) {
            taps t;
            clt_taps_of(phase, &w, &t);
            const int row = from * t.count, chunk = t.count ? DEPTH / t.count : 0;
            int at[MOST_TAPS * PIXELS], put[PIXELS];
            for (int p = 0; p < PIXELS; p++) {
                /* Pixels behind the last one repeat it. */
                const int place = (int)(first - block * size) + min(p, used - 1);
                const int b = place / size, r = place % size / columns, c = place % columns;
                const int oy = r * y_step_y + phase / y_step_x;
                const int ox = c * y_step_x + phase % y_step_x;
                put[p] = p < used && oy < oh && ox < ow
                             ? ((b * to + c0) * oh * ow + oy * ow + ox) * LANES
                             : -1;
                for (int i = 0; i < t.count; i++) {
                    const int iy = r * x_step_y + t.y[i], ix = c * x_step_x + t.x[i];
                    at[i * PIXELS + p] = (uint)iy < (uint)ih && (uint)ix < (uint)iw
                                             ? b * from * plane + (iy * iw + ix) * LANES
                                             : -1;
                }
            }
            for (int k = 0; k < from && t.count; k += chunk) {
                const int now = min(chunk, from - k), count = now * t.count;
                global const float *uk = up + (long)c0 * row + k * t.count;
                clt_gather(image + (long)k * plane, at, t.count, now, plane, v);
                for (int s = 0; s < STRIPS; s++) {
                    int c = 0;
#define PRODUCTS(tc)                                                                               \
    clt_products(uk + c * row, row, v + s * V_STEP, m + c * M_ROW + s * TX * LANES, count, k, tc)
/* The last channels, of any number below TC, so that one program serves all layers. */
#define TAIL(tc)                                                                                   \
    if (tc > 0 && tc == channels - c)                                                              \
        PRODUCTS(tc);
                    for (; c + TC <= channels; c += TC)
                        PRODUCTS(TC);
                    EACH_ROW(TAIL)
                }
            }
            global STORED(OUT0) *result = y + block * to * oh * ow * LANES;
            for (int c = 0; c < channels; c++, result += oh * ow * LANES) {
                const vecf b = BIAS ? bias[c0 + c] : 0.0f;
                for (int p = 0; p < PIXELS; p++) {
                    if (put[p] < 0)
                        continue;
                    vecf sum = 0.0f;
                    if (t.count)
                        sum = LOAD(m + c * M_ROW + p * LANES);
                    STORE_AS(OUT0, clt_finish(sum, b), result + put[p]);
                }
            }
            up += (long)to * row;
        }
    }
}
