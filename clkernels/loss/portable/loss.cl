/*
 * Losses and metrics on any device: cross entropy, top-k accuracy, squared error, and their
 * gradients. Logits are [P, C, inner], labels int [P, inner]. Position i of P * inner has C logits,
 * `inner` apart, and one label. Each buffer is a pointer and an offset in elements.
 *
 * Sums take two kernels. Work-item p of `parts` adds up the positions from positions * p / parts
 * on, and writes a partial sum and a count. loss_total adds those up in order, so that results do
 * not depend on timing. A label that is no class makes the sum NaN.
 */
#include "core/storage.clh"

/* The offset of class 0 of position i. */
static long first_class(long i, int C, int inner)
{
    return i / inner * C * inner + i % inner;
}

/* The largest of C logits. exp_sum: the sum of exp(logit - largest), which does not overflow. */
static float largest_of(global const STORED(IN0) *x, int C, int inner)
{
    float largest = -INFINITY;
    for (int c = 0; c < C; c++)
        largest = fmax(largest, GET(IN0, x + (long)c * inner));
    return largest;
}

static float exp_sum(global const STORED(IN0) *x, int C, int inner, float largest)
{
    float sum = 0.0f;
    for (int c = 0; c < C; c++)
        sum += exp(GET(IN0, x + (long)c * inner) - largest);
    return sum;
}

/* The address of class 0 of position i, or 0 if the label is `ignore` or no class. The latter makes
 * `total` NaN. */
static global const STORED(IN0) *counted(global const STORED(IN0) *logits, int label, long i, int C, int inner,
                                   int ignore, float *total)
{
    if (label == ignore)
        return 0;
    if (label < 0 || label >= C) {
        *total = NAN;
        return 0;
    }
    return logits + first_class(i, C, inner);
}

/* Sum of -log softmax(logits)[label]. With smoothing s, the target is 1 - s for the label, plus s /
 * C for every class. */
kernel void cross_entropy(global const STORED(IN0) *logits, long logits_offset, global const int *labels,
                          long labels_offset, global float *sums, long sums_offset,
                          global int *counts, long counts_offset, long positions, int C, int inner,
                          float smoothing, int ignore, int parts)
{
    const int part = (int)get_global_id(0);
    if (part >= parts)
        return;
    logits += logits_offset;
    labels += labels_offset;
    float total = 0.0f;
    int count = 0;
    const long end = positions * (part + 1) / parts;
    for (long i = positions * part / parts; i < end; i++) {
        const int label = labels[i];
        global const STORED(IN0) *x = counted(logits, label, i, C, inner, ignore, &total);
        if (!x)
            continue;
        const float largest = largest_of(x, C, inner);
        const float log_sum = log(exp_sum(x, C, inner, largest));
        float loss = log_sum - (GET(IN0, x + (long)label * inner) - largest);
        if (smoothing > 0.0f) {
            float all = 0.0f;
            for (int c = 0; c < C; c++)
                all += log_sum - (GET(IN0, x + (long)c * inner) - largest);
            loss = (1.0f - smoothing) * loss + smoothing / (float)C * all;
        }
        total += loss;
        count++;
    }
    sums[sums_offset + part] = total;
    counts[counts_offset + part] = count;
}

/* out = upstream[0] * (softmax(logits) - target), a position a work-item. A position whose label is
 * `ignore` gets 0, and a position whose label is no class gets NaN, like the loss. `out` may be the
 * logits' buffer. */
kernel void cross_entropy_grad(global const STORED(IN0) *logits, long logits_offset,
                               global const int *labels, long labels_offset,
                               global const float *upstream, long upstream_offset,
                               global STORED(OUT0) *out, long out_offset, long positions, int C, int inner,
                               float smoothing, int ignore)
{
    const long i = get_global_id(0);
    if (i >= positions)
        return;
    const int label = labels[labels_offset + i];
    const long first = first_class(i, C, inner);
    global const STORED(IN0) *x = logits + logits_offset + first;
    out += out_offset + first;
    if (label == ignore || label < 0 || label >= C) {
        const float fill = label == ignore ? 0.0f : NAN;
        for (int c = 0; c < C; c++)
            PUT(OUT0, fill, out + (long)c * inner);
        return;
    }
    const float scale = upstream[upstream_offset];
    const float largest = largest_of(x, C, inner);
    const float inverse = 1.0f / exp_sum(x, C, inner, largest);
    const float others = smoothing / (float)C;
    for (int c = 0; c < C; c++) {
        float target = others;
        if (c == label)
            target += 1.0f - smoothing;
        PUT(OUT0, scale * (exp(GET(IN0, x + (long)c * inner) - largest) * inverse - target), out + (long)c * inner);
    }
}

/*
 * Cross entropy of classes that are divided over devices: logits are those of classes first ..
 * first + C - 1, and `largest` is the largest logit of all classes. parts[i * kinds ..] becomes
 * what these classes add to position i: the sum of exp(logit - largest); the label's logit -
 * largest, or 0 if the label's class is elsewhere; and, if `kinds` is 3, the sum of logit - largest.
 */
