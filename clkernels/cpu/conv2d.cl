/*
 * Convolution of values that lie PLAIN, and its gradients, on CPUs: for batches that would leave most
 * lanes of the LANES layout empty. Work-group size 1.
 *
 * A work-group copies a band of rows of some channels of an image into local memory, with the padding
 * around it, in lines of `pitch` positions: as many as a line of results has, and `reach_x` more. A
 * strided convolution's rows and columns are parted by their remainders, so that for every tap the
 * operands of neighbouring results are neighbours: what tap (ky, kx) of channel c multiplies begins at
 * one offset, at[k].x, for all results. Results are counted in lines of `pitch` too; those beyond
 * the end of a line are computed and dropped.
 *
 * `convolve`: PASS 0: y = activation(conv(x, w) + bias). PASS 1: dx from dy and w: the inputs are parted
 * in classes by what (y + py) % sy and (x + px) % sx are; within a class the same taps hit, and one step
 * further is one step further in dy. Register tiles are MR channels x NV vectors of results.
 * `weight_grad`: sums over results in vectors along them, for MR x NR weights at a time.
 *
 * Build options: VW (4, 8, 16: lanes of a vector), MR, ROOM (floats of local memory); PASS, NV and TAPS
 * (channels x taps at a time) for convolve; NR for weight_grad.
 */
#include "activation.clh"
#define LANES VW
#include "lanes/common.clh"

#define EACH(i, count) _Pragma("unroll") for (int i = 0; i < count; i++)

/* Where a channel's copy lies, and what is copied. */
typedef struct band {
    int height, width;   /* of the source */
    int sy, sx;          /* by which rows and columns are parted */
    int py, px;          /* lines and positions before the source's first; less than 0: skipped */
    int first, lines;    /* copied, of each remainder */
    int pitch;
} band;

static inline int band_floats(const band *b)
{
    return b->sy * b->sx * b->lines * b->pitch;
}

/* Line q of remainders (ry, rx): source row (first + q) * sy + ry - py, columns i * sx + rx - px. */
static inline void copy_line(local float *to, global const float *plane, const band *b, int q,
                             int ry, int rx)
{
    const int y = (b->first + q) * b->sy + ry - b->py;
    const int before = b->px - rx, after = b->width - 1 + before;
    int i = 0, begin = before > 0 ? min((before + b->sx - 1) / b->sx, b->pitch) : 0;
    int end = after < 0 ? 0 : min(after / b->sx + 1, b->pitch);
    if (y < 0 || y >= b->height || end <= begin)
        begin = end = b->pitch;
    for (; i < begin; i++)
        to[i] = 0.0f;
    if (begin == end)
        return;
    global const float *row = plane + (long)y * b->width - before;
    if (b->sx == 1) {
        for (; i + VW <= end; i += VW)
            *(local vecf_anywhere *)(to + i) = LOAD(row + i);
        for (; i < end; i++)
            to[i] = row[i];
    } else {
        for (; i < end; i++)
            to[i] = row[i * b->sx];
    }
    for (; i < b->pitch; i++)
        to[i] = 0.0f;
}

static inline void copy_band(local float *to, global const float *from, const band *b, int channels)
{
    for (int c = 0; c < channels; c++, from += (long)b->height * b->width)
        for (int ry = 0; ry < b->sy; ry++)
            for (int rx = 0; rx < b->sx; rx++)
                for (int q = 0; q < b->lines; q++, to += b->pitch)
                    copy_line(to, from, b, q, ry, rx);
}

#define NUMBERS                                                                                    \
    int C, int H, int W, int O, int OH, int OW, int KH, int KW, int sy, int sx, int py, int px,    \
        int dil_y, int dil_x, int groups, int reach_y, int reach_x, int band_lines

#ifdef PASS

static inline vecf activate_vector(vecf x, int act, float slope)
{
    CLT_ACTIVATE_BODY(vecf)
}

/* Where the results of a work-group go: line q, column i to base[q * line + i * step], as far as
 * q_begin <= q < q_end and i_begin <= i < i_end. */
typedef struct place {
    int q_begin, q_end, i_begin, i_end;
    int line, step;
} place;

