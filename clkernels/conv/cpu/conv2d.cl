/*
 * Convolution and its gradients in the plain layout on CPUs. Vectors hold neighbouring positions of
 * one image. So these kernels serve batches that would leave most lanes of the batch-blocked layout
 * empty. Work-groups have one work-item.
 *
 * A work-group copies a block of the source into local memory: some channels of an image, a band of
 * rows and a range of columns, with the elements around them that taps reach. A line of the copy
 * has `pitch` positions: as many as a line of the block's results, and `reach_x` more. With a
 * stride, rows and columns are separated by their remainder modulo the stride, so that for every
 * tap the operands of neighbouring results are neighbours. The operands of tap (ky, kx) of channel
 * c then begin at one offset, at[k].x, for all results. Lines of results have `pitch` positions
 * too; results beyond the end of a line are computed and dropped.
 *
 *   convolve, PASS 0   y = activation(conv(x, w) + bias)
 *   convolve, PASS 1   dx from dy and w. The positions of dx form classes by y % sy and x % sx. All
 *                      positions of a class meet the same taps, and neighbours of a class read
 *                      neighbours of dy. Classes that no tap meets are 0.
 *   weight_grad        dw and db from x and dy
 *
 * Register tiles of convolve have MR channels x NV vectors of results. weight_grad computes MR x NR
 * weights at a time, and sums over results in vectors along the lines.
 *
 * DEPTH: convolutions of three dimensions, as convolutions of planes. An image is one plane of the
 * result (PASS 1: of dx). A channel of the source is a pair of a channel and a tap along the depth,
 * and reads the plane under this tap. Planes outside of the volume, and those that a stride skips,
 * count as 0.
 *
 * Build options: VW (4, 8 or 16: lanes of a vector), MR, ROOM (floats of local memory); PASS, NV
 * and TAPS (most channels x taps at a time) for convolve; NR for weight_grad; DEPTH.
 */
#include "core/activation.clh"
#define LANES VW
#include "core/batch_blocked/common.clh"

#define EACH(i, count) _Pragma("unroll") for (int i = 0; i < count; i++)

/* The block of each channel of a source that is copied, and its layout. */
typedef struct band {
    int height, width, right; /* of the source; columns from `right` on count as 0 */
    int sy, sx;               /* rows and columns are separated by remainder modulo these */
    int parts_y, parts_x;     /* how many remainders are copied, from 0 on */
    int py, px;       /* padding before the source's first row and column; negative: skipped */
    int first, lines; /* the first line, and the number of lines, of each remainder */
    int left, pitch;  /* the same for the positions of a line */
} band;

static inline int band_floats(const band *b)
{
    return b->parts_y * b->parts_x * b->lines * b->pitch;
}

/* Copies a line. Positions [begin, end) lie inside of the source, the others become 0; so do all if
 * the line is not `inside`. `row` is where position 0 is, or would be. */
static inline void copy_line(local float *to, global const float *row, const band *b, int inside,
                             int begin, int end)
{
    int i = 0;
    if (!inside || end <= begin)
        begin = end = b->pitch;
    for (; i < begin; i++)
        to[i] = 0.0f;
    if (begin == end)
        return;
    if (b->sx == 1) {
        for (; i + VW <= end; i += VW)
            *(local vecf_anywhere *)(to + i) = LOAD(row + i);
        for (; i < end; i++)
            to[i] = row[i];
    } else {
        for (; i < end; i++)
            to[i] = row[(long)i * b->sx];
    }
    for (; i < b->pitch; i++)
        to[i] = 0.0f;
}

/* Copies the block of `channels` channels. Position i of line q of remainders (ry, rx) is row
 * (first + q) * sy + ry - py and column (left + i) * sx + rx - px of the source. */
static inline void copy_band(local float *to, global const float *from, const band *b, int channels)
{
    const long pitch = b->pitch;
    for (int c = 0; c < channels; c++, from += (long)b->height * b->width)
        for (int ry = 0; ry < b->parts_y; ry++)
            for (int rx = 0; rx < b->parts_x; rx++) {
                const long before = b->px - rx - (long)b->left * b->sx;
                const long after = b->right - 1 + before;
                const long begin = before > 0 ? (before - 1) / b->sx + 1 : 0;
                const long end = after < 0 ? 0 : after / b->sx + 1;
                for (int q = 0; q < b->lines; q++, to += b->pitch) {
                    const long y = (long)(b->first + q) * b->sy + ry - b->py;
                    copy_line(to, from + y * b->width - before, b, y >= 0 && y < b->height,
                              (int)min(begin, pitch), (int)min(end, pitch));
                }
            }
}