kernel void cross_entropy_parts(global const STORED(IN0) *logits, long logits_offset,
                                global const int *labels, long labels_offset,
                                global const float *largest, long largest_offset,
                                global float *parts, long parts_offset, long positions, int C,
                                int inner, int first, int kinds)
{
    const long i = get_global_id(0);
    if (i >= positions)
        return;
    const uint own = (uint)labels[labels_offset + i] - (uint)first;
    const float most = largest[largest_offset + i];
    global const STORED(IN0) *x = logits + logits_offset + first_class(i, C, inner);
    parts += parts_offset + i * kinds;
    parts[0] = exp_sum(x, C, inner, most);
    parts[1] = own < (uint)C ? GET(IN0, x + (long)own * inner) - most : 0.0f;
    if (kinds == 3) {
        float all = 0.0f;
        for (int c = 0; c < C; c++)
            all += GET(IN0, x + (long)c * inner) - most;
        parts[2] = all;
    }
}

/* The sum of cross_entropy from the parts of all `classes`. */
kernel void cross_entropy_of_parts(global const float *parts_of, long parts_of_offset,
                                   global const int *labels, long labels_offset,
                                   global float *sums, long sums_offset, global int *counts,
                                   long counts_offset, long positions, int classes, int kinds,
                                   float smoothing, int ignore, int parts)
{
    const int part = (int)get_global_id(0);
    if (part >= parts)
        return;
    float total = 0.0f;
    int count = 0;
    const long end = positions * (part + 1) / parts;
    for (long i = positions * part / parts; i < end; i++) {
        const int label = labels[labels_offset + i];
        global const float *of = parts_of + parts_of_offset + i * kinds;
        if (label == ignore)
            continue;
        if (label < 0 || label >= classes) {
            total = NAN;
            continue;
        }
        const float log_sum = log(of[0]);
        float loss = log_sum - of[1];
        if (kinds == 3)
            loss = (1.0f - smoothing) * loss + smoothing * (log_sum - of[2] / (float)classes);
        total += loss;
        count++;
    }
    sums[sums_offset + part] = total;
    counts[counts_offset + part] = count;
}

/* out = upstream[0] * (softmax(logits) - target) for the classes here, from the parts of all
 * `classes`. `out` may be the logits' buffer. */
kernel void cross_entropy_parts_grad(global const STORED(IN0) *logits, long logits_offset,
                                     global const int *labels, long labels_offset,
                                     global const float *largest, long largest_offset,
                                     global const float *parts, long parts_offset,
                                     global const float *upstream, long upstream_offset,
                                     global STORED(OUT0) *out, long out_offset, long positions,
                                     int C, int inner, int first, int classes, int kinds,
                                     float smoothing, int ignore)
{
    const long i = get_global_id(0);
    if (i >= positions)
        return;
    const int label = labels[labels_offset + i], good = label >= 0 && label < classes;
    const uint own = (uint)label - (uint)first;
    const long start = first_class(i, C, inner);
    const float scale = upstream[upstream_offset], most = largest[largest_offset + i];
    const float inverse = 1.0f / parts[parts_offset + i * kinds];
    const float others = smoothing / (float)classes;
    logits += logits_offset + start;
    out += out_offset + start;
    for (int c = 0; c < C; c++) {
        const float target = (uint)c == own ? others + (1.0f - smoothing) : others;
        const float p = exp(GET(IN0, logits + (long)c * inner) - most) * inverse;
        PUT(OUT0, label == ignore ? 0.0f : good ? scale * (p - target) : NAN,
            out + (long)c * inner);
    }
}

/* Whether logit c is ranked before logit l: NaN is the largest, and of equal logits the lower index
 * is first. */
static int stands_before(float at_c, int c, float at_l, int l)
{
    if (isnan(at_c) || isnan(at_l))
        return isnan(at_c) && (!isnan(at_l) || c < l);
    return at_c > at_l || (at_c == at_l && c < l);
}

/* Number of labels among the k largest logits. */
kernel void correct(global const STORED(IN0) *logits, long logits_offset, global const int *labels,
                    long labels_offset, global float *sums, long sums_offset, global int *counts,
                    long counts_offset, long positions, int C, int inner, int k, int ignore,
                    int parts)
{
    const int part = (int)get_global_id(0);
    if (part >= parts)
        return;
    logits += logits_offset;
    labels += labels_offset;
    float hits = 0.0f;
    int count = 0;
    const long end = positions * (part + 1) / parts;
    for (long i = positions * part / parts; i < end; i++) {
        const int label = labels[i];
        global const STORED(IN0) *x = counted(logits, label, i, C, inner, ignore, &hits);
        if (!x)
            continue;
        int before = 0;
        for (int c = 0; c < C; c++)
            before += stands_before(GET(IN0, x + (long)c * inner), c, GET(IN0, x + (long)label * inner), label);
        hits += before < k ? 1.0f : 0.0f;
        count++;
    }
    sums[sums_offset + part] = hits;
    counts[counts_offset + part] = count;
}

