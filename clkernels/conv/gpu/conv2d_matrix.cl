/*
 * Convolution on matrix units, as matrix products A [M, K] x B [K, N] for each group of channels
 * (implicit GEMM), like conv/gpu/conv2d.cl, which says how PASS, M, N, K, work-groups, slices and
 * classes of pixels are chosen, and has the kernels that add slices. Operands are in 16 bits, or
 * floats that are rounded to 16 bits; sums are f32.
 *
 * Panels in local memory are contiguous along K (core/gpu/matrix_tile.clh), so a work-item loads
 * eight neighbouring k of one row or column, and stores them as one vector. Places of k are
 * computed once for the whole work-group, in a table in local memory that is two panels ahead of
 * the sums.
 *
 * Build options: those of core/gpu/matrix_tile.clh; PASS; X_T: the type of the image in B, W_T: of
 * A, Y_T: of the result (core/storage.clh).
 */
#include "core/gpu/matrix_tile.clh"
#include "core/gpu/rectify.clh"
#include "conv/gpu/implicit.clh"

#define SLOTS(T) ((TK * T / 8 + THREADS - 1) / THREADS)
#define EXACT_SLOTS(T) (TK * T / 8 % THREADS == 0)

/* The offset, row and column in the image that belong to the columns n of B that a work-item loads:
 * one pixel, or with PASS 2 a channel and tap for each slot. */
#if PASS == 2
#define PLACES SLOTS(TN)
#define COLUMN_OF(e) ((e) / (TK / 8))
#define K_OF(e) ((e) % (TK / 8) * 8)
#else
#define PLACES 1
#define COLUMN_OF(e) ((e) % TN)
#define K_OF(e) ((e) / TN * 8)
#endif
typedef struct place {
    int at[PLACES], y[PLACES], x[PLACES];
} place;

/* Eight elements as floats or as 16 bits. UNIT_T has the 16-bit type of A and B. */
#define ONE_f 1.0f
#define ONE_h 0x3C00
#define ONE_w 0x3F80
#define ONE(kind) CLT_STORAGE(ONE, kind)
#define PACK_f(e) unit_narrow8((float8)(e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7]))
#define PACK_h(e) (ushort8)(e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7])
#define PACK_w(e) PACK_h(e)
#define PACK(kind, e) CLT_STORAGE(PACK, kind)(e)

/* fetch_ loads the work-item's elements of the next panel into registers, put_ stores them to local
 * memory. `rows` is the number of rows of A that exist from the tile's first on. */
UNIT_INLINE void fetch_a(STORED(W_T) (*to)[8], global const STORED(W_T) * a,
                           local const int4 *table, int lid, int rows, int stride)
{
#pragma unroll
    for (int s = 0; s < SLOTS(TM); s++) {
        const int e = s * THREADS + lid, i = min(e / (TK / 8), rows - 1) * stride;
        if (EXACT_SLOTS(TM) || e < TK * TM / 8)
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const int k = table[e % (TK / 8) * 8 + j].w;
                const STORED(W_T) v = a[(uint)(i + max(k, 0))];
                to[s][j] = k < 0 ? 0 : v;
            }
    }
}

UNIT_INLINE void put_a(local ushort *panel, STORED(W_T) (*from)[8], int lid)
{
#pragma unroll
    for (int s = 0; s < SLOTS(TM); s++) {
        const int e = s * THREADS + lid;
        if (EXACT_SLOTS(TM) || e < TK * TM / 8)
            *(local ushort8 *)(panel + e / (TK / 8) * LDK + e % (TK / 8) * 8) =
                PACK(W_T, from[s]);
    }
}

/* Elements outside of the image are 0. In PASS 2, the row OUTSIDE marks the column of the bias,
 * whose elements are 1. */
