/*
 * Gradients of the weights and the bias of a 3 x 3 convolution in the batch-blocked layout, by
 * Winograd's minimal filtering, F(3 x 3, 4 x 4). A tile of 4 x 4 gradients and 6 x 6 inputs
 * contributes to the 9 weights by 36 products of transformed inputs and gradients, instead of 144.
 * Stride, dilation and groups are 1.
 *
 * For each point, the products form a matrix product, which sums over tiles and images. Its vectors
 * hold output channels, not images: the gradients are transposed before they are transformed. That
 * is less work than adding up the lanes of images.
 *
 * kernel clt_batch_blocked_winograd_weight_grad(x, x_at, g, g_at, area, area_at, part, part_at,
 *                                       n, ci, ih, iw, co, oh, ow)
 *   x     [B][ci][ih][iw] in batch blocks
 *   g     [B][co][oh][ow] in batch blocks: gradient of the convolution's output
 *   area  scratch memory: AREA(ci) floats for each work-group
 *   part  [groups][ci * 9 + 1][G_ROW(co)]: the weights' sums over each group's strips; in the last
 *         row, if BIAS, those of the bias
 *   n images
 *   global size: (any number of groups, which share the strips of TILES tiles,
 *   ceil(vectors of co / BLOCK), 1), local (1, 1, 1)
 *
 * kernel clt_batch_blocked_winograd_weight_sum(part, part_at, dw, dw_at, db, db_at, groups, ci, co)
 *   Adds the groups' sums in order.
 *   dw    OIHW as PyTorch's: [co][ci][3][3]; db [co], written only if BIAS
 *   global size: (ceil(co / LANES), ceil(ci / SPREAD), 1), local (1, 1, 1)
 *
 * Build options (defaults in brackets):
 *   LANES
 *   PY, PX [0]        padding above and on the left
 *   BIAS [0]          1: computes db
 *   TC, TO [6, 4]     register tile, input channels x vectors of output channels, at most 8 x 8; it
 *                     takes TC * TO + TO + 1 registers of LANES floats
 *   CTAIL, OTAIL [0]  ci % TC, and (vectors of co) % TO
 *   BLOCK [TO]        vectors of output channels of a work-group, a multiple of TO
 *   TILES [4]         tiles of a strip, at most 16
 */
#include "core/batch_blocked/common.clh"
#include "core/batch_blocked/transpose.clh"

#ifndef BIAS
#define BIAS 0
#endif
#ifndef PY
#define PY 0
#endif
#ifndef PX
#define PX 0
#endif
#ifndef TC
#define TC 6
#endif
#ifndef TO
#define TO 4
#endif
#ifndef CTAIL
#define CTAIL 0
#endif
#ifndef OTAIL
#define OTAIL 0
#endif
#ifndef BLOCK
#define BLOCK TO
#endif
#ifndef TILES
#define TILES 4
#endif

#define TILE_ROWS TC
#define TILE_COLS TO
#include "conv/batch_blocked/winograd.clh"

/* TAPS: taps of a side of the kernel. G_ROW: floats of a row of output channels, whole vectors. */
#define TAPS 3
#define G_ROW(co) (((co) + LANES - 1) / LANES * LANES)
/* Input channels of a work-group of clt_batch_blocked_winograd_weight_sum. */
#define SPREAD 16

/* Transform a column or row of a tile; PUT(i, value) receives each result. TRANSFORM_GRADS makes
 * six numbers of four gradients g0 .. g3, TRANSFORM_SUMS three taps of six sums m0 .. m5. */
