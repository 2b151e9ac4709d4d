/*
 * Depthwise convolution on GPUs: each channel of x is convolved with `each` kernels of its own, so
 * O = C * each.
 *
 * Memory limits these kernels. So a work-item computes a block of neighbouring results in
 * registers: each row that it reads serves several results. A work-group has one channel, and reads
 * its weights once. PASS selects the kernel:
 *
 *   0  depthwise               a work-item computes Y x V elements of y
 *   1  depthwise_data_grad     a work-item computes the Y SY x V SX elements of dx that belong to
 *                              Y x V elements of dy
 *   2  depthwise_weight_grad   a work-group sums KR rows of a kernel's weights, and the bias, over
 *                              a slice of dy; a work-item takes Y x V elements of dy at a time
 *
 * V is 4 or 1. With 4, rows are read and written as float4; rows of x and y must be multiples of 4.
 * With 1, neighbouring work-items access neighbouring floats.
 *
 * Build options: PASS, V, Y; KH, KW, SY, SX, PY, PX, DY, DX: kernel, stride, padding and dilation.
 * They are constants, because arrays in registers need constant indices. With PASS 2 also KR, and
 * GROUP, the size of a work-group; Y must divide OH then.
 */
#include "core/gpu/rectify.clh"
#include "core/gpu/tree.clh"

#if V == 4
#define VEC float4
#else
#define VEC float
#endif

#define REGISTERS __attribute__((aligned(16))) float
#define CEIL(a, b) (((a) + (b) - 1) / (b))
#define FLOOR(a, b) (((a) - (((a) % (b)) + (b)) % (b)) / (b)) /* of negative numbers too */

/* The rows and columns that a block reads, counted from those under its first element. FIRST_COLUMN
 * is rounded down to a multiple of V, for aligned float4. */
#if PASS == 1
#define FIRST_ROW FLOOR(PY - (KH - 1) * DY, SY)
#define LAST_ROW FLOOR(Y * SY - 1 + PY, SY)
#define FIRST_COLUMN (FLOOR(FLOOR(PX - (KW - 1) * DX, SX), V) * V)
#define LAST_COLUMN FLOOR(V * SX - 1 + PX, SX)
#else
#if PASS == 0
#define KR KH
#endif
#define FIRST_ROW (-(PY))
#define LAST_ROW (FIRST_ROW + (Y - 1) * SY + (KR - 1) * DY)
#define FIRST_COLUMN (FLOOR(-(PX), V) * V)
#define LAST_COLUMN ((V - 1) * SX + (KW - 1) * DX - (PX))
#endif
#define ROWS (LAST_ROW - FIRST_ROW + 1)
#define VECTORS CEIL(LAST_COLUMN - FIRST_COLUMN + 1, V)

/* Loads VECTORS * V columns of row y from column x on; elements outside of the image become 0. */
static inline void load_row(float *to, global const float *plane, int y, int x, int height,
                            int width)
{
    const int row = (uint)y < (uint)height;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const int at = x + i * V, inside = row && (uint)at < (uint)width;
        const VEC v = *(global const VEC *)(plane + (inside ? y * width + at : 0));
        *(VEC *)(to + i * V) = inside ? v : (VEC)(0.0f);
    }
}

/* Returns column and row of the first element of block number `at`. Blocks are numbered along
 * rows. */
static inline int2 block_at(int at, int width)
{
    const int across = CEIL(width, V), row = at / across;
    return (int2)(at - row * across, row) * (int2)(V, Y);
}

#if PASS == 0

/* Global size: (blocks of a channel in all images, channels of y). */
kernel void depthwise(global const float *x, long x_offset, global const float *w, long w_offset,
                      global const float *bias, long bias_offset, global float *y, long y_offset,
                      int B, int C, int H, int W, int O, int OH, int OW, int has_bias, int act,
                      float slope)
{
    const int blocks = CEIL(OW, V) * CEIL(OH, Y), o = (int)get_group_id(1);
    const int image = (int)get_global_id(0) / blocks;
    const int2 at = block_at((int)get_global_id(0) - image * blocks, OW);
    REGISTERS acc[Y][V], in[VECTORS * V];
    if (image >= B)
        return;
    x += x_offset + ((long)image * C + o / (O / C)) * H * W;
    w += w_offset + o * (KH * KW);
#pragma unroll
    for (int j = 0; j < Y; j++)
#pragma unroll
        for (int i = 0; i < V; i++)
            acc[j][i] = 0.0f;
#pragma unroll 1
    for (int r = 0; r < ROWS; r++) {
        load_row(in, x, at.y * SY + FIRST_ROW + r, at.x * SX + FIRST_COLUMN, H, W);
#pragma unroll
        for (int j = 0; j < Y; j++) {
            const int t = r - j * SY, ky = t / DY;
            if (t < 0 || t != ky * DY || ky >= KH)
                continue;
#pragma unroll
            for (int kx = 0; kx < KW; kx++)
#pragma unroll
                for (int i = 0; i < V; i++)
                    acc[j][i] = fma(in[i * SX + kx * DX - (PX)-FIRST_COLUMN], w[ky * KW + kx],
                                    acc[j][i]);
        }
    }
    const float add = has_bias ? bias[bias_offset + o] : 0.0f;
    y += y_offset + ((long)image * O + o) * OH * OW + at.y * OW + at.x;
#pragma unroll
    for (int j = 0; j < Y; j++) {
#pragma unroll
        for (int i = 0; i < V; i++)
            acc[j][i] = rectify(acc[j][i] + add, act, slope);
        if (at.y + j < OH)
            *(global VEC *)(y + j * OW) = *(VEC *)acc[j];
    }
}

#elif PASS == 1

/* Global size: (blocks of a channel in all images, channels of x). The blocks cover dx: they divide
 * ceil(H / SY) x ceil(W / SX) positions. */
