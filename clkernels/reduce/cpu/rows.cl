/*
 * Softmax, log softmax (is_log), cross entropy (also of divided classes) and their gradients over
 * rows of C contiguous elements, on CPUs, a vector of elements at a time. All work-groups have one
 * work-item, which computes `share` of the `rows` rows. A row stays in the caches between its
 * passes; the passes that compute exponentials prefetch the next row meanwhile.
 *
 * Global size: ceil(rows / share). Build option: VW, width of a vector (4, 8 or 16).
 */
#define LANES VW
#include "core/batch_blocked/math.clh"
#include "core/batch_blocked/halves.clh"

/* Number of independent accumulators, which hides the latency of additions and maxima. */
#define SIDE 4
#define STEP (SIDE * VW)
/* Floats of a cache line: one prefetch fetches them. */
#define LINE 16

/* The larger one. A NaN in `b` is ignored here; its exponential makes the row NaN later. */
#define LARGER(a, b) select(a, b, (a) < (b))

INLINE float max_lanes(vecf v)
{
#if VW == 16
    const float8 h = LARGER(v.lo, v.hi);
    const float4 q = LARGER(h.lo, h.hi);
#elif VW == 8
    const float4 q = LARGER(v.lo, v.hi);
#else
    const float4 q = v;
#endif
    const float2 p = LARGER(q.lo, q.hi);
    return p.x < p.y ? p.y : p.x;
}

INLINE float largest_of(global const STORED(IN0) *x, int C)
{
    vecf most[SIDE];
    int c = 0;
#pragma unroll
    for (int s = 0; s < SIDE; s++)
        most[s] = (vecf)(-INFINITY);
    for (; c + STEP <= C; c += STEP)
#pragma unroll
        for (int s = 0; s < SIDE; s++) {
            const vecf v = LOAD_AS(IN0, x + c + s * VW);
            most[s] = LARGER(most[s], v);
        }
    for (; c + VW <= C; c += VW) {
        const vecf v = LOAD_AS(IN0, x + c);
        most[0] = LARGER(most[0], v);
    }
    if (c < C) {
        const vecf v = LOAD_PART_AS(IN0, x + c, C - c, -INFINITY);
        most[0] = LARGER(most[0], v);
    }
    most[0] = LARGER(most[0], most[1]);
    most[2] = LARGER(most[2], most[3]);
    return max_lanes(LARGER(most[0], most[2]));
}

/* The sum of exp(x - largest). Two vectors at a time share the loads of the polynomial's
 * coefficients. */
INLINE float exp_sum(global const STORED(IN0) *x, int C, float largest)
{
    vecf sum[2] = {0.0f, 0.0f}, scale;
    int c = 0;
    for (; c + 2 * VW <= C; c += 2 * VW)
#pragma unroll
        for (int s = 0; s < 2; s++) {
            if (s * VW % LINE == 0)
                PREFETCH(x + C + c + s * VW);
            const vecf e = clt_exp_split(LOAD_AS(IN0, x + c + s * VW) - largest, &scale);
            sum[s] = fma(e, scale, sum[s]);
        }
    for (; c < C; c += VW) {
        const vecf v = c + VW <= C ? LOAD_AS(IN0, x + c) : LOAD_PART_AS(IN0, x + c, C - c, -INFINITY);
        const vecf e = clt_exp_split(v - largest, &scale);
        sum[0] = fma(e, scale, sum[0]);
    }
    return clt_sum_lanes(sum[0] + sum[1]);
}