/* Sizes along the depth: planes of x and y, taps, stride, padding and dilation. */
typedef struct depths {
    int in, out, taps, stride, padding, dilation;
} depths;

#ifdef DEPTH
#define DEPTH_NUMBERS , int in_depth, int out_depth, int KD, int sd, int pd, int dil_d
#define DEPTHS ((depths){in_depth, out_depth, KD, sd, pd, dil_d})
#else
#define DEPTH_NUMBERS
#define DEPTHS ((depths){1, 1, 1, 1, 0, 1})
#endif

/* Copies `count` channels of the source from `first` on, for the plane `at` of the result. With
 * `back`, the source is dy and the result dx. */
static inline void copy_planes(local float *to, global const float *from, const band *b, int first,
                               int count, const depths *d, int at, int back)
{
#ifdef DEPTH
    const int floats = band_floats(b);
    for (int s = first; s < first + count; s++, to += floats) {
        const int channel = s / d->taps, tap = (s - channel * d->taps) * d->dilation;
        const int t = back ? at + d->padding - tap : at * d->stride - d->padding + tap;
        const int z = back ? t / d->stride : t, size = back ? d->out : d->in;
        if (t >= 0 && z < size && (!back || z * d->stride == t)) {
            copy_band(to, from + ((long)channel * size + z) * b->height * b->width, b, 1);
            continue;
        }
        for (int i = 0; i < floats; i++)
            to[i] = 0.0f;
    }
#else
    copy_band(to, from + (long)first * b->height * b->width, b, count);
#endif
}

#define NUMBERS                                                                                    \
    int C, int H, int W, int O, int OH, int OW, int KH, int KW, int sy, int sx, int py, int px,    \
        int dil_y, int dil_x, int groups, int reach_y, int reach_x, int band_lines,                \
        int band_columns DEPTH_NUMBERS

#ifdef PASS

static inline vecf activate_vector(vecf x, int act, float slope)
{
    CLT_ACTIVATE_BODY(vecf)
}

/* Where results are stored: that of line q and column i at base[q * line + i * step]. */
typedef struct place {
    int lines, columns;
    long line;
    int step;
} place;

/* Stores `count` neighbouring results. Unless `first`, adds the sums of earlier channels, which are
 * in `to`. If `last`, applies bias and activation. */
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

/* Stores a row of a register tile, NV * VW results from position n on, without those beyond the
 * ends of lines. */
static inline void put_row(global float *out, const place *p, int pitch, int n, const float *row,
                           int first, int last, float bias, int act, float slope)
{
    int q = n / pitch, i = n - q * pitch;
    for (int at = 0; at < NV * VW && q < p->lines; q++, i = 0) {
        const int here = min(pitch - i, NV * VW - at), end = min(i + here, p->columns);
        if (i < end)
            put_run(out + q * p->line + (long)i * p->step, p->step, row + at, end - i, first, last,
                    bias, act, slope);
        at += here;
    }
}

/* sums[i][v] = sum over `count` taps k of row[i][at[k].y] times vector v at b + at[k].x. One list
 * has the offsets of both operands, which leaves registers for the addresses of all rows. */
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

/* Returns whether one of `count` taps that are `dilation` apart meets the class of remainder
 * `rest`. */
static inline int is_hit(int rest, int count, int dilation, int stride)
{
    for (int k = 0; k < count; k++)
        if (k * dilation % stride == rest)
            return 1;
    return 0;
}

/* Returns where the weights of source s begin. With DEPTH, a source is a channel and a tap along
 * the depth. `taps` is the number of taps of a plane. `step` would be the distance from channel to
 * channel if there were one tap along the depth. */
static inline long weight_at(int s, int step, int taps, const depths *d)
{
    const int channel = s / d->taps;
    return (long)channel * step * d->taps + (s - channel * d->taps) * taps;
}

/* Lists where operand and weight of each tap lie, for `channels` sources from `first` on, whose
 * copies are `plane` floats apart. In PASS 1, lists only the taps that meet the class of remainders
 * (ry, rx); (y0, x0) is where tap (0, 0) lies in the copy. Returns the number of taps of one
 * source. */
