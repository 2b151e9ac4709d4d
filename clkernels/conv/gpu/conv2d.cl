/*
 * Convolution on GPUs as matrix products A [M, K] x B [K, N] for each group of channels (implicit
 * GEMM): B is gathered from the image into local memory, and never stored as a matrix. PASS selects
 * the kernel:
 *
 *   0  conv2d              M output channels  K channels x taps         N images x pixels
 *   1  conv2d_data_grad    M channels         K output channels x taps  N images x pixels of x
 *   2  conv2d_weight_grad  M output channels  K images x pixels of dy   N channels x taps, and bias
 *
 * Work-group (x, y, z) computes the tile of core/gpu/tile.clh whose first column is x * TN and
 * first row y * TM. z is the group of channels, the slice, and in PASS 1 the class. With a stride,
 * the pixels of dx fall into classes by their remainder modulo the stride. A class meets its own
 * taps of the kernel, and is a product of its own.
 *
 * If there would be too few work-groups, K is cut into slices. Then each slice has its own result,
 * and conv2d_sum or conv2d_weight_sum adds them in order. These two kernels are in the file without
 * TM.
 *
 * An index k of K stands for a channel and a tap, or for an image and a pixel. Work-items compute
 * that once for the whole work-group, in a table in local memory that is two panels ahead of the
 * sums. So the loops that load panels need no divisions.
 *
 * Build options: those of core/gpu/tile.clh; PASS; V: 4 if four neighbours of the result can be
 * stored as a float4, else 1.
 */
#include "core/activation.clh"

#ifdef TM
#include "core/gpu/rectify.clh"
#include "core/gpu/tile.clh"
#include "conv/gpu/implicit.clh"

#define A_SLOTS (TK * TM / THREADS)
#define B_SLOTS (TK * TN / THREADS)

/* The offset, row and column in the image that belong to the columns n of B that a work-item loads:
 * one pixel, or with PASS 2 a channel and tap for each slot. */
#if PASS == 2
#define PLACES B_SLOTS
#else
#define PLACES 1
#endif
typedef struct place {
    int at[PLACES], y[PLACES], x[PLACES];
} place;

/* fetch_ loads the work-item's elements of the next panel into registers, put_ stores them to local
 * memory. `rows` is the number of rows of A that exist from the tile's first on. */
static inline void fetch_a(float *to, global const float *a, local const int4 *table, int lid,
                           int rows, int stride)
{
    const int k = table[lid % TK].w, at = max(k, 0);
#pragma unroll
    for (int s = 0; s < A_SLOTS; s++) {
        const int i = min(s * (THREADS / TK) + lid / TK, rows - 1);
        const float v = a[(uint)(i * stride + at)];
        to[s] = k < 0 ? 0.0f : v;
    }
}

static inline void put_a(local float *panel, const float *from, int lid)
{
#pragma unroll
    for (int s = 0; s < A_SLOTS; s++)
        panel[lid % TK * LDM + s * (THREADS / TK) + lid / TK] = from[s];
}

/* Elements outside of the image are 0. In PASS 2, the row OUTSIDE marks the column of the bias,
 * whose elements are 1. */
static inline void fetch_b(float *to, global const float *b, local const int4 *table, int lid,
                           const place *p, int height, int width)
{
#if PASS == 2
    const int4 t = table[lid % TK];
#endif
#pragma unroll
    for (int s = 0; s < B_SLOTS; s++) {
#if PASS == 2
        const int i = s;
#else
        const int4 t = table[s * (THREADS / TN) + lid / TN];
        const int i = 0;
#endif
        const int y = p->y[i] + t.y, x = p->x[i] + t.z;
        const int inside = (uint)y < (uint)height && (uint)x < (uint)width;
        const float v = b[(uint)(inside ? p->at[i] + t.x : 0)];
        to[s] = inside ? v : 0.0f;
#if PASS == 2
        if (p->y[i] == OUTSIDE && t.w >= 0)
            to[s] = 1.0f;
#endif
    }
}