/* y = exp(x - largest) * factor + term. Returns the sum of the exponentials. */
INLINE float store_exps(global const STORED(IN0) *x, global STORED(OUT0) *y, int C, float largest,
                        float factor, float term)
{
    vecf sum[2] = {0.0f, 0.0f}, scale;
    int c = 0;
    for (; c + 2 * VW <= C; c += 2 * VW)
#pragma unroll
        for (int s = 0; s < 2; s++) {
            if (s * VW % LINE == 0) {
                PREFETCH(x + C + c + s * VW);
                PREFETCH(y + C + c + s * VW);
            }
            const vecf v = LOAD_AS(IN0, x + c + s * VW);
            const vecf e = clt_exp_split(v - largest, &scale) * scale;
            STORE_AS(OUT0, fma(e, (vecf)factor, (vecf)term), y + c + s * VW);
            sum[s] += e;
        }
    if (c + VW <= C) {
        const vecf e = clt_exp_split(LOAD_AS(IN0, x + c) - largest, &scale) * scale;
        STORE_AS(OUT0, fma(e, (vecf)factor, (vecf)term), y + c);
        sum[0] += e;
        c += VW;
    }
    if (c < C) {
        const vecf v = LOAD_PART_AS(IN0, x + c, C - c, -INFINITY);
        const vecf e = clt_exp_split(v - largest, &scale) * scale;
        STORE_PART_AS(OUT0, fma(e, (vecf)factor, (vecf)term), y + c, C - c);
        sum[0] += e;
    }
    return clt_sum_lanes(sum[0] + sum[1]);
}

#if EXACT(OUT0)
/* y = y * factor + term */
INLINE void scale_row(global float *y, int C, float factor, float term)
{
    int c = 0;
    for (; c + VW <= C; c += VW)
        STORE(fma(LOAD(y + c), (vecf)factor, (vecf)term), y + c);
    for (; c < C; c++)
        y[c] = fma(y[c], factor, term);
}
#endif

/* y = softmax(x) * factor + term. Returns 1 / the sum of the exponentials. If y is f32, it holds
 * the exponentials until they are scaled. If y has 16 bits, they would lose precision, so they are
 * computed twice. */
INLINE float store_softmax(global const STORED(IN0) *x, global STORED(OUT0) *y, int C,
                           float largest, float factor, float term)
{
#if EXACT(OUT0)
    const float inverse = 1.0f / store_exps(x, y, C, largest, 1.0f, 0.0f);
    scale_row(y, C, factor * inverse, term);
#else
    const float inverse = 1.0f / exp_sum(x, C, largest);
    store_exps(x, y, C, largest, factor * inverse, term);
#endif
    return inverse;
}

KERNEL void softmax(global const STORED(IN0) *x, long x_offset, global STORED(OUT0) *y, long y_offset, long rows,
                    int C, int is_log, int share)
{
    const long first = get_global_id(0) * (long)share, end = min(first + share, rows);
    x += x_offset + first * C;
    y += y_offset + first * C;
    for (long r = first; r < end; r++, x += C, y += C) {
        const float largest = largest_of(x, C);
        if (is_log) {
            const float log_sum = log(exp_sum(x, C, largest));
            int c = 0;
            for (; c + VW <= C; c += VW) {
                PREFETCH(y + c + AHEAD);
                STORE_AS(OUT0, LOAD_AS(IN0, x + c) - largest - log_sum, y + c);
            }
            for (; c < C; c++)
                PUT(OUT0, GET(IN0, x + c) - largest - log_sum, y + c);
        } else {
            store_softmax(x, y, C, largest, 1.0f, 0.0f);
        }
    }
}