static inline int list_taps(local int2 *list, int first, int channels, int plane, int step,
                            const depths *d, const band *b, int KH, int KW, int sy, int sx, int dil_y, int dil_x, int y0, int x0,
                            int ry, int rx)
{
    int count = 0;
    for (int ky = 0; ky < KH; ky++) {
        const int y = ky * dil_y / sy, y_rest = ky * dil_y - y * sy;
        if (PASS == 1 && y_rest != ry)
            continue;
        for (int kx = 0; kx < KW; kx++) {
            const int x = kx * dil_x / sx, x_rest = kx * dil_x - x * sx;
#if PASS == 0
            const int at = (y_rest * b->parts_x + x_rest) * b->lines * b->pitch + y * b->pitch + x;
#else
            if (x_rest != rx)
                continue;
            const int at = (y0 - y) * b->pitch + x0 - x;
#endif
            list[count++] = (int2)(at, ky * KW + kx);
        }
    }
    for (int c = 1; c < channels; c++)
        for (int k = 0; k < count; k++)
            list[c * count + k] =
                list[k] + (int2)(c * plane, (int)(weight_at(first + c, step, KH * KW, d) -
                                                  weight_at(first, step, KH * KW, d)));
    return count;
}

/* Arguments that all tiles of a call share. */
typedef struct source {
    int row_step; /* of the weights, from channel to channel of the result */
    long out_plane;
    int first, last; /* whether these are the first and the last channels of the sums */
    int act;
    float slope;
} source;

/* Computes channels m0 .. m1 - 1 of the results at `p`, as sums over `count` taps. */
static inline void tiles(global float *out, global const float *w, global const float *bias,
                         local const float *copy, local const int2 *list, int count, const place *p,
                         int pitch, int m0, int m1, const source *s)
{
    const int positions = (p->lines - 1) * pitch + p->columns;
    for (int m = m0; m < m1; m += MR) {
        const global float *row[MR];
        EACH(i, MR) row[i] = w + (long)min(m + i, m1 - 1) * s->row_step;
        for (int n = 0; n < positions; n += NV * VW) {
            vecf sums[MR * NV];
            tile(row, copy + n, list, count, sums);
#pragma unroll 1
            for (int i = 0; i < min(MR, m1 - m); i++)
                put_row(out + (m + i) * s->out_plane, p, pitch, n,
                        (private const float *)(sums + i * NV), s->first, s->last,
                        bias ? bias[m + i] : 0.0f, s->act, s->slope);
        }
    }
}

#if PASS == 1
/* Sets a block of `lines` x `columns` of a plane to 0. */
static inline void clear(global float *to, long lines, int columns, int width)
{
    for (long q = 0; q < lines; q++, to += width) {
        int i = 0;
        for (; i + VW <= columns; i += VW)
            STORE((vecf)(0.0f), to + i);
        for (; i < columns; i++)
            to[i] = 0.0f;
    }
}
#endif

/*
 * Work-item (x, y, z): x is a block of lines and columns and KB of the classes, y a block of TM
 * channels of the result, z the image, the plane along the depth, and the group. The work-item
 * reads CB channels of the source at a time. If some classes meet no tap (has_zeros), KB is the
 * number of all classes, and the whole block is cleared first.
 */
