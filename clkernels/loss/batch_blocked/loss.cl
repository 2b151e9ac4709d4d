/*
 * Cross entropy and top-k accuracy of logits [B, classes] on CPUs, in the batch-blocked layout, or,
 * if there are few classes, in plain order. One vector holds a class of LANES samples. Labels are
 * int [n] in plain order, and `n` is the number of samples. All work-groups have one work-item.
 * Build options: LANES (4, 8 or 16); CLASSES, the number of classes, if the logits are in plain
 * order: a block of LANES samples is then transposed in private memory.
 *
 * clt_batch_blocked_cross_entropy(logits, labels, sums, counts, n, classes, smoothing, ignore, parts)
 *   The blocks are divided into `parts` contiguous shares. Work-item p adds up the losses of share
 *   p and writes sums[p], a float, and counts[p], the number of labels that are classes and not
 *   `ignore`. A label that is no class makes sums[p] NaN. loss_total (loss/portable/loss.cl) adds
 *   up the parts in order.
 * clt_batch_blocked_correct(logits, labels, sums, counts, n, classes, k, ignore, parts)
 *   The same, but sums[p] is the number of labels among the k largest logits. Of equal logits the
 *   lower index is larger, and NaN is larger than every number.
 * clt_batch_blocked_cross_entropy_samples(logits, labels, losses, n, classes, smoothing, ignore)
 *   losses float [n] in plain order: the loss of each sample, 0 if its label is `ignore`. A
 *   work-item computes one block of LANES samples.
 * clt_batch_blocked_cross_entropy_grad(logits, labels, upstream, out, n, classes, smoothing, ignore)
 *   out, in the layout of the logits: upstream[0] * (softmax(logits) - target). A sample whose label
 *   is `ignore` gets 0, and a sample whose label is no class gets NaN. A work-item computes one
 *   block of LANES samples.
 */
#include "core/batch_blocked/halves.clh"
#include "core/batch_blocked/log.clh"

#ifdef CLASSES

/* A block of samples. */
typedef vecf *block_of_logits;
#define LOGITS(x, c) (x)[c]
#define SET_LOGITS(x, out, c, v) (x)[c] = (v)
#define STORE_BLOCK(x, out, count) clt_store_rows(x, out, count)

/* Declares x, the logits of block b. */
#define BLOCK(x, logits, b, n, classes)                                                            \
    vecf x[CLASSES];                                                                               \
    clt_transpose_rows((logits) + (long)(b) * CLASSES * LANES, (n) - (b) * LANES, x)

/* Lanes beyond `count` samples get the logits of the last sample. */
INLINE void clt_transpose_rows(global const STORED(IN0) *rows, int count, vecf *x)
{
    float lane[LANES];
    for (int c = 0; c < CLASSES; c++) {
        for (int i = 0; i < LANES; i++)
            lane[i] = GET(IN0, rows + (count < LANES ? min(i, count - 1) : i) * CLASSES + c);
        x[c] = *(private vecf *)lane;
    }
}

INLINE void clt_store_rows(const vecf *x, global STORED(OUT0) *rows, int count)
{
    for (int i = 0; i < min(count, LANES); i++)
        for (int c = 0; c < CLASSES; c++)
            PUT(OUT0, ((const float *)(x + c))[i], rows + i * CLASSES + c);
}

#else

typedef global const STORED(IN0) *block_of_logits;
#define LOGITS(x, c) LOAD_AS(IN0, (x) + (c) * LANES)
#define SET_LOGITS(x, out, c, v) STORE_AS(OUT0, v, (out) + (c) * LANES)
#define STORE_BLOCK(x, out, count)
#define BLOCK(x, logits, b, n, classes)                                                            \
    const block_of_logits x = (logits) + (long)(b) * (classes) * LANES

#endif

typedef veci veci_anywhere __attribute__((aligned(4)));

/* The labels of block b. Lanes beyond sample n get `ignore`, so that they do not count. */
INLINE veci clt_labels(global const int *labels, int b, int n, int ignore)
{
    int lane[LANES];
    labels += b * LANES;
    if (n - b * LANES >= LANES)
        return *(global const veci_anywhere *)labels;
    for (int i = 0; i < LANES; i++)
        lane[i] = b * LANES + i < n ? labels[i] : ignore;
    return *(private veci *)lane;
}

INLINE vecf clt_largest(block_of_logits x, int classes)
{
    vecf largest = LOGITS(x, 0);
    for (int c = 1; c < classes; c++)
        largest = fmax(largest, LOGITS(x, c));
    return largest;
}

/* The sum over all classes of exp(logit - largest). */
INLINE vecf clt_exp_sum(block_of_logits x, int classes, vecf largest)
{
    vecf sum = 0.0f;
    for (int c = 0; c < classes; c++)
        sum += clt_exp(LOGITS(x, c) - largest);
    return sum;
}

