/*
 * Softmax, its logarithm, cross entropy and their gradients over rows of C contiguous elements, on
 * CPUs: work-group size 1, a vector of elements at a time; a row stays in the first-level cache
 * between its passes.
 *
 * Kernels take `rows`, and `share`: rows of a work-item. Global size: ceil(rows / share).
 * Build option: VW, lanes of a vector.
 */
#define CAT2(a, b) a##b
#define CAT(a, b) CAT2(a, b)
#define VEC CAT(float, VW)
#define VLOAD(p) CAT(vload, VW)(0, p)
#define VSTORE(v, p) CAT(vstore, VW)(v, 0, p)
#define KERNEL kernel __attribute__((reqd_work_group_size(1, 1, 1)))

/* Joins the lanes, always in the same order. */
static inline float sum_lanes(VEC v)
{
#if VW == 16
    const float8 h = v.lo + v.hi;
    const float4 q = h.lo + h.hi;
#elif VW == 8
    const float4 q = v.lo + v.hi;
#else
    const float4 q = v;
#endif
    return (q.x + q.z) + (q.y + q.w);
}

static inline float max_lanes(VEC v)
{
#if VW == 16
    const float8 h = fmax(v.lo, v.hi);
    const float4 q = fmax(h.lo, h.hi);
#elif VW == 8
    const float4 q = fmax(v.lo, v.hi);
#else
    const float4 q = v;
#endif
    return fmax(fmax(q.x, q.z), fmax(q.y, q.w));
}

static float largest_of(global const float *x, int C)
{
    VEC most = (VEC)(-INFINITY);
    int c = 0;
    for (; c + VW <= C; c += VW)
        most = fmax(most, VLOAD(x + c));
    float largest = max_lanes(most);
    for (; c < C; c++)
        largest = fmax(largest, x[c]);
    return largest;
}

static float exp_sum(global const float *x, int C, float largest)
{
    VEC sums = (VEC)(0.0f);
    float rest = 0.0f;
    int c = 0;
    for (; c + VW <= C; c += VW)
        sums += exp(VLOAD(x + c) - largest);
    for (; c < C; c++)
        rest += exp(x[c] - largest);
    return sum_lanes(sums) + rest;
}

/* The same, and keeps the exponentials. */
static float store_exps(global const float *x, global float *y, int C, float largest)
{
    VEC sums = (VEC)(0.0f);
    float rest = 0.0f;
    int c = 0;
    for (; c + VW <= C; c += VW) {
        const VEC e = exp(VLOAD(x + c) - largest);
        VSTORE(e, y + c);
        sums += e;
    }
    for (; c < C; c++) {
        const float e = exp(x[c] - largest);
        y[c] = e;
        rest += e;
    }
    return sum_lanes(sums) + rest;
}

KERNEL void softmax(global const float *x, long x_offset, global float *y, long y_offset, long rows,
                    int C, int is_log, int share)
{
    const long first = get_global_id(0) * (long)share, end = min(first + share, rows);
    x += x_offset + first * C;
    y += y_offset + first * C;
    for (long r = first; r < end; r++, x += C, y += C) {
        const float largest = largest_of(x, C);
        int c = 0;
        if (is_log) {
            const float log_sum = log(exp_sum(x, C, largest));
            for (; c + VW <= C; c += VW)
                VSTORE(VLOAD(x + c) - largest - log_sum, y + c);
            for (; c < C; c++)
                y[c] = x[c] - largest - log_sum;
        } else {
            const float inverse = 1.0f / store_exps(x, y, C, largest);
            for (; c + VW <= C; c += VW)
                VSTORE(VLOAD(y + c) * inverse, y + c);
            for (; c < C; c++)
                y[c] *= inverse;
        }
    }
}

/* softmax: y (dy - sum of y dy); log_softmax: dy - exp(y) sum of dy. */
KERNEL void softmax_grad(global const float *y, long y_offset, global const float *dy,
                         long dy_offset, global float *dx, long dx_offset, long rows, int C,
                         int is_log, int share)
{
    const long first = get_global_id(0) * (long)share, end = min(first + share, rows);
    y += y_offset + first * C;
    dy += dy_offset + first * C;
    dx += dx_offset + first * C;
    for (long r = first; r < end; r++, y += C, dy += C, dx += C) {
        VEC sums = (VEC)(0.0f);
        float rest = 0.0f;
        int c = 0;
        for (; c + VW <= C; c += VW)
            sums += is_log ? VLOAD(dy + c) : VLOAD(dy + c) * VLOAD(y + c);
        for (; c < C; c++)
            rest += is_log ? dy[c] : dy[c] * y[c];
        const float sum = sum_lanes(sums) + rest;
        c = 0;
        for (; c + VW <= C; c += VW) {
            const VEC at_y = VLOAD(y + c), at_dy = VLOAD(dy + c);
            VSTORE(is_log ? at_dy - exp(at_y) * sum : at_y * (at_dy - sum), dx + c);
        }
        for (; c < C; c++)
            dx[c] = is_log ? dy[c] - exp(y[c]) * sum : y[c] * (dy[c] - sum);
    }
}

/* Partial sums and counts as those of portable/loss.cl: part p has the rows from rows * p / parts
 * on. */
KERNEL void cross_entropy(global const float *logits, long logits_offset, global const int *labels,
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
        global const float *x = logits + logits_offset + r * C;
        if (label == ignore)
            continue;
        if (label < 0 || label >= C) {
            total = NAN;
            continue;
        }
        const float largest = largest_of(x, C);
        const float log_sum = log(exp_sum(x, C, largest));
        float loss = log_sum - (x[label] - largest);
        if (smoothing > 0.0f) {
            VEC all = (VEC)(0.0f);
            float rest = 0.0f;
            int c = 0;
            for (; c + VW <= C; c += VW)
                all += log_sum - (VLOAD(x + c) - largest);
            for (; c < C; c++)
                rest += log_sum - (x[c] - largest);
            loss = (1.0f - smoothing) * loss + smoothing / (float)C * (sum_lanes(all) + rest);
        }
        total += loss;
        count++;
    }
    sums[sums_offset + part] = total;
    counts[counts_offset + part] = count;
}

static void fill(global float *out, int C, float value)
{
    int c = 0;
    for (; c + VW <= C; c += VW)
        VSTORE((VEC)(value), out + c);
    for (; c < C; c++)
        out[c] = value;
}

KERNEL void cross_entropy_grad(global const float *logits, long logits_offset,
                               global const int *labels, long labels_offset,
                               global const float *upstream, long upstream_offset,
                               global float *out, long out_offset, long rows, int C,
                               float smoothing, int ignore, int share)
{
    const long first = get_global_id(0) * (long)share, end = min(first + share, rows);
    const float scale = upstream[upstream_offset], others = smoothing / (float)C;
    logits += logits_offset;
    out += out_offset;
    for (long r = first; r < end; r++) {
        const int label = labels[labels_offset + r];
        global const float *x = logits + r * C;
        global float *to = out + r * C;
        if (label == ignore || label < 0 || label >= C) {
            fill(to, C, label == ignore ? 0.0f : NAN);
            continue;
        }
        const float largest = largest_of(x, C);
        const float at_label = x[label];
        const float inverse = 1.0f / store_exps(x, to, C, largest);
        int c = 0;
        for (; c + VW <= C; c += VW)
            VSTORE(scale * (VLOAD(to + c) * inverse - others), to + c);
        for (; c < C; c++)
            to[c] = scale * (to[c] * inverse - others);
        to[label] = scale * (exp(at_label - largest) * inverse - (others + (1.0f - smoothing)));
    }
}