KERNEL void convolve(global const float *x, long x_offset, global const float *w, long w_offset,
                     global const float *bias, long bias_offset, global float *out, long out_offset,
                     NUMBERS, int TM, int CB, int KB, int has_zeros, int has_bias, int act,
                     float slope)
{
    local float copy[ROOM] __attribute__((aligned(64)));
    local int2 list[TAPS];
    const int taps = KH * KW, g = (int)get_global_id(2) % groups;
    const depths d = DEPTHS;
    const int planes = PASS == 0 ? d.out : d.in;
    const int at = (int)get_global_id(2) / groups % planes;
    const int image = (int)get_global_id(2) / groups / planes;
    const int c_group = C / groups, o_group = O / groups;
#if PASS == 0
    const int sources = c_group, rows = o_group, all_lines = OH, all_columns = OW;
    const int classes_x = 1, classes = 1;
    source s = {c_group * taps, (long)planes * OH * OW, 0, 0, act, slope};
    const int source_step = taps;
#else
    const int sources = o_group, rows = c_group;
    const int all_lines = (H - 1) / sy + 1, all_columns = (W - 1) / sx + 1;
    const int classes_y = min(sy, H), classes_x = min(sx, W), classes = classes_y * classes_x;
    source s = {d.taps * taps, (long)planes * H * W, 0, 0, act, slope};
    const int source_step = c_group * taps;
#endif
    const int class_blocks = (classes + KB - 1) / KB;
    const int across = (all_columns + band_columns - 1) / band_columns;
    const int block = (int)get_global_id(0) / class_blocks;
    const int first_class = (int)get_global_id(0) % class_blocks * KB;
    const int last_class = min(first_class + KB, classes) - 1;
    const int first_line = block / across * band_lines, left = block % across * band_columns;
    const int lines = min(band_lines, all_lines - first_line);
    const int columns = min(band_columns, all_columns - left);
    const int m0 = (int)get_global_id(1) * TM, m1 = min(m0 + TM, rows);
    w += w_offset + (long)g * o_group * c_group * taps;
#if PASS == 0
    const band b = {H, W, W, sy, sx, min(sy, (KH - 1) * dil_y + 1), min(sx, (KW - 1) * dil_x + 1),
                    py, px, first_line, lines + reach_y, left, columns + reach_x};
    x += x_offset + ((long)image * C + g * c_group) / d.taps * d.in * H * W;
    out += out_offset + (((long)image * O + g * o_group) * planes + at) * OH * OW +
           (long)first_line * OW + left;
#else
    /* The results of the first class begin at (y0, x0) of dy. Those of other classes may begin one
     * line or position further: more_y, more_x. */
    const int y0 = py / sy, x0 = px / sx;
    const int more_y = (py % sy + classes_y - 1 >= sy), more_x = (px % sx + classes_x - 1 >= sx);
    const band b = {OH, OW, OW, 1, 1, 1, 1, reach_y - y0, reach_x - x0,
                    first_line, lines + reach_y + more_y, left, columns + reach_x + more_x};
    x += x_offset + ((long)image * O + g * o_group) / d.taps * d.out * OH * OW;
    out += out_offset + (((long)image * C + g * c_group) * planes + at) * H * W +
           (long)first_line * sy * W + (long)left * sx;
    for (int m = m0; has_zeros && m < m1; m++)
        clear(out + m * s.out_plane, min((long)lines * sy, H - (long)first_line * sy),
              (int)min((long)columns * sx, W - (long)left * sx), W);
#endif
    const int plane = band_floats(&b);
    bias += has_bias ? bias_offset + g * rows : 0;
    int of_channel = 0;
#if PASS == 0
    of_channel = list_taps(list, 0, min(CB, sources), plane, source_step, &d, &b, KH, KW, sy, sx, dil_y,
                           dil_x, 0, 0, 0, 0);
#endif
    for (int c = 0; c < sources; c += CB) {
        const int here = min(CB, sources - c);
        s.first = c == 0;
        s.last = c + CB >= sources;
        copy_planes(copy, x, &b, c, here, &d, at, PASS);
        /* The last tile reads so many floats beyond the last result. */
        for (int i = 0; i < NV * VW; i++)
            copy[here * plane + i] = 0.0f;
        for (int kind = first_class; kind <= last_class; kind++) {
            place p = {lines, columns, OW, 1};
            int at_y = 0, at_x = 0;
#if PASS == 1
            at_y = kind / classes_x;
            at_x = kind % classes_x;
            const int ry = (at_y + py) % sy, rx = (at_x + px) % sx;
            if (has_zeros && !is_hit(ry, KH, dil_y, sy)) {
                kind += classes_x - 1 - at_x;
                continue;
            }
            if (has_zeros && !is_hit(rx, KW, dil_x, sx))
                continue;
            p = (place){min(lines, (H - 1 - at_y) / sy + 1 - first_line),
                        min(columns, (W - 1 - at_x) / sx + 1 - left), (long)sy * W, sx};
            if (p.lines < 1 || p.columns < 1)
                continue;
            of_channel =
                list_taps(list, c, here, plane, source_step, &d, &b, KH, KW, sy, sx, dil_y, dil_x,
                          reach_y + (py + at_y) / sy - y0, reach_x + (px + at_x) / sx - x0, ry, rx);
#endif
            tiles(out + (long)at_y * W + at_x, w + weight_at(c, source_step, taps, &d), has_bias ? bias : 0, copy,
                  list, here * of_channel, &p, b.pitch, m0, m1, &s);
        }
    }
}

#else

/* sums[i][j] = sum over the positions n of dy[i][n] x[j][n]; dy[i] is a channel of dy, x[j] is x
 * under tap j. */
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

/* The same, but line by line, without the positions beyond the end of a line. dot_tile multiplies
 * those with zeros of dy, which gives NaN if x is Inf or NaN there. */