UNIT_INLINE void fetch_b(STORED(X_T) (*to)[8], global const STORED(X_T) * b,
                           local const int4 *table, int lid, const place *p, int height, int width)
{
#pragma unroll
    for (int s = 0; s < SLOTS(TN); s++) {
        const int e = s * THREADS + lid, i = PLACES > 1 ? s : 0;
        if (EXACT_SLOTS(TN) || e < TK * TN / 8)
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const int4 t = table[K_OF(e) + j];
                const int y = p->y[i] + t.y, x = p->x[i] + t.z;
                const int inside = (uint)y < (uint)height && (uint)x < (uint)width;
                const STORED(X_T) v = b[(uint)(inside ? p->at[i] + t.x : 0)];
                to[s][j] = inside ? v : 0;
#if PASS == 2
                if (p->y[i] == OUTSIDE && t.w >= 0)
                    to[s][j] = ONE(X_T);
#endif
            }
    }
}

UNIT_INLINE void put_b(local ushort *panel, STORED(X_T) (*from)[8], int lid)
{
#pragma unroll
    for (int s = 0; s < SLOTS(TN); s++) {
        const int e = s * THREADS + lid;
        if (EXACT_SLOTS(TN) || e < TK * TN / 8)
            *(local ushort8 *)(panel + COLUMN_OF(e) * LDK + K_OF(e)) = PACK(X_T, from[s]);
    }
}

/* acc = A B over the slice. `a` points at the tile's first row. Local memory has two panels of each
 * operand, `side` and `next`: while one is multiplied, elements of the other are on their way. */