/* The losses of a block: 0 for an ignored label, NaN for a label that is no class. */
INLINE vecf clt_losses(block_of_logits x, veci label, int classes, float smoothing, int ignore)
{
    const vecf largest = clt_largest(x, classes);
    vecf exps = 0.0f, own = NAN, all = 0.0f;
    for (int c = 0; c < classes; c++) {
        const vecf shifted = LOGITS(x, c) - largest;
        exps += clt_exp(shifted);
        all += shifted;
        own = select(own, shifted, label == c);
    }
    const vecf log_sum = clt_log(exps);
    vecf loss = log_sum - own;
    if (smoothing > 0.0f)
        loss = (1.0f - smoothing) * loss + smoothing * (log_sum - all / (float)classes);
    return select(loss, (vecf)0.0f, label == ignore);
}

KERNEL void clt_batch_blocked_cross_entropy(global const STORED(IN0) *logits, long logits_at,
                                    global const int *labels, long labels_at, global float *sums,
                                    long sums_at, global int *counts, long counts_at, int n,
                                    int classes, float smoothing, int ignore, int parts)
{
    const long blocks = clt_blocks(n), part = get_global_id(0);
    const int from = (int)(blocks * part / parts), to = (int)(blocks * (part + 1) / parts);
    vecf sum = 0.0f;
    veci count = 0;
    for (int b = from; b < to; b++) {
        const veci label = clt_labels(labels + labels_at, b, n, ignore);
        BLOCK(x, logits + logits_at, b, n, classes);
        sum += clt_losses(x, label, classes, smoothing, ignore);
        count -= label != ignore & label >= 0 & label < classes;
    }
    int lane[LANES], total = 0;
    *(private veci *)lane = count;
    for (int i = 0; i < LANES; i++)
        total += lane[i];
    sums[sums_at + part] = clt_sum_lanes(sum);
    counts[counts_at + part] = total;
}

KERNEL void clt_batch_blocked_cross_entropy_samples(global const STORED(IN0) *logits, long logits_at,
                                            global const int *labels, long labels_at,
                                            global float *losses, long losses_at, int n,
                                            int classes, float smoothing, int ignore)
{
    const int b = get_global_id(0);
    const veci label = clt_labels(labels + labels_at, b, n, ignore);
    float lane[LANES];
    BLOCK(x, logits + logits_at, b, n, classes);
    *(private vecf *)lane = clt_losses(x, label, classes, smoothing, ignore);
    for (int i = 0; i < LANES && b * LANES + i < n; i++)
        losses[losses_at + b * LANES + i] = lane[i];
}

KERNEL void clt_batch_blocked_cross_entropy_grad(global const STORED(IN0) *logits, long logits_at,
                                         global const int *labels, long labels_at,
                                         global const float *upstream, long upstream_at,
                                         global STORED(OUT0) *out, long out_at, int n, int classes,
                                         float smoothing, int ignore)
{
    const int b = get_global_id(0);
    const veci label = clt_labels(labels + labels_at, b, n, ignore);
    const veci none = label != ignore & (label < 0 | label >= classes);
    BLOCK(x, logits + logits_at, b, n, classes);
    out += out_at + (long)b * classes * LANES;
    const vecf largest = clt_largest(x, classes);
    const vecf inverse = 1.0f / clt_exp_sum(x, classes, largest);
    const float scale = upstream[upstream_at], others = smoothing / (float)classes;
    for (int c = 0; c < classes; c++) {
        const vecf target = select((vecf)others, (vecf)(others + (1.0f - smoothing)), label == c);
        const vecf g = scale * (clt_exp(LOGITS(x, c) - largest) * inverse - target);
        SET_LOGITS(x, out, c, select(select(g, (vecf)0.0f, label == ignore), (vecf)NAN, none));
    }
    STORE_BLOCK(x, out, n - b * LANES);
}

KERNEL void clt_batch_blocked_correct(global const STORED(IN0) *logits, long logits_at, global const int *labels,
                              long labels_at, global float *sums, long sums_at, global int *counts,
                              long counts_at, int n, int classes, int k, int ignore, int parts)
{
    const long blocks = clt_blocks(n), part = get_global_id(0);
    const int from = (int)(blocks * part / parts), to = (int)(blocks * (part + 1) / parts);
    float hits = 0.0f;
    int count = 0;
    for (int b = from; b < to; b++) {
        const veci label = clt_labels(labels + labels_at, b, n, ignore);
        BLOCK(x, logits + logits_at, b, n, classes);
        vecf own = 0.0f;
        for (int c = 0; c < classes; c++)
            own = select(own, LOGITS(x, c), label == c);
        veci before = 0;
        for (int c = 0; c < classes; c++) {
            const vecf v = LOGITS(x, c);
            const veci lower = (veci)c < label;
            before -= (v > own) | (v == own & lower) | (isnan(v) & (~isnan(own) | lower));
        }
        int at[LANES], behind[LANES];
        *(private veci *)at = label;
        *(private veci *)behind = before;
        for (int i = 0; i < LANES; i++) {
            if (at[i] == ignore)
                continue;
            if (at[i] < 0 || at[i] >= classes) {
                hits = NAN;
                continue;
            }
            hits += behind[i] < k ? 1.0f : 0.0f;
            count++;
        }
    }
    sums[sums_at + part] = hits;
    counts[counts_at + part] = count;
}