static inline void dot_lines(local const float *const *dy, local const float *const *x, int lines,
                             int pitch, int columns, float sums[MR][NR])
{
    vecf acc[MR][NR];
    EACH(i, MR) EACH(j, NR) acc[i][j] = (vecf)(0.0f);
    for (int q = 0; q < lines; q++)
        for (int n = 0; n < columns; n += VW) {
            const veci inside = LANE_NUMBERS < (veci)(columns - n);
            vecf with[NR];
            EACH(j, NR)
            with[j] =
                select((vecf)(0.0f), *(local const vecf_anywhere *)(x[j] + q * pitch + n), inside);
            EACH(i, MR)
            {
                const vecf v = select(
                    (vecf)(0.0f), *(local const vecf_anywhere *)(dy[i] + q * pitch + n), inside);
                EACH(j, NR) acc[i][j] = fma(v, with[j], acc[i][j]);
            }
        }
    EACH(i, MR) EACH(j, NR) sums[i][j] = clt_sum_lanes(acc[i][j]);
}

/* Returns whether `count` floats, and those that complete the last vector, are neither Inf nor
 * NaN. */
static inline int all_finite(local const float *x, int count)
{
    veci most = 0;
    for (int n = 0; n < count; n += VW)
        most = max(most, AS_INTS(*(local const vecf_anywhere *)(x + n)) & 0x7fffffff);
    return !any(most >= 0x7f800000);
}

/*
 * Work-item (x, y, z) computes the weights of CB channels of x and TM channels of dy, of group z.
 * It sums over all images and blocks of lines and columns, in order. The copy of dy has zeros
 * beyond the end of each line, and up to whole vectors. So if x is finite, dot_tile can run over
 * all lines at once. The floats that it reads beyond the copy of x are 0.
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
    const int parts_y = min(sy, (KH - 1) * dil_y + 1), parts_x = min(sx, (KW - 1) * dil_x + 1);
    const depths d = DEPTHS;
    dw += dw_offset + (long)(g * o_group + m0) * row_step + (long)c0 * taps;
    db += has_bias ? db_offset + g * o_group + m0 : 0;
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < count; j++)
            dw[(long)i * row_step + j] = 0.0f;
        if (writes_bias)
            db[i] = 0.0f;
    }
    const int across = (OW + band_columns - 1) / band_columns;
    const int blocks = (OH + band_lines - 1) / band_lines * across;
    for (long item = 0; item < (long)B * blocks; item++) {
        const int layer = (int)(item / blocks), block = (int)(item % blocks);
        const int image = layer / d.out, at = layer - image * d.out;
        const int first_line = block / across * band_lines, left = block % across * band_columns;
        const int lines = min(band_lines, OH - first_line), columns = min(band_columns, OW - left);
        const int pitch = columns + reach_x;
        const int vectors = (lines * pitch + VW - 1) / VW, dy_plane = vectors * VW;
        const band of_x = {
            H, W, W, sy, sx, parts_y, parts_x, py, px, first_line, lines + reach_y, left, pitch};
        const band of_dy = {OH, OW, left + columns, 1,     1,    1,    1,
                            0,  0,  first_line,     lines, left, pitch};
        const int x_plane = band_floats(&of_x);
        global const float *x_at =
            x + x_offset + ((long)image * C + g * c_group) / d.taps * d.in * H * W;
        global const float *dy_at =
            dy + dy_offset + (((long)image * O + g * o_group + m0) * d.out + at) * OH * OW;
        local float *x_copy = copy + rows * dy_plane;
        for (int i = 0; i < rows; i++) {
            copy_band(copy + i * dy_plane, dy_at + (long)i * d.out * OH * OW, &of_dy, 1);
            for (int n = lines * pitch; n < dy_plane; n++)
                copy[i * dy_plane + n] = 0.0f;
        }
        copy_planes(x_copy, x_at, &of_x, c0, channels, &d, at, 0);
        for (int n = 0; n < reach_x + VW; n++)
            x_copy[channels * x_plane + n] = 0.0f;
        const int finite = all_finite(x_copy, channels * x_plane);
        for (int j0 = 0; j0 < count; j0 += NR) {
            local const float *from[NR];
            EACH(j, NR)
            {
                const int at = min(j0 + j, count - 1), c = at / taps, tap = at - c * taps;
                const int ky = tap / KW * dil_y, kx = tap % KW * dil_x;
                from[j] = x_copy + c * x_plane +
                          ((ky % sy * parts_x + kx % sx) * of_x.lines + ky / sy) * pitch + kx / sx;
            }
            for (int i0 = 0; i0 < rows; i0 += MR) {
                local const float *with[MR];
                float sums[MR][NR];
                EACH(i, MR) with[i] = copy + min(i0 + i, rows - 1) * dy_plane;
                if (finite)
                    dot_tile(with, from, vectors, sums);
                else
                    dot_lines(with, from, lines, pitch, columns, sums);
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