#define TRANSFORM_GRADS(PUT, g)                                                                    \
    {                                                                                              \
        const vecf even_a = fma(g##2, (vecf)0.5f, g##0), odd_a = fma(g##3, (vecf)0.5f, g##1);      \
        const vecf even_b = fma(g##2, (vecf)2.0f, g##0), odd_b = fma(g##3, (vecf)2.0f, g##1);      \
        const vecf fa = even_a * (-2.0f / 3), fb = even_b * (1.0f / 6);                            \
        PUT(0, g##0)                                                                               \
        PUT(1, fma(odd_a, (vecf)(-2.0f / 3 * A), fa))                                              \
        PUT(2, fma(odd_a, (vecf)(2.0f / 3 * A), fa))                                               \
        PUT(3, fma(odd_b, (vecf)(1.0f / 6 * B), fb))                                               \
        PUT(4, fma(odd_b, (vecf)(-1.0f / 6 * B), fb))                                              \
        PUT(5, g##3)                                                                               \
    }
#define TRANSFORM_SUMS(PUT, m)                                                                     \
    {                                                                                              \
        const vecf sum_a = m##1 + m##2, less_a = m##1 - m##2;                                      \
        const vecf sum_b = m##3 + m##4, less_b = m##3 - m##4;                                      \
        PUT(0, (m##0 + sum_a) + sum_b)                                                             \
        PUT(1, fma(less_a, (vecf)A, less_b * B))                                                   \
        PUT(2, fma(sum_a, (vecf)0.5f, fma(sum_b, (vecf)2.0f, m##5)))                               \
    }

/*
 * The scratch memory of a work-group has, for a strip of TILES tiles,
 *   v  [ceil(ci / TC)][POINTS][TC][TILES] vectors of transformed inputs, images in the lanes;
 *   u  [BLOCK / TO][POINTS][TILES][LANES][TO] vectors of transformed gradients of each image,
 *      output channels in the lanes;
 *   m  [BLOCK / TO][ceil(ci / TC)][POINTS][TC][TO] vectors of sums, output channels in the lanes.
 *
 * So the vectors that a transform reads or writes lie in few pages. From point to point there is an
 * odd number of vectors, so that the points fall into different sets of a cache.
 */
#define V_STEP ((TC * TILES | 1) * LANES)
#define G_STEP ((TILES * LANES * TO | 1) * LANES)
#define M_STEP ((TC * TO | 1) * LANES)
#define C_BLOCKS(ci) (((ci) + TC - 1) / TC)
#define V_SIZE(ci) (C_BLOCKS(ci) * POINTS * V_STEP)
#define G_SIZE (BLOCK / TO * POINTS * G_STEP)
#define M_SIZE(ci) (BLOCK / TO * C_BLOCKS(ci) * POINTS * M_STEP)
#define AREA(ci) (V_SIZE(ci) + G_SIZE + M_SIZE(ci))

/* Transposes the gradients of the tile at (oy, ox), of up to LANES channels: to[pixel][image] is a
 * vector of channels. `count` channels exist; the others repeat the last. With `edge`, some pixels
 * lie outside of the image and become 0, or some channels do not exist. */
INLINE void clt_transpose_tile(global const float *g, int oh, int ow, int oy, int ox, int count,
                               const int edge, private float *to)
{
    const long plane = (long)oh * ow * LANES;
    for (int p = 0; p < OUT * OUT; p++) {
        const int y = oy + p / OUT, x = ox + p % OUT;
        private float *out = to + p * LANES * LANES;
        if (edge && (y >= oh || x >= ow)) {
            for (int l = 0; l < LANES; l++)
                *(private vecf_anywhere *)(out + l * LANES) = 0.0f;
            continue;
        }
        global const float *from = g + (y * ow + x) * LANES;
        for (int l = 0; l < LANES; l += 4) {
#define GET_FOUR(i) CLT_FOUR(from + (edge ? min(i, count - 1) : (i)) * plane + l)
#define PUT_LANE(j, v) *(private vecf_anywhere *)(out + (l + j) * LANES) = v
            CLT_FOUR_COLUMNS(GET_FOUR, PUT_LANE)
        }
    }
}

/* Transforms the gradients of `images` images, image l to v + l * TO * LANES. Returns their sum,
 * for the bias. */
INLINE vecf clt_tile_of_grads(private const float *from, int images, global float *v)
{
    vecf sum = 0.0f;
    for (int l = 0; l < images; l++) {
        vecf mid[SIDE * OUT];
        for (int j = 0; j < OUT; j++) {
#define LOAD_G(i, a, b)                                                                            \
    const vecf g##i =                                                                              \
        *(private const vecf_anywhere *)(from + ((i * OUT + j) * LANES + l) * LANES);
            FOR_A(OUT, LOAD_G, 0, 0)
#define PUT_MID(i, value) mid[i * OUT + j] = value;
            TRANSFORM_GRADS(PUT_MID, g)
#if BIAS
            sum += (g0 + g1) + (g2 + g3);
#endif
        }
        for (int i = 0; i < SIDE; i++) {
#define TAKE_G(j, a, b) const vecf g##j = mid[i * OUT + j];
            FOR_A(OUT, TAKE_G, 0, 0)
#define PUT_G(j, value) STORE(value, v + (i * SIDE + j) * G_STEP + l * TO * LANES);
            TRANSFORM_GRADS(PUT_G, g)
        }
    }
    return sum;
}

/* m[c][o] = sum over the images of `used` tiles of v[c][image] g[image][o], for one point, `tc`
 * channels c and `to` vectors o. With `more`, adds to m. tc and to are constants at every call. */
INLINE void clt_products(global const float *v, global const float *g, global float *m, int used,
                         private const int *images, int more, const int tc, const int to)
{
#define DECLARE(c, o) vecf a##c##o = 0.0f;
    EACH_CELL(DECLARE)
    /* The sums so far may lie in a far cache: they are prefetched, and added last. */
    for (int i = 0; i < TC * TO * LANES; i += 16)
        PREFETCH(m + i);
    for (int t = 0; t < used; t++) {
        global const float *vt = v + t * LANES, *gt = g + t * LANES * TO * LANES;
        for (int l = 0; l < images[t]; l++) {
            /* Loads one input at a time: there are no registers for all of them beside the
             * gradients. */
#define COLUMN(o) const vecf g##o = o < to ? LOAD(gt + o * LANES) : (vecf)0.0f;
#define FMA(o, c, b)                                                                               \
    if (o < to)                                                                                    \
        a##c##o = fma(g##o, w, a##c##o);
#define CHANNEL(c)                                                                                 \
    if (c < tc) {                                                                                  \
        const vecf w = vt[c * TILES * LANES];                                                      \
        FOR_C(TO, FMA, c, 0)                                                                       \
    }
            EACH_COL(COLUMN)
            EACH_ROW(CHANNEL)
            vt++;
            gt += TO * LANES;
        }
    }
#define ADD_M(c, o)                                                                                \
    if (c < tc && o < to)                                                                          \
        a##c##o += LOAD(m + (c * TO + o) * LANES);
#define PUT_M(c, o)                                                                                \
    if (c < tc && o < to)                                                                          \
        STORE(a##c##o, m + (c * TO + o) * LANES);
    if (more) {
        EACH_CELL(ADD_M)
    }
    EACH_CELL(PUT_M)
}

/* Computes the products of one point for all input channels and `to` vectors of output channels. */
INLINE void clt_row_of_products(global const float *v, global const float *g, global float *m,
                                int ci, int used, private const int *images, int more, const int to)
{
    int c = 0;
    for (; c + TC <= ci; c += TC) {
        clt_products(v, g, m, used, images, more, TC, to);
        v += POINTS * V_STEP;
        m += POINTS * M_STEP;
    }
#if CTAIL
    clt_products(v, g, m, used, images, more, CTAIL, to);
#endif
}

/* Transforms the sums of an input channel and a vector of output channels into the sums of 3 x 3
 * weights. */
INLINE void clt_tile_of_taps(global const float *m, global float *part, int row)
{
    vecf mid[TAPS * SIDE];
    for (int j = 0; j < SIDE; j++) {
#define LOAD_M(i, a, b) const vecf m##i = LOAD(m + (i * SIDE + j) * M_STEP);
        FOR_A(SIDE, LOAD_M, 0, 0)
#define PUT_SUM(i, value) mid[i * SIDE + j] = value;
        TRANSFORM_SUMS(PUT_SUM, m)
    }
    for (int i = 0; i < TAPS; i++) {
#define TAKE_M(j, a, b) const vecf m##j = mid[i * SIDE + j];
        FOR_A(SIDE, TAKE_M, 0, 0)
#define PUT_TAP(j, value) STORE(value, part + (i * TAPS + j) * row);
        TRANSFORM_SUMS(PUT_TAP, m)
    }
}

KERNEL void clt_batch_blocked_winograd_weight_grad(global const float *x, long x_at, global const float *g,
                                           long g_at, global float *area, long area_at,
                                           global float *part, long part_at, int n, int ci, int ih,
                                           int iw, int co, int oh, int ow)
{
    const int tiles_x = (ow + OUT - 1) / OUT, tiles = (oh + OUT - 1) / OUT * tiles_x;
    const long all = (long)clt_blocks(n) * tiles, strips = (all + TILES - 1) / TILES;
    const long group = get_global_id(0), groups = get_global_size(0);
    const long first = group * strips / groups, last = (group + 1) * strips / groups;
    const int row = G_ROW(co), o_first = get_global_id(1) * BLOCK;
    const int vectors = min(row / LANES - o_first, BLOCK);
    global float *v = area + area_at + (group * get_global_size(1) + get_global_id(1)) * AREA(ci);
    global float *u = v + V_SIZE(ci), *m = u + G_SIZE;
    x += x_at;
    g += g_at;
    part += part_at + group * (ci * TAPS * TAPS + 1) * row + o_first * LANES;
    global float *bias = part + (long)ci * TAPS * TAPS * row;
    for (int o = 0; BIAS && o < vectors; o++)
        STORE((vecf)0.0f, bias + o * LANES);
    for (int r = 0; first == last && r < ci * TAPS * TAPS; r++)
        for (int o = 0; o < vectors; o++)
            STORE((vecf)0.0f, part + (long)r * row + o * LANES);
    for (long s = first; s < last; s++) {
        const int used = (int)min((long)TILES, all - s * TILES);
        int block[TILES], images[TILES], top[TILES], left[TILES];
        for (int t = 0; t < used; t++) {
            const int place = (int)((s * TILES + t) % tiles);
            block[t] = (int)((s * TILES + t) / tiles);
            images[t] = min(n - block[t] * LANES, LANES);
            top[t] = place / tiles_x * OUT;
            left[t] = place % tiles_x * OUT;
        }
        /* v: the transformed inputs of the strip. */
        for (int c0 = 0; c0 < ci; c0 += TC) {
            const int count = min(TC, ci - c0);
            for (int t = 0; t < used; t++) {
                const int iy = top[t] - PY, ix = left[t] - PX;
                const int inner = iy >= 0 && ix >= 0 && iy + SIDE <= ih && ix + SIDE <= iw;
                global const float *from = x + ((long)block[t] * ci + c0) * ih * iw * LANES;
                global float *to = v + c0 / TC * POINTS * V_STEP + t * LANES;
                for (int c = 0; c < count && inner; c++)
                    clt_tile_of_inputs(from + c * ih * iw * LANES, ih, iw, iy, ix, 0,
                                       to + c * TILES * LANES, V_STEP);
                for (int c = 0; c < count && !inner; c++)
                    clt_tile_of_inputs(from + c * ih * iw * LANES, ih, iw, iy, ix, 1,
                                       to + c * TILES * LANES, V_STEP);
            }
        }
        /* u: its transformed gradients. */
        for (int o = 0; o < vectors; o++) {
            const int o0 = (o_first + o) * LANES;
            for (int t = 0; t < used; t++) {
                float turned[OUT * OUT * LANES * LANES];
                const int inner =
                    top[t] + OUT <= oh && left[t] + OUT <= ow && o0 + LANES <= co;
                global const float *from = g + ((long)block[t] * co + o0) * oh * ow * LANES;
                if (inner)
                    clt_transpose_tile(from, oh, ow, top[t], left[t], LANES, 0, turned);
                else
                    clt_transpose_tile(from, oh, ow, top[t], left[t], min(co - o0, LANES), 1,
                                       turned);
                const vecf sum = clt_tile_of_grads(
                    turned, images[t],
                    u + (o / TO * POINTS * G_STEP + (t * LANES * TO + o % TO) * LANES));
#if BIAS
                STORE(LOAD(bias + o * LANES) + sum, bias + o * LANES);
#endif
            }
        }
        /* m: the products of all points. */
        for (int p = 0; p < POINTS; p++) {
            int o = 0;
            for (; o + TO <= vectors; o += TO)
                clt_row_of_products(v + p * V_STEP, u + (o / TO * POINTS + p) * G_STEP,
                                    m + (o / TO * C_BLOCKS(ci) * POINTS + p) * M_STEP, ci, used,
                                    images, s > first, TO);
#if OTAIL
            if (o < vectors)
                clt_row_of_products(v + p * V_STEP, u + (o / TO * POINTS + p) * G_STEP,
                                    m + (o / TO * C_BLOCKS(ci) * POINTS + p) * M_STEP, ci, used,
                                    images, s > first, OTAIL);
#endif
        }
    }
    for (int c = 0; first < last && c < ci; c++)
        for (int o = 0; o < vectors; o++)
            clt_tile_of_taps(m + (o / TO * C_BLOCKS(ci) + c / TC) * POINTS * M_STEP +
                                 (c % TC * TO + o % TO) * LANES,
                             part + (long)c * TAPS * TAPS * row + o * LANES, row);
}

KERNEL void clt_batch_blocked_winograd_weight_sum(global const float *part, long part_at, global float *dw,
                                          long dw_at, global float *db, long db_at, int groups,
                                          int ci, int co)
{
    const int o0 = get_global_id(0) * LANES, count = min(co - o0, LANES);
    const int c0 = get_global_id(1) * SPREAD, end = min(c0 + SPREAD, ci);
    const int row = G_ROW(co);
    const long step = (long)(ci * TAPS * TAPS + 1) * row;
    part += part_at + o0;
    dw += dw_at + (long)o0 * ci * TAPS * TAPS;
    for (int r = c0 * TAPS * TAPS; r < end * TAPS * TAPS; r++) {
        float lane[LANES];
        vecf sum = LOAD(part + (long)r * row);
        for (int p = 1; p < groups; p++)
            sum += LOAD(part + p * step + (long)r * row);
        *(private vecf_anywhere *)lane = sum;
        for (int l = 0; l < count; l++)
            dw[(long)l * ci * TAPS * TAPS + r] = lane[l];
    }
#if BIAS
    if (c0 == 0) {
        part += step - row;
        vecf sum = LOAD(part);
        for (int p = 1; p < groups; p++)
            sum += LOAD(part + p * step);
        if (count == LANES)
            STORE(sum, db + db_at + o0);
        else
            clt_store_part(sum, db + db_at + o0, count);
    }
#endif
}