/* Stores, or adds, `count` neighbours; the last time with bias and activation. */
static inline void put_run(global float *to, int step, const float *from, int count, int first,
                           int last, float bias, int act, float slope)
{
    int i = 0;
    for (; step == 1 && i + VW <= count; i += VW) {
        vecf v = *(private const vecf_anywhere *)(from + i);
        if (!first)
            v += LOAD(to + i);
        if (last)
            v = activate_vector(v + bias, act, slope);
        STORE(v, to + i);
    }
    for (; i < count; i++) {
        const float v = first ? from[i] : to[(long)i * step] + from[i];
        to[(long)i * step] = last ? clt_activate(v + bias, act, slope) : v;
    }
}

/* A row of a register tile, whose first position is n. */
static inline void put_row(global float *out, const place *p, int pitch, int n, const float *row,
                           int first, int last, float bias, int act, float slope)
{
    int q = n / pitch, i = n - q * pitch;
    for (int at = 0; at < NV * VW && q < p->q_end; q++, i = 0) {
        const int here = min(pitch - i, NV * VW - at);
        const int begin = max(i, p->i_begin), end = min(i + here, p->i_end);
        if (q >= p->q_begin && begin < end)
            put_run(out + (long)q * p->line + (long)begin * p->step, p->step,
                    row + at + begin - i, end - begin, first, last, bias, act, slope);
        at += here;
    }
}

/* MR x NV vectors of sums over `count` taps: of operands b[at[k].x] and on, and weights
 * row[i][at[k].y]. One list of both leaves registers for all rows' addresses. */
static inline void tile(const global float *const *row, local const float *b, local const int2 *at,
                        int count, vecf *sums)
{
    vecf acc[MR][NV];
    EACH(i, MR) EACH(v, NV) acc[i][v] = (vecf)(0.0f);
    for (int k = 0; k < count; k++) {
        local const float *from = b + at[k].x;
        const int weight = at[k].y;
        vecf y[NV];
        EACH(v, NV) y[v] = *(local const vecf_anywhere *)(from + v * VW);
        EACH(i, MR)
        {
            const vecf x = (vecf)(row[i][weight]);
            EACH(v, NV) acc[i][v] = fma(x, y[v], acc[i][v]);
        }
    }
    EACH(i, MR) EACH(v, NV) sums[i * NV + v] = acc[i][v];
}

/* Where operands and weights lie of the taps that count for results of remainders (ry, rx), for
 * `channels` channels that are `plane` apart in local memory and `step` in the weights. */
static inline int list_taps(local int2 *list, int channels, int plane, int step, const band *b,
                            int KH, int KW, int sy, int sx, int dil_y, int dil_x, int reach_y,
                            int reach_x, int ry, int rx)
{
    int count = 0;
    for (int c = 0; c < channels; c++)
        for (int ky = 0; ky < KH; ky++)
            for (int kx = 0; kx < KW; kx++) {
                const int y = ky * dil_y / sy, y_rest = ky * dil_y - y * sy;
                const int x = kx * dil_x / sx, x_rest = kx * dil_x - x * sx;
#if PASS == 0
                const int at = (y_rest * sx + x_rest) * b->lines * b->pitch + y * b->pitch + x;
#else
                if (y_rest != ry || x_rest != rx)
                    continue;
                const int at = (reach_y - y) * b->pitch + reach_x - x;
#endif
                list[count++] = (int2)(c * plane + at, c * step + ky * KW + kx);
            }
    return count;
}

/* Work-item (band and class, block of TM channels, image and group); CB channels of the source at a
 * time. */