/*
 * Top-k accuracy of classes that are divided over devices: logits are those of classes first ..
 * first + C - 1. target[i] becomes the logit of label i, or 0 if its class is elsewhere. before[i]
 * becomes the number of these classes that are ranked before label i, whose logit is target[i].
 */
kernel void correct_target(global const STORED(IN0) *logits, long logits_offset,
                           global const int *labels, long labels_offset, global float *target,
                           long target_offset, long positions, int C, int inner, int first)
{
    const long i = get_global_id(0);
    if (i >= positions)
        return;
    const uint own = (uint)labels[labels_offset + i] - (uint)first;
    global const STORED(IN0) *x = logits + logits_offset + first_class(i, C, inner);
    target[target_offset + i] = own < (uint)C ? GET(IN0, x + (long)own * inner) : 0.0f;
}

kernel void correct_before(global const STORED(IN0) *logits, long logits_offset,
                           global const int *labels, long labels_offset,
                           global const float *target, long target_offset, global float *before,
                           long before_offset, long positions, int C, int inner, int first)
{
    const long i = get_global_id(0);
    if (i >= positions)
        return;
    const int label = labels[labels_offset + i];
    const float at_label = target[target_offset + i];
    global const STORED(IN0) *x = logits + logits_offset + first_class(i, C, inner);
    int count = 0;
    for (int c = 0; c < C; c++)
        count += stands_before(GET(IN0, x + (long)c * inner), first + c, at_label, label);
    before[before_offset + i] = (float)count;
}

/* Number of labels before which fewer than k of all `classes` are ranked. */
kernel void correct_of_parts(global const float *before, long before_offset,
                             global const int *labels, long labels_offset, global float *sums,
                             long sums_offset, global int *counts, long counts_offset,
                             long positions, int classes, int k, int ignore, int parts)
{
    const int part = (int)get_global_id(0);
    if (part >= parts)
        return;
    float hits = 0.0f;
    int count = 0;
    const long end = positions * (part + 1) / parts;
    for (long i = positions * part / parts; i < end; i++) {
        const int label = labels[labels_offset + i];
        if (label == ignore)
            continue;
        if (label < 0 || label >= classes) {
            hits = NAN;
            continue;
        }
        hits += before[before_offset + i] < (float)k ? 1.0f : 0.0f;
        count++;
    }
    sums[sums_offset + part] = hits;
    counts[counts_offset + part] = count;
}

/* sum of (x - target)^2; the count is the number of elements. Blocks of 64 are added up separately,
 * which keeps rounding errors small. */
kernel void mse(global const float *x, long x_offset, global const float *target,
                long target_offset, global float *sums, long sums_offset, global int *counts,
                long counts_offset, long elements, int parts)
{
    const int part = (int)get_global_id(0);
    if (part >= parts)
        return;
    x += x_offset;
    target += target_offset;
    const long first = elements * part / parts, end = elements * (part + 1) / parts;
    float total = 0.0f;
    for (long i0 = first; i0 < end; i0 += 64) {
        const long stop = min(i0 + 64, end);
        float block = 0.0f;
        for (long i = i0; i < stop; i++) {
            const float difference = x[i] - target[i];
            block += difference * difference;
        }
        total += block;
    }
    sums[sums_offset + part] = total;
    counts[counts_offset + part] = (int)(end - first);
}

/* out = 2 upstream[0] (x - target). For the target's gradient, the caller exchanges x and
 * target. */
kernel void mse_grad(global const float *x, long x_offset, global const float *target,
                     long target_offset, global const float *upstream, long upstream_offset,
                     global float *out, long out_offset, long elements)
{
    const long i = get_global_id(0);
    if (i >= elements)
        return;
    out[out_offset + i] =
        2.0f * upstream[upstream_offset] * (x[x_offset + i] - target[target_offset + i]);
}

/* One work-item adds up `parts` partial sums in order, in blocks of 64, and writes the sum and, as
 * a float, the weight. */
kernel void loss_total(global const float *sums, long sums_offset, global const int *counts,
                       long counts_offset, global float *sum, long sum_offset, global float *weight,
                       long weight_offset, int parts)
{
    if (get_global_id(0) > 0)
        return;
    float total = 0.0f;
    long count = 0;
    for (int p0 = 0; p0 < parts; p0 += 64) {
        const int end = min(p0 + 64, parts);
        float block = 0.0f;
        for (int p = p0; p < end; p++) {
            /* Intel's compiler for CPUs with vectors of 512 bits adds up a loop's + in an order
             * of its own. It keeps to that of fma(), which rounds alike. */
            block = fma(1.0f, sums[sums_offset + p], block);
            count += counts[counts_offset + p];
        }
        total += block;
    }
    sum[sum_offset] = total;
    weight[weight_offset] = (float)count;
}