static inline void put_b(local float *panel, const float *from, int lid)
{
#pragma unroll
    for (int s = 0; s < B_SLOTS; s++)
#if PASS == 2
        panel[lid % TK * LDN + s * (THREADS / TK) + lid / TK] = from[s];
#else
        panel[(s * (THREADS / TN) + lid / TN) * LDN + lid % TN] = from[s];
#endif
}

/* acc = A B over the slice. `a` points at the tile's first row. Local memory has two panels of each
 * operand, `side` and `next`: while one is multiplied, elements of the other are on their way. */
static inline void product(float4 (*acc)[NQ], local float *as, local float *bs, local int4 *table,
                           int lid, const k_steps *w, global const float *a, int rows, int stride,
                           global const float *b, const place *p, int height, int width)
{
    const int row = TILE_ROW(lid), column = TILE_COLUMN(lid);
    float pa[A_SLOTS], pb[B_SLOTS];
    clear(acc);
    if (lid < 2 * TK)
        table[lid] = entry(w, w->begin + lid);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (w->begin < w->end) {
        fetch_a(pa, a, table, lid, rows, stride);
        fetch_b(pb, b, table, lid, p, height, width);
        put_a(as, pa, lid);
        put_b(bs, pb, lid);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    int side = 0;
    for (int k0 = w->begin; k0 < w->end; k0 += TK) {
        const int next = side ^ 1;
        fetch_a(pa, a, table + next * TK, lid, rows, stride);
        fetch_b(pb, b, table + next * TK, lid, p, height, width);
        multiply(as + side * (TK * LDM) + row, bs + side * (TK * LDN) + column, acc);
        put_a(as + next * (TK * LDM), pa, lid);
        put_b(bs + next * (TK * LDN), pb, lid);
        if (lid < TK)
            table[side * TK + lid] = entry(w, k0 + 2 * TK + lid);
        side = next;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#define PANELS                                                                                     \
    local float as[2 * TK * LDM] __attribute__((aligned(16)));                                     \
    local float bs[2 * TK * LDN] __attribute__((aligned(16)));                                     \
    local int4 table[2 * TK];                                                                      \
    const int lid = (int)get_local_id(0);                                                          \
    const int m0 = (int)get_group_id(1) * TM, n0 = (int)get_group_id(0) * TN;                      \
    const int c_group = C / groups, o_group = O / groups, taps = KH * KW;                          \
    float4 acc[RM][NQ];

/* Stores four columns of the work-item's rows, after bias and activation: column l of row m goes to
 * to[m * plane + at[l]], unless at[l] is negative. With V = 4, at[0] holds for all four. */
static inline void store(global float *to, const float4 *v, const long *at, int m, int rows,
                         int plane, global const float *bias, int act, float slope)
{
#pragma unroll
    for (int i = 0; i < RM; i++) {
        const int r = m + ROW_OF(i);
        const float add = bias && r < rows ? bias[r] : 0.0f;
        float x[4];
        *(float4 *)x = v[i * NQ];
#pragma unroll
        for (int l = 0; l < 4; l++)
            x[l] = rectify(x[l] + add, act, slope);
#if V == 4
        if (r < rows && at[0] >= 0)
            *(global float4 *)(to + (long)r * plane + at[0]) = (float4)(x[0], x[1], x[2], x[3]);
#else
#pragma unroll
        for (int l = 0; l < 4; l++)
            if (r < rows && at[l] >= 0)
                to[(long)r * plane + at[l]] = x[l];
#endif
    }
}

#if PASS == 0

kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
conv2d(global const float *x, long x_offset, global const float *w, long w_offset,
       global const float *bias, long bias_offset, global float *y, long y_offset, CLT_SHAPE,
       int has_bias, int act, float slope, int slices)
{
    PANELS
    const int g = (int)get_group_id(2) % groups, slice = (int)get_group_id(2) / groups;
    const int pixels = OH * OW, N = B * pixels, K = c_group * taps;
    const int share = SHARE(K), begin = min(slice * share, K);
    const k_steps k = {.begin = begin,
                    .end = min(begin + share, K),
                    .plane = H * W,
                    .row = W,
                    .taps = taps,
                    .kernel_width = KW,
                    .step_y = dy_,
                    .step_x = dx_,
                    .weight = taps,
                    .tap_y = KW,
                    .tap_x = 1};
    const int n = min(n0 + lid % TN, N - 1), image = n / pixels, q = n - image * pixels;
    const int y0 = q / OW * sy - py, x0 = q % OW * sx - px;
    const place p = {{y0 * W + x0}, {y0}, {x0}};
    product(acc, as, bs, table, lid, &k, w + w_offset + (long)(g * o_group + m0) * K, o_group - m0,
            K, x + x_offset + ((long)image * C + g * c_group) * H * W, &p, H, W);
#pragma unroll
    for (int j = 0; j < NQ; j++) {
        long at[4];
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const int c = n0 + TILE_COLUMN(lid) + COLUMN_OF(j) + l, b = c / pixels;
            at[l] = c < N ? (long)b * O * pixels + (c - b * pixels) : -1;
        }
        store(y + y_offset + (long)slice * O * N + (long)g * o_group * pixels, acc[0] + j, at, m0 + TILE_ROW(lid),
              o_group, pixels, has_bias ? bias + bias_offset + g * o_group : 0, act, slope);
    }
}

#elif PASS == 1

kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
conv2d_data_grad(global const float *dy, long dy_offset, global const float *w, long w_offset,
                 global float *dx, long dx_offset, CLT_SHAPE, int slices)
{
    PANELS
    const int g = (int)get_group_id(2) % groups, rest = (int)get_group_id(2) / groups;
    const int kinds_x = min(sx, W), kinds = min(sy, H) * kinds_x;
    const int slice = rest / kinds, kind = rest - slice * kinds;
    const int ry = kind / kinds_x, rx = kind % kinds_x;
    const int4 ty = meeting(ry + py, sy, dy_, KH), tx = meeting(rx + px, sx, dx_, KW);
    const int rows = (H - 1) / sy + 1, columns = (W - 1) / sx + 1, pixels = rows * columns;
    const int N = B * pixels, K = o_group * ty.z * tx.z;
    const int share = SHARE(K), begin = min(slice * share, K);
    const k_steps k = {.begin = begin,
                    .end = min(begin + share, K),
                    .plane = OH * OW,
                    .row = OW,
                    .taps = ty.z * tx.z,
                    .kernel_width = tx.z,
                    .first_y = (ry + py - ty.x * dy_) / sy,
                    .first_x = (rx + px - tx.x * dx_) / sx,
                    .step_y = -(ty.y * dy_ / sy),
                    .step_x = -(tx.y * dx_ / sx),
                    .weight = c_group * taps,
                    .tap = ty.x * KW + tx.x,
                    .tap_y = ty.y * KW,
                    .tap_x = tx.y};
    const int n = min(n0 + lid % TN, N - 1), image = n / pixels, q = n - image * pixels;
    const int y0 = q / columns, x0 = q % columns;
    const place p = {{y0 * OW + x0}, {y0}, {x0}};
    product(acc, as, bs, table, lid, &k,
            w + w_offset + (long)g * o_group * c_group * taps + m0 * taps, c_group - m0, taps,
            dy + dy_offset + ((long)image * O + g * o_group) * OH * OW, &p, OH, OW);
#pragma unroll
    for (int j = 0; j < NQ; j++) {
        long at[4];
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const int c = n0 + TILE_COLUMN(lid) + COLUMN_OF(j) + l, b = c / pixels;
            const int r = c - b * pixels, iy = r / columns * sy + ry, ix = r % columns * sx + rx;
            at[l] = c < N && iy < H && ix < W ? (long)b * C * H * W + iy * W + ix : -1;
        }
        store(dx + dx_offset + (long)slice * B * C * H * W + (long)g * c_group * H * W, acc[0] + j, at, m0 + TILE_ROW(lid),
              c_group, H * W, 0, CLT_ACT_NONE, 0.0f);
    }
}

#else

/* With several slices, dw has `part` elements for each slice: the weights, then the biases. */
kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
conv2d_weight_grad(global const float *x, long x_offset, global const float *dy, long dy_offset,
                   global float *dw, long dw_offset, global float *db, long db_offset, CLT_SHAPE,
                   int has_bias, int part, int slices)
{
    PANELS
    const int g = (int)get_group_id(2) % groups, slice = (int)get_group_id(2) / groups;
    const int pixels = OH * OW, K = B * pixels, weights = c_group * taps, N = weights + has_bias;
    const int share = SHARE(K);
    const int begin = min(slice * share, K), first = min(begin / pixels, max(B - 1, 0));
    const k_steps k = {.begin = begin,
                    .end = min(begin + share, K),
                    .row = W,
                    .first_y = -py,
                    .first_x = -px,
                    .step_y = sy,
                    .step_x = sx,
                    .image = C * H * W,
                    .image_of_a = O * pixels,
                    .out_plane = pixels,
                    .out_width = OW,
                    .first_image = first};
    place p;
#pragma unroll
    for (int s = 0; s < B_SLOTS; s++) {
        const int n = min(n0 + s * (THREADS / TK) + lid / TK, N - 1);
        const int c = n / taps, r = n - c * taps, ky = r / KW * dy_, kx = r % KW * dx_;
        p.at[s] = c * H * W + ky * W + kx;
        p.y[s] = n < weights ? ky : OUTSIDE;
        p.x[s] = kx;
    }
    product(acc, as, bs, table, lid, &k,
            dy + dy_offset + ((long)first * O + g * o_group + m0) * pixels, o_group - m0, pixels,
            x + x_offset + ((long)first * C + g * c_group) * H * W, &p, H, W);
    global float *to = dw + dw_offset + (long)slice * part;
    global float *biases = slices > 1 ? to + O * weights : db + db_offset;
#pragma unroll
    for (int j = 0; j < NQ; j++) {
        const int c = n0 + TILE_COLUMN(lid) + COLUMN_OF(j);
        long at[4];
#pragma unroll
        for (int l = 0; l < 4; l++) {
            at[l] = c + l < weights ? c + l : -1;
#pragma unroll
            for (int i = 0; i < RM; i++) {
                const int m = m0 + TILE_ROW(lid) + ROW_OF(i);
                float v[4];
                *(float4 *)v = acc[i][j];
                if (c + l == weights && has_bias && m < o_group)
                    biases[g * o_group + m] = v[l];
            }
        }
        store(to + (long)g * o_group * weights, acc[0] + j, at, m0 + TILE_ROW(lid), o_group,
              weights, 0, CLT_ACT_NONE, 0.0f);
    }
}

#endif

#else
#include "core/gpu/halves.clh"

#if V == 4
#define VEC float4
#define PUTV(v, p) PUT4(OUT0, v, p)
#else
#define VEC float
#define PUTV(v, p) PUT(OUT0, v, p)
#endif

static inline VEC activate(VEC x, int act, float slope)
{
    CLT_ACTIVATE_BODY(VEC)
}

/* out [images, channels, pixels] = activation(bias + sum of all slices' results, in a fixed order).
 * A work-item computes V elements. */
kernel void conv2d_sum(global const float *parts, long parts_offset, global const float *bias,
                       long bias_offset, global STORED(OUT0) * out, long out_offset, int images,
                       int channels, int pixels, int slices, int has_bias, int act, float slope)
{
    const int at = (int)get_global_id(0) * V;
    const long count = (long)images * channels * pixels;
    if (at >= count)
        return;
    parts += parts_offset + at;
    VEC sum = 0.0f;
    for (int s = 0; s < slices; s++)
        sum += *(global const VEC *)(parts + s * count);
    if (has_bias)
        sum += bias[bias_offset + at / pixels % channels];
    PUTV(activate(sum, act, slope), out + out_offset + at);
}

/* dw, db = the sums of all slices' results, in a fixed order. A work-item computes V elements. */
kernel void conv2d_weight_sum(global const float *parts, long parts_offset, global float *dw,
                              long dw_offset, global float *db, long db_offset, int weights,
                              int sums, int part, int slices)
{
    const int at = (int)get_global_id(0) * V;
    if (at >= sums)
        return;
    parts += parts_offset + at;
    VEC sum = 0.0f;
    for (int s = 0; s < slices; s++)
        sum += *(global const VEC *)(parts + (long)s * part);
    if (at < weights)
        *(global VEC *)(dw + dw_offset + at) = sum;
    else
        *(global VEC *)(db + db_offset + at - weights) = sum;
}

#endif