KERNEL void convolve(global const float *x, long x_offset, global const float *w, long w_offset,
                     global const float *bias, long bias_offset, global float *out,
                     long out_offset, NUMBERS, int TM, int CB, int has_bias, int act, float slope)
{
    local float copy[ROOM] __attribute__((aligned(64)));
    local int2 list[TAPS];
    const int taps = KH * KW, g = (int)get_global_id(2) % groups;
    const int image = (int)get_global_id(2) / groups;
    const int c_group = C / groups, o_group = O / groups;
#if PASS == 0
    const int sources = c_group, rows = o_group, ry = 0, rx = 0;
    const int first_line = (int)get_global_id(0) * band_lines;
    const int lines = min(band_lines, OH - first_line), columns = OW;
    const band b = {H, W, sy, sx, py, px, first_line, lines + reach_y, OW + reach_x};
    const place p = {0, lines, 0, OW, OW, 1};
    const int row_step = c_group * taps, source_step = taps;
    x += x_offset + ((long)image * C + g * c_group) * H * W;
    w += w_offset + (long)g * o_group * row_step;
    out += out_offset + ((long)image * O + g * o_group) * OH * OW + (long)first_line * OW;
    const long out_plane = (long)OH * OW;
#else
    const int sources = o_group, rows = c_group, kind = (int)get_global_id(0) % (sy * sx);
    const int ry = kind / sx, rx = kind % sx, y0 = py / sy, x0 = px / sx;
    const int first_line = (int)get_global_id(0) / (sy * sx) * band_lines;
    const int all_lines = (H - 1 + py) / sy - y0 + 1, columns = (W - 1 + px) / sx - x0 + 1;
    const int lines = min(band_lines, all_lines - first_line);
    const band b = {OH, OW, 1, 1, reach_y - y0, reach_x - x0, first_line, lines + reach_y,
                    columns + reach_x};
    /* The input at line q, column i. */
    const int top = (y0 + first_line) * sy + ry - py, left = x0 * sx + rx - px;
    const place p = {top < 0,
                     top + (lines - 1) * sy < H ? lines : lines - 1,
                     left < 0,
                     left + (columns - 1) * sx < W ? columns : columns - 1,
                     sy * W,
                     sx};
    const int row_step = taps, source_step = c_group * taps;
    x += x_offset + ((long)image * O + g * o_group) * OH * OW;
    w += w_offset + (long)g * o_group * source_step;
    out += out_offset + ((long)image * C + g * c_group) * H * W + (long)top * W + left;
    const long out_plane = (long)H * W;
#endif
    const int plane = band_floats(&b), positions = (lines - 1) * b.pitch + columns;
    const int most = min(CB, sources);
    const int of_channel =
        list_taps(list, most, plane, source_step, &b, KH, KW, sy, sx, dil_y, dil_x, reach_y,
                  reach_x, ry, rx) / most;
    const int m0 = (int)get_global_id(1) * TM, m1 = min(m0 + TM, rows);
    bias += has_bias ? bias_offset + g * rows : 0;
    for (int c = 0; c < sources; c += CB) {
        const int here = min(CB, sources - c), first = c == 0, last = c + CB >= sources;
        copy_band(copy, x + (long)c * b.height * b.width, &b, here);
        /* What the last tile reads beyond the last result. */
        for (int i = 0; i < NV * VW; i++)
            copy[here * plane + i] = 0.0f;
        for (int m = m0; m < m1; m += MR) {
            const global float *row[MR];
            EACH(i, MR) row[i] = w + (long)min(m + i, m1 - 1) * row_step + (long)c * source_step;
            for (int n = 0; n < positions; n += NV * VW) {
                vecf sums[MR * NV];
                tile(row, copy + n, list, here * of_channel, sums);
#pragma unroll 1
                for (int i = 0; i < min(MR, m1 - m); i++)
                    put_row(out + (long)(m + i) * out_plane, &p, b.pitch, n,
                            (private const float *)(sums + i * NV), first, last,
                            has_bias ? bias[m + i] : 0.0f, act, slope);
            }
        }
    }
}

#else

/* sums[i][j] += sum over the positions of dy's channel i and of x at tap j. */
static inline void dot_tile(local const float *const *dy, local const float *const *x, int vectors,
                            float sums[MR][NR])
{
    vecf acc[MR][NR];
    EACH(i, MR) EACH(j, NR) acc[i][j] = (vecf)(0.0f);
    for (int n = 0; n < vectors * VW; n += VW) {
        vecf with[NR];
        EACH(j, NR) with[j] = *(local const vecf_anywhere *)(x[j] + n);
        EACH(i, MR)
        {
            const vecf v = *(local const vecf_anywhere *)(dy[i] + n);
            EACH(j, NR) acc[i][j] = fma(v, with[j], acc[i][j]);
        }
    }
    EACH(i, MR) EACH(j, NR) sums[i][j] = clt_sum_lanes(acc[i][j]);
}