kernel void depthwise_data_grad(global const float *dy, long dy_offset, global const float *w,
                                long w_offset, global float *dx, long dx_offset, int B, int C,
                                int H, int W, int O, int OH, int OW)
{
    const int across = CEIL(W, SX), blocks = CEIL(across, V) * CEIL(CEIL(H, SY), Y);
    const int image = (int)get_global_id(0) / blocks, c = (int)get_group_id(1), each = O / C;
    const int2 at = block_at((int)get_global_id(0) - image * blocks, across);
    REGISTERS acc[Y * SY][V * SX], in[VECTORS * V];
    if (image >= B)
        return;
#pragma unroll
    for (int j = 0; j < Y * SY; j++)
#pragma unroll
        for (int i = 0; i < V * SX; i++)
            acc[j][i] = 0.0f;
    dy += dy_offset + ((long)image * O + c * each) * OH * OW;
    w += w_offset + c * each * (KH * KW);
    for (int o = 0; o < each; o++, dy += OH * OW, w += KH * KW) {
#pragma unroll 1
        for (int r = 0; r < ROWS; r++) {
            load_row(in, dy, at.y + FIRST_ROW + r, at.x + FIRST_COLUMN, OH, OW);
#pragma unroll
            for (int j = 0; j < Y * SY; j++) {
                const int t = j + PY - (FIRST_ROW + r) * SY, ky = t / DY;
                if (t < 0 || t != ky * DY || ky >= KH)
                    continue;
#pragma unroll
                for (int kx = 0; kx < KW; kx++)
#pragma unroll
                    for (int i = 0; i < V * SX; i++)
                        if ((i + PX - kx * DX) % SX == 0)
                            acc[j][i] = fma(in[(i + PX - kx * DX) / SX - FIRST_COLUMN],
                                            w[ky * KW + kx], acc[j][i]);
            }
        }
    }
    const int iy = at.y * SY, ix = at.x * SX;
    dx += dx_offset + ((long)image * C + c) * H * W + iy * W + ix;
#pragma unroll
    for (int j = 0; j < Y * SY; j++)
#pragma unroll
        for (int i = 0; i < SX; i++)
            if (iy + j < H && ix + i * V < W)
                *(global VEC *)(dx + j * W + i * V) = *(VEC *)(acc[j] + i * V);
}

#else

CLT_TREE(tree, float4, CLT_ADD, GROUP, 1)

#define SUMS (KR * KW + 1)

/* Work-groups: (slices of dy, channels o of dy, blocks of KR rows of a kernel). With several
 * slices, dw has `part` elements for each slice, the weights and then the biases; conv2d_weight_sum
 * of conv/gpu/conv2d.cl adds them. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
depthwise_weight_grad(global const float *x, long x_offset, global const float *dy, long dy_offset,
                      global float *dw, long dw_offset, global float *db, long db_offset, int B,
                      int C, int H, int W, int O, int OH, int OW, int has_bias, int part)
{
    local float4 s[GROUP];
    const int lid = (int)get_local_id(0), o = (int)get_group_id(1);
    const int slice = (int)get_group_id(0), slices = (int)get_num_groups(0);
    const int ky0 = (int)get_group_id(2) * KR, weights = O * KH * KW;
    const int blocks = OH / Y * (OW / V), all = B * blocks;
    const int begin = (int)((long)all * slice / slices);
    const int end = (int)((long)all * (slice + 1) / slices);
    REGISTERS acc[CEIL(SUMS, 4) * 4], in[VECTORS * V], g[Y * V];
#pragma unroll
    for (int t = 0; t < CEIL(SUMS, 4) * 4; t++)
        acc[t] = 0.0f;
    for (int block = begin + lid; block < end; block += GROUP) {
        const int image = block / blocks;
        const int2 at = block_at(block - image * blocks, OW);
        global const float *from = x + x_offset + ((long)image * C + o / (O / C)) * H * W;
        global const float *grad =
            dy + dy_offset + ((long)image * O + o) * OH * OW + at.y * OW + at.x;
#pragma unroll
        for (int j = 0; j < Y; j++) {
            *(VEC *)(g + j * V) = *(global const VEC *)(grad + j * OW);
#pragma unroll
            for (int i = 0; i < V; i++)
                acc[SUMS - 1] += g[j * V + i];
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            load_row(in, from, at.y * SY + FIRST_ROW + ky0 * DY + r, at.x * SX + FIRST_COLUMN, H,
                     W);
#pragma unroll
            for (int j = 0; j < Y; j++) {
                const int t = r - j * SY, ky = t / DY;
                if (t < 0 || t % DY || ky >= KR)
                    continue;
#pragma unroll
                for (int kx = 0; kx < KW; kx++)
#pragma unroll
                    for (int i = 0; i < V; i++)
                        acc[ky * KW + kx] = fma(in[i * SX + kx * DX - (PX)-FIRST_COLUMN],
                                                g[j * V + i], acc[ky * KW + kx]);
            }
        }
    }
    dw += dw_offset + (long)slice * part;
    global float *biases = slices > 1 ? dw + weights : db + db_offset;
#pragma unroll
    for (int t = 0; t < SUMS; t += 4) {
        const float4 sums = tree(s, *(float4 *)(acc + t), lid, lid);
        const float sum[4] = {sums.x, sums.y, sums.z, sums.w};
        if (lid)
            continue;
#pragma unroll
        for (int l = 0; l < 4; l++)
            if (t + l < KR * KW && ky0 * KW + t + l < KH * KW)
                dw[o * (KH * KW) + ky0 * KW + t + l] = sum[l];
            else if (t + l == KR * KW && has_bias && !ky0)
                biases[o] = sum[l];
    }
}

#endif