/* The sum of dy (is_log) or of dy * y. */
INLINE float weighted_sum(global const STORED(IN0) *y, global const STORED(IN1) *dy, int C, int is_log)
{
    vecf sum[SIDE];
    float rest = 0.0f;
    int c = 0;
#pragma unroll
    for (int s = 0; s < SIDE; s++)
        sum[s] = 0.0f;
    for (; c + STEP <= C; c += STEP)
#pragma unroll
        for (int s = 0; s < SIDE; s++) {
            if (s * VW % LINE == 0) {
                PREFETCH(y + c + s * VW + AHEAD);
                PREFETCH(dy + c + s * VW + AHEAD);
            }
            const vecf factor = is_log ? (vecf)1.0f : LOAD_AS(IN0, y + c + s * VW);
            sum[s] = fma(LOAD_AS(IN1, dy + c + s * VW), factor, sum[s]);
        }
    for (; c < C; c++)
        rest = fma(GET(IN1, dy + c), is_log ? 1.0f : GET(IN0, y + c), rest);
    return clt_sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

/* softmax: dx = y (dy - sum of y dy). log softmax: dx = dy - exp(y) * sum of dy. */
KERNEL void softmax_grad(global const STORED(IN0) *y, long y_offset, global const STORED(IN1) *dy,
                         long dy_offset, global STORED(OUT0) *dx, long dx_offset, long rows, int C,
                         int is_log, int share)
{
    const long first = get_global_id(0) * (long)share, end = min(first + share, rows);
    y += y_offset + first * C;
    dy += dy_offset + first * C;
    dx += dx_offset + first * C;
    for (long r = first; r < end; r++, y += C, dy += C, dx += C) {
        const float sum = weighted_sum(y, dy, C, is_log);
        vecf scale;
        int c = 0;
        for (; c + VW <= C && is_log; c += VW) {
            PREFETCH(dx + c + AHEAD);
            PREFETCH(y + C + c);
            PREFETCH(dy + C + c);
            const vecf e = clt_exp_split(LOAD_AS(IN0, y + c), &scale) * scale;
            STORE_AS(OUT0, fma(e, (vecf)-sum, LOAD_AS(IN1, dy + c)), dx + c);
        }
        for (; c + VW <= C; c += VW) {
            PREFETCH(dx + c + AHEAD);
            STORE_AS(OUT0, LOAD_AS(IN0, y + c) * (LOAD_AS(IN1, dy + c) - sum), dx + c);
        }
        if (c < C) {
            const vecf at_y = LOAD_PART_AS(IN0, y + c, C - c, 0.0f), at_dy = LOAD_PART_AS(IN1, dy + c, C - c, 0.0f);
            STORE_PART_AS(OUT0, is_log ? fma(clt_exp(at_y), (vecf)-sum, at_dy) : at_y * (at_dy - sum),
                           dx + c, C - c);
        }
    }
}

/* The sum of x - largest. */
INLINE float shifted_sum(global const STORED(IN0) *x, int C, float largest)
{
    vecf sum = 0.0f;
    float rest = 0.0f;
    int c = 0;
    for (; c + VW <= C; c += VW)
        sum += LOAD_AS(IN0, x + c) - largest;
    for (; c < C; c++)
        rest += GET(IN0, x + c) - largest;
    return clt_sum_lanes(sum) + rest;
}

/* Partial sums and counts of -log softmax(logits)[label], as in loss/portable/loss.cl: part p has
 * the rows from rows * p / parts on. */
KERNEL void cross_entropy(global const STORED(IN0) *logits, long logits_offset, global const int *labels,
                          long labels_offset, global float *sums, long sums_offset,
                          global int *counts, long counts_offset, long rows, int C, float smoothing,
                          int ignore, int parts)
{
    const int part = (int)get_global_id(0);
    float total = 0.0f;
    int count = 0;
    const long end = rows * (part + 1) / parts;
    for (long r = rows * part / parts; r < end; r++) {
        const int label = labels[labels_offset + r];
        global const STORED(IN0) *x = logits + logits_offset + r * C;
        if (label == ignore)
            continue;
        if (label < 0 || label >= C) {
            total = NAN;
            continue;
        }
        const float largest = largest_of(x, C);
        const float log_sum = log(exp_sum(x, C, largest));
        float loss = log_sum - (GET(IN0, x + label) - largest);
        if (smoothing > 0.0f) {
            const float mean = log_sum - shifted_sum(x, C, largest) / (float)C;
            loss = (1.0f - smoothing) * loss + smoothing * mean;
        }
        total += loss;
        count++;
    }
    sums[sums_offset + part] = total;
    counts[counts_offset + part] = count;
}

static void fill(global STORED(OUT0) *out, int C, float value)
{
    int c = 0;
    for (; c + VW <= C; c += VW)
        STORE_AS(OUT0, (vecf)(value), out + c);
    for (; c < C; c++)
        PUT(OUT0, value, out + c);
}

/* out = upstream[0] * (softmax(logits) - target). A row whose label is `ignore` gets 0, and a row
 * whose label is no class gets NaN. */
KERNEL void cross_entropy_grad(global const STORED(IN0) *logits, long logits_offset,
                               global const int *labels, long labels_offset,
                               global const float *upstream, long upstream_offset,
                               global STORED(OUT0) *out, long out_offset, long rows, int C,
                               float smoothing, int ignore, int share)
{
    const long first = get_global_id(0) * (long)share, end = min(first + share, rows);
    const float scale = upstream[upstream_offset], others = smoothing / (float)C;
    logits += logits_offset;
    out += out_offset;
    for (long r = first; r < end; r++) {
        const int label = labels[labels_offset + r];
        global const STORED(IN0) *x = logits + r * C;
        global STORED(OUT0) *to = out + r * C;
        if (label == ignore || label < 0 || label >= C) {
            fill(to, C, label == ignore ? 0.0f : NAN);
            continue;
        }
        /* x may be overwritten from here on, because `to` may be the same memory. */
        const float largest = largest_of(x, C), at_label = GET(IN0, x + label);
        const float inverse = store_softmax(x, to, C, largest, scale, -scale * others);
        const float own = exp(at_label - largest) * inverse;
        PUT(OUT0, scale * (own - (others + (1.0f - smoothing))), to + label);
    }
}

/* What classes first .. first + C - 1 add to each row; loss/portable/loss.cl has the format. */
KERNEL void cross_entropy_parts(global const STORED(IN0) *logits, long logits_offset,
                                global const int *labels, long labels_offset,
                                global const float *largest, long largest_offset,
                                global float *parts, long parts_offset, long rows, int C,
                                int first_class, int kinds, int share)
{
    const long first = get_global_id(0) * (long)share, end = min(first + share, rows);
    for (long r = first; r < end; r++) {
        const uint own = (uint)labels[labels_offset + r] - (uint)first_class;
        const float most = largest[largest_offset + r];
        global const STORED(IN0) *x = logits + logits_offset + r * C;
        global float *to = parts + parts_offset + r * kinds;
        to[0] = exp_sum(x, C, most);
        to[1] = own < (uint)C ? GET(IN0, x + own) - most : 0.0f;
        if (kinds == 3)
            to[2] = shifted_sum(x, C, most);
    }
}

/* The gradient for these classes, from the parts of all `classes`. */
KERNEL void cross_entropy_parts_grad(global const STORED(IN0) *logits, long logits_offset,
                                     global const int *labels, long labels_offset,
                                     global const float *largest, long largest_offset,
                                     global const float *parts, long parts_offset,
                                     global const float *upstream, long upstream_offset,
                                     global STORED(OUT0) *out, long out_offset, long rows, int C,
                                     int first_class, int classes, int kinds, float smoothing,
                                     int ignore, int share)
{
    const long first = get_global_id(0) * (long)share, end = min(first + share, rows);
    const float scale = upstream[upstream_offset], others = smoothing / (float)classes;
    for (long r = first; r < end; r++) {
        const int label = labels[labels_offset + r];
        const uint own = (uint)label - (uint)first_class;
        const float most = largest[largest_offset + r];
        global const STORED(IN0) *x = logits + logits_offset + r * C;
        global STORED(OUT0) *to = out + out_offset + r * C;
        if (label == ignore || label < 0 || label >= classes) {
            fill(to, C, label == ignore ? 0.0f : NAN);
            continue;
        }
        /* x may be overwritten from here on, because `to` may be the same memory. */
        const float at_label = own < (uint)C ? GET(IN0, x + own) : 0.0f;
        const float inverse = 1.0f / parts[parts_offset + r * kinds];
        store_exps(x, to, C, most, scale * inverse, -scale * others);
        if (own < (uint)C)
            PUT(OUT0,
                scale * (exp(at_label - most) * inverse - (others + (1.0f - smoothing))),
                to + own);
    }
}
