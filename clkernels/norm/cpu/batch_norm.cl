/*
 * Batch norm on CPUs, a vector of elements at a time; norm/batch_norm.clh has the formulas and
 * arguments. All work-groups have one work-item. Work-item (i, j) processes `share` channels from
 * i * share on, of `chunk` images from j * chunk on. A run is the contiguous elements of one
 * channel of one image. With BATCH_BLOCKED, values are batch-blocked
 * (core/batch_blocked/common.clh): a run then is one channel of a block of VW images, and `chunk`
 * counts blocks.
 *
 * Build options: VW, width of a vector (4, 8 or 16); BATCH_BLOCKED; those of norm/batch_norm.clh.
 */
#define LANES VW
#include "core/batch_blocked/halves.clh"
#include "norm/batch_norm.clh"

#if BATCH_BLOCKED
#define RUNS clt_blocks(images)
#define LENGTH (pixels * VW)
/* Mask of the lanes of run b that hold images, and the number of these images. */
#define VALID(b) clt_valid_lanes(b, images)
#define IMAGES(b) min(images - (b) * VW, VW)
#define ELEMENTS(b, length) ((length) / VW * IMAGES(b))
#else
#define RUNS images
#define LENGTH pixels
#define VALID(b) ((veci)(-1))
#define ELEMENTS(b, length) (length)
#endif

/* Floats of a run that stay in the first-level cache between two passes. */
#define TILE 2048

/* Number of independent accumulators, which hides the latency of additions. */
#define SIDE 4
#define STEP (SIDE * VW)

/* Runs BODY for all vectors of a run of `length` elements. BODY sees `at`, the offset of the
 * vector, s, the index of its accumulator, and `whole`, whether all lanes are elements. In the
 * batch-blocked layout, all vectors are whole. */
#define EACH(c, length, BODY)                                                                      \
    {                                                                                              \
        int c = 0;                                                                                 \
        for (; c + STEP <= length; c += STEP)                                                      \
            _Pragma("unroll") for (int s = 0; s < SIDE; s++)                                       \
            {                                                                                      \
                const int at = c + s * VW, whole = 1;                                              \
                BODY                                                                               \
            }                                                                                      \
        for (; c < length; c += VW) {                                                              \
            const int at = c, whole = BATCH_BLOCKED || c + VW <= length, s = 0;                    \
            BODY                                                                                   \
        }                                                                                          \
    }

#define READ(kind, p, length, fill)                                                                \
    (whole ? LOAD_AS(kind, (p) + at) : LOAD_PART_AS(kind, (p) + at, (length) - at, fill))

INLINE void write(vecf v, global STORED(OUT0) *to, int at, int length, int whole)
{
    if (whole)
        STORE_AS(OUT0, v, to + at);
    else
        STORE_PART_AS(OUT0, v, to + at, length - at);
}

INLINE float sum_valid(vecf all[SIDE], veci valid)
{
    const vecf sum = (all[0] + all[1]) + (all[2] + all[3]);
    return clt_sum_lanes(select((vecf)(0.0f), sum, valid));
}

/* Moments of `length` elements, in two passes: the mean, then the squared distances. Meanwhile
 * prefetches the tile that begins `next` floats further. */
INLINE moment tile_moment(global const STORED(IN0) *x, int length, veci valid, float elements, long next)
{
    vecf sum[SIDE] = {0.0f, 0.0f, 0.0f, 0.0f}, squares[SIDE] = {0.0f, 0.0f, 0.0f, 0.0f};
    moment m = 0.0f;
    EACH(c, length, sum[s] += READ(IN0, x, length, 0.0f);)
    m.MEAN = sum_valid(sum, valid) / elements;
    EACH(c, length, const vecf far = READ(IN0, x, length, m.MEAN) - m.MEAN; PREFETCH(x + next + at);
         squares[s] = fma(far, far, squares[s]);)
    m.SQUARES = sum_valid(squares, valid);
    m.COUNT = elements;
    return m;
}

/* Loop over the work-item's channels c. */
#define CHANNELS(c)                                                                                \
    for (int c = (int)get_global_id(0) * share, last = min(c + share, C); c < last; c++)
/* Loop over the work-item's images, or blocks of images, b. */
#define RUN(b)                                                                                     \
    for (int b = (int)get_global_id(1) * chunk, last_run = min(b + chunk, RUNS); b < last_run; b++)