UNIT_INLINE void product(unit_c (*acc)[WIDE], local ushort *as, local ushort *bs,
                           local int4 *table, int lid, const k_steps *w,
                           global const STORED(W_T) * a, int rows, int stride,
                           global const STORED(X_T) * b, const place *p, int height, int width,
                           local float *scratch)
{
    STORED(W_T) pa[SLOTS(TM)][8];
    STORED(X_T) pb[SLOTS(TN)][8];
    clear_tile(acc);
    for (int i = lid; i < 2 * TK; i += THREADS)
        table[i] = entry(w, w->begin + i);
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
        multiply_panels(as + (side * TM + WARP_ROW(lid)) * LDK,
                        bs + (side * TN + WARP_COLUMN(lid)) * LDK, acc, lid % UNIT_LANES, scratch);
        put_a(as + next * TM * LDK, pa, lid);
        put_b(bs + next * TN * LDK, pb, lid);
        for (int i = lid; i < TK; i += THREADS)
            table[side * TK + i] = entry(w, k0 + 2 * TK + i);
        side = next;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#define PANELS                                                                                     \
    local ushort as[2 * TM * LDK] __attribute__((aligned(16)));                                    \
    local ushort bs[2 * TN * LDK] __attribute__((aligned(16)));                                    \
    local int4 table[2 * TK];                                                                      \
    UNIT_SCRATCH(WARPS)                                                                            \
    const int lid = (int)get_local_id(0), lane = lid % UNIT_LANES;                                 \
    const int m0 = (int)get_group_id(1) * TM, n0 = (int)get_group_id(0) * TN;                      \
    const int c_group = C / groups, o_group = O / groups, taps = KH * KW;                          \
    unit_c acc[DEEP][WIDE];

/* Visits a lane's columns c of the product, then its rows r and sums v of that column. */
#define EACH_COLUMN                                                                                \
    UNIT_UNROLL for (int j = 0; j < WIDE; j++) UNIT_UNROLL for (int e = 0; e < UNIT_SUMS; e++)     \
    {                                                                                              \
        const int c = n0 + WARP_COLUMN(lid) + j * UNIT_N + UNIT_COLUMN(lane, e);
#define EACH_ROW                                                                                   \
    UNIT_UNROLL for (int i = 0; i < DEEP; i++)                                                     \
    {                                                                                              \
        const int r = m0 + WARP_ROW(lid) + i * UNIT_M + UNIT_ROW(lane, e);                         \
        const float v = UNIT_GET(acc[i][j], e);
#define END }

#if PASS == 0

kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
conv2d_matrix(global const STORED(X_T) * x, long x_offset, global const STORED(W_T) * w,
              long w_offset, global const float *bias, long bias_offset, global STORED(Y_T) * y,
              long y_offset, CLT_SHAPE, int has_bias, int act, float slope, int slices)
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
    const int n = min(n0 + COLUMN_OF(lid), N - 1), image = n / pixels, q = n - image * pixels;
    const int y0 = q / OW * sy - py, x0 = q % OW * sx - px;
    const place p = {{y0 * W + x0}, {y0}, {x0}};
    product(acc, as, bs, table, lid, &k, w + w_offset + (long)(g * o_group + m0) * K, o_group - m0,
            K, x + x_offset + ((long)image * C + g * c_group) * H * W, &p, H, W,
            UNIT_SCRATCH_OF(lid));
    y += y_offset + (long)slice * O * N + (long)g * o_group * pixels;
    EACH_COLUMN
        const int b = c / pixels;
        const long at = (long)b * O * pixels + (c - b * pixels);
        EACH_ROW
            if (r < o_group && c < N) {
                const float add = has_bias ? bias[bias_offset + g * o_group + r] : 0.0f;
                UNIT_PUT(Y_T, rectify(v + add, act, slope), y + at + (long)r * pixels);
            }
        END
    END
}

#elif PASS == 1

kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
conv2d_data_grad_matrix(global const STORED(X_T) * dy, long dy_offset, global const STORED(W_T) * w,
                        long w_offset, global STORED(Y_T) * dx, long dx_offset, CLT_SHAPE,
                        int slices)
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
    const int n = min(n0 + COLUMN_OF(lid), N - 1), image = n / pixels, q = n - image * pixels;
    const int y0 = q / columns, x0 = q % columns;
    const place p = {{y0 * OW + x0}, {y0}, {x0}};
    product(acc, as, bs, table, lid, &k,
            w + w_offset + (long)g * o_group * c_group * taps + m0 * taps, c_group - m0, taps,
            dy + dy_offset + ((long)image * O + g * o_group) * OH * OW, &p, OH, OW,
            UNIT_SCRATCH_OF(lid));
    dx += dx_offset + (long)slice * B * C * H * W + (long)g * c_group * H * W;
    EACH_COLUMN
        const int b = c / pixels, in = c - b * pixels;
        const int iy = in / columns * sy + ry, ix = in % columns * sx + rx;
        EACH_ROW
            if (r < c_group && c < N && iy < H && ix < W)
                UNIT_PUT(Y_T, v, dx + (long)b * C * H * W + iy * W + ix + (long)r * H * W);
        END
    END
}

#else

/* With several slices, dw has `part` elements for each slice: the weights, then the biases. */
kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
conv2d_weight_grad_matrix(global const STORED(X_T) * x, long x_offset,
                          global const STORED(W_T) * dy, long dy_offset, global float *dw,
                          long dw_offset, global float *db, long db_offset, CLT_SHAPE,
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
    for (int s = 0; s < PLACES; s++) {
        const int n = min(n0 + COLUMN_OF(s * THREADS + lid), N - 1);
        const int c = n / taps, r = n - c * taps, ky = r / KW * dy_, kx = r % KW * dx_;
        p.at[s] = c * H * W + ky * W + kx;
        p.y[s] = n < weights ? ky : OUTSIDE;
        p.x[s] = kx;
    }
    product(acc, as, bs, table, lid, &k,
            dy + dy_offset + ((long)first * O + g * o_group + m0) * pixels, o_group - m0, pixels,
            x + x_offset + ((long)first * C + g * c_group) * H * W, &p, H, W, UNIT_SCRATCH_OF(lid));
    global float *to = dw + dw_offset + (long)slice * part;
    global float *biases = slices > 1 ? to + O * weights : db + db_offset;
    EACH_COLUMN
        EACH_ROW
            if (r < o_group && c < weights)
                to[(long)(g * o_group + r) * weights + c] = v;
            else if (r < o_group && c == weights && has_bias)
                biases[g * o_group + r] = v;
        END
    END
}

#endif