/*
 * Work-item (block of CB channels of x, block of TM of dy, group): all images and bands in order. dy
 * is copied with zeros beyond the end of its lines, of whole vectors; what x has there must be a
 * number: what is read beyond the copy's end is 0.
 */
KERNEL void weight_grad(global const float *x, long x_offset, global const float *dy,
                        long dy_offset, global float *dw, long dw_offset, global float *db,
                        long db_offset, NUMBERS, int TM, int CB, int B, int has_bias)
{
    local float copy[ROOM] __attribute__((aligned(64)));
    const int taps = KH * KW, g = (int)get_global_id(2);
    const int c_group = C / groups, o_group = O / groups;
    const int c0 = (int)get_global_id(0) * CB, m0 = (int)get_global_id(1) * TM;
    const int channels = min(CB, c_group - c0), rows = min(TM, o_group - m0);
    const int count = channels * taps, row_step = c_group * taps;
    const int writes_bias = has_bias && c0 == 0;
    dw += dw_offset + (long)(g * o_group + m0) * row_step + (long)c0 * taps;
    db += has_bias ? db_offset + g * o_group + m0 : 0;
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < count; j++)
            dw[(long)i * row_step + j] = 0.0f;
        if (writes_bias)
            db[i] = 0.0f;
    }
    for (int item = 0, bands = (OH + band_lines - 1) / band_lines; item < B * bands; item++) {
        const int image = item / bands, first_line = item % bands * band_lines;
        const int lines = min(band_lines, OH - first_line), pitch = OW + reach_x;
        const int vectors = (lines * pitch + VW - 1) / VW, dy_plane = vectors * VW;
        const band of_x = {H, W, sy, sx, py, px, first_line, lines + reach_y, pitch};
        const band of_dy = {OH, OW, 1, 1, 0, 0, first_line, lines, pitch};
        const int x_plane = band_floats(&of_x);
        global const float *x_at = x + x_offset + ((long)image * C + g * c_group + c0) * H * W;
        global const float *dy_at =
            dy + dy_offset + ((long)image * O + g * o_group + m0) * OH * OW;
        local float *x_copy = copy + rows * dy_plane;
        for (int i = 0; i < rows; i++) {
            copy_band(copy + i * dy_plane, dy_at + (long)i * OH * OW, &of_dy, 1);
            for (int n = lines * pitch; n < dy_plane; n++)
                copy[i * dy_plane + n] = 0.0f;
        }
        copy_band(x_copy, x_at, &of_x, channels);
        for (int n = 0; n < reach_x + VW; n++)
            x_copy[channels * x_plane + n] = 0.0f;
        for (int j0 = 0; j0 < count; j0 += NR) {
            local const float *from[NR];
            EACH(j, NR)
            {
                const int at = min(j0 + j, count - 1), c = at / taps, tap = at - c * taps;
                const int ky = tap / KW * dil_y, kx = tap % KW * dil_x;
                from[j] = x_copy + c * x_plane +
                          ((ky % sy * sx + kx % sx) * of_x.lines + ky / sy) * pitch + kx / sx;
            }
            for (int i0 = 0; i0 < rows; i0 += MR) {
                local const float *with[MR];
                float sums[MR][NR];
                EACH(i, MR) with[i] = copy + min(i0 + i, rows - 1) * dy_plane;
                dot_tile(with, from, vectors, sums);
                for (int i = 0; i < MR && i0 + i < rows; i++)
                    for (int j = 0; j < NR && j0 + j < count; j++)
                        dw[(long)(i0 + i) * row_step + j0 + j] += sums[i][j];
            }
        }
        for (int i = 0; writes_bias && i < rows; i++) {
            vecf sum = (vecf)(0.0f);
            for (int n = 0; n < dy_plane; n += VW)
                sum += *(local const vecf_anywhere *)(copy + i * dy_plane + n);
            db[i] += clt_sum_lanes(sum);
        }
    }
}

#endif