KERNEL void batch_norm_moments(MOMENTS_ARGUMENTS, int share, int chunk)
{
    const int length = LENGTH;
    const long jump = (long)(C - 1) * length; /* from a run's end to the next image's run */
    x += x_offset;
    out += out_offset + 3L * get_global_id(1) * C;
    CHANNELS(c)
    {
        moment all = 0.0f;
        RUN(b)
        {
            for (int from = 0; from < length; from += TILE) {
                const int size = min(length - from, TILE);
                all = join_two(all, tile_moment(x + ((long)b * C + c) * length + from, size,
                                                VALID(b), (float)ELEMENTS(b, size),
                                                from + size < length ? size : jump + size));
            }
        }
        out[c] = all.MEAN;
        out[C + c] = all.SQUARES;
        out[2 * C + c] = all.COUNT;
    }
}

KERNEL void batch_norm(FORWARD_ARGUMENTS, int share, int chunk)
{
    const int length = LENGTH;
    RUN(b) CHANNELS(c)
    {
        CHANNEL(k, c)
        const long start = ((long)b * C + c) * length;
        global const STORED(IN0) *from = x + x_offset + start;
        global STORED(OUT0) *to = out + out_offset + start;
        IF_ADD(global const STORED(IN4) *more = addend + addend_offset + start;)
        EACH(i, length, vecf y = fma(READ(IN0, from, length, 0.0f) - k.mean, (vecf)k.scale, (vecf)k.bias);
             PREFETCH(from + at + AHEAD); PREFETCH(to + at + AHEAD);
             IF_ADD(y += READ(IN4, more, length, 0.0f); PREFETCH(more + at + AHEAD);) write(RELU ? clt_relu(y) : y, to, at, length, whole);)
    }
}

/* d, or 0 if the ReLU of the forward pass gave 0. */
INLINE vecf through(vecf d, vecf far, float scale, float bias)
{
#if RELU
    return select(d, (vecf)(0.0f), fma(far, (vecf)scale, (vecf)bias) <= 0.0f);
#else
    return d;
#endif
}

KERNEL void batch_norm_grad_sums(SUMS_ARGUMENTS, int share, int chunk)
{
    const int length = LENGTH, ahead = min(length, AHEAD);
    const long jump = (long)(C - 1) * length; /* from a run's end to the next image's run */
    out += out_offset + 2L * get_global_id(1) * C;
    CHANNELS(c)
    {
        CHANNEL(k, c)
        float db = 0.0f, dw = 0.0f;
        RUN(b)
        {
            const long start = ((long)b * C + c) * length;
            global const STORED(IN0) *from = x + x_offset + start;
            global const STORED(IN1) *above = dy + dy_offset + start;
            vecf sum[SIDE] = {0.0f, 0.0f, 0.0f, 0.0f}, product[SIDE] = {0.0f, 0.0f, 0.0f, 0.0f};
            EACH(i, length, const vecf far = READ(IN0, from, length, 0.0f) - k.mean;
                 const long next = at + ahead + (at + ahead < length ? 0 : jump);
                 PREFETCH(from + next); PREFETCH(above + next);
                 const vecf d = through(READ(IN1, above, length, 0.0f), far, k.scale, k.bias); sum[s] += d;
                 product[s] = fma(d, far, product[s]);)
            db += sum_valid(sum, VALID(b));
            dw += sum_valid(product, VALID(b));
        }
        out[c] = db;
        out[C + c] = dw * k.rstd;
    }
}

KERNEL void batch_norm_grad(GRAD_ARGUMENTS, int share, int chunk)
{
    const int length = LENGTH;
    RUN(b) CHANNELS(c)
    {
        CHANNEL(k, c)
        TAKEN(factor, term, k, c)
        const long start = ((long)b * C + c) * length;
        global const STORED(IN0) *from = x + x_offset + start;
            global const STORED(IN1) *above = dy + dy_offset + start;
        global STORED(OUT0) *to = out + out_offset + start;
        EACH(i, length, const vecf far = READ(IN0, from, length, 0.0f) - k.mean;
             const vecf d = through(READ(IN1, above, length, 0.0f), far, k.scale, k.bias);
             PREFETCH(from + at + AHEAD); PREFETCH(above + at + AHEAD); PREFETCH(to + at + AHEAD);
             write(fma(far, (vecf)-factor, fma(d, (vecf)k.scale, (vecf)-term)), to, at, length,
                   whole);)
    }
}
