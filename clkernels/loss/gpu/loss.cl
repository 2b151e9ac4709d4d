/*
 * Cross entropy and top-k accuracy on GPUs. Logits are [P, C, inner], labels int [P, inner]. `rows`
 * is P * inner: one row of C logits for each label.
 *
 * WIDTH work-items of a group compute one row together, so a group computes ROWS rows at a time
 * (reduce/gpu/rows.clh has the division and the build options). In cross_entropy and correct, group
 * p of `parts` takes every parts-th block of ROWS rows. It writes a partial sum and a count, which
 * loss_total of loss/gpu/total.cl adds up. A label that is no class makes the sum NaN.
 */
#include "reduce/gpu/rows.clh"

#define ROWS (GROUP / WIDTH) /* rows that a group computes at a time */

CLT_SUM(tree, float, WIDTH)
CLT_SUM(tree_ints, int, WIDTH)
CLT_SUM2(group_tree, GROUP)
CLT_SUM2(row_tree, WIDTH)

/* Adds up `total` and `count` over the group, and stores both. Only the first work-item of each row
 * has values other than 0. */
static inline void store_part(local float2 *s, float total, int count, int lid, global float *sums,
                              global int *counts)
{
    const float2 all = group_tree(s, (float2)(total, (float)count), lid, lid);
    if (lid == 0) {
        sums[get_group_id(0)] = all.x;
        counts[get_group_id(0)] = (int)all.y;
    }
}

/* The logit of the label. */
static inline float at_label(global const STORED(IN0) *x, int label, int inner)
{
    return GET(IN0, x + (long)label * inner);
}

/* sum of -log softmax(logits)[label] over the group's rows. All work-items make the same number of
 * iterations, because they meet at barriers. A row that does not count reads row 0 instead, and its
 * result is dropped. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
cross_entropy(global const STORED(IN0) *logits, long logits_offset, global const int *labels,
              long labels_offset, global float *sums, long sums_offset, global int *counts,
              long counts_offset, int rows, int C, int inner, float smoothing, int ignore)
{
    local float2 s[GROUP];
    local float s1[GROUP];
    const int lid = (int)get_local_id(0), lane = lid % WIDTH;
    float total = 0.0f;
    int count = 0;
    for (int first = (int)get_group_id(0) * ROWS; first < rows;
         first += (int)get_num_groups(0) * ROWS) {
        const int r = first + lid / WIDTH, label = r < rows ? labels[labels_offset + r] : ignore;
        const int is_class = label >= 0 && label < C, counted = is_class && label != ignore;
        global const STORED(IN0) *x = logits + logits_offset + row_start(counted ? r : 0, C, inner);
        VEC plain = 0.0f;
        if (smoothing > 0.0f)
            LANE(i, c) plain += AT(IN0, x, c);
        const float2 all = tree_exps(s, lane_exps(x, C, inner, lane), lid, lane);
        const float log_sum = log(all.y);
        float loss = log_sum - (at_label(x, counted ? label : 0, inner) - all.x);
        if (smoothing > 0.0f)
            loss = (1.0f - smoothing) * loss +
                   smoothing *
                       (log_sum + (all.x - tree(s1, sum_of(plain), lid, lane) / (float)C));
        if (lane == 0 && label != ignore) {
            total += is_class ? loss : NAN;
            count += is_class;
        }
    }
    store_part(s, total, count, lid, sums + sums_offset, counts + counts_offset);
}

/* out = upstream[0] * (softmax(logits) - target). A row whose label is `ignore` gets 0, and a row
 * whose label is no class gets NaN, like the loss. If KEEP is set, the row's exponentials stay in
 * registers. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
cross_entropy_grad(global const STORED(IN0) *logits, long logits_offset, global const int *labels,
                   long labels_offset, global const float *upstream, long upstream_offset,
                   global STORED(OUT0) *out, long out_offset, int rows, int C, int inner, float smoothing,
                   int ignore)
{
    local float2 s[GROUP];
    const int lid = (int)get_local_id(0), lane = lid % WIDTH;
    const int r = (int)get_group_id(0) * ROWS + lid / WIDTH, at = min(r, rows - 1);
    const int label = labels[labels_offset + at];
    const long start = row_start(at, C, inner);
    global const STORED(IN0) *x = logits + logits_offset + start;
    out += out_offset + start;
    float2 all = (float2)(-INFINITY, 0.0f);
#if KEEP
    VEC kept[KEEP];
    LANE(i, c)
    {
        kept[i] = AT(IN0, x, c);
        all.x = fmax(all.x, largest_of(kept[i]));
    }
    const float own = all.x;
    LANE(i, c)
    {
        kept[i] = exp(kept[i] - taken_off(own));
        all.y += sum_of(kept[i]);
    }
#else
    all = lane_exps(x, C, inner, lane);
#endif
    all = tree_exps(s, all, lid, lane);
    if (r >= rows)
        return;
    /* Ignored labels and labels that are no class are expressed by `scale`, so that the loop has no
     * branch for them. */
    const int is_class = label >= 0 && label < C;
    const float scale = label == ignore ? 0.0f : is_class ? upstream[upstream_offset] : NAN;
    const float others = smoothing / (float)C;
#if KEEP
    const float factor = rescale(own, all.x) / all.y;
#else
    const float factor = 1.0f / all.y;
#endif
    LANE(i, c)
    {
#if KEEP
        VEC p = kept[i] * factor - others;
#else
        VEC p = exp(AT(IN0, x, c) - all.x) * factor - others;
#endif
        const int hit = label - c;
#if V == 4
        p -= ((int4)(hit) == (int4)(0, 1, 2, 3)) ? (float4)(1.0f - smoothing) : (float4)(0.0f);
#else
        p -= hit == 0 ? 1.0f - smoothing : 0.0f;
#endif
        TO(OUT0, label == ignore ? (VEC)(0.0f) : scale * p, out, c);
    }
}

/* What classes first .. first + C - 1 add to each position; loss/portable/loss.cl has the format. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
cross_entropy_parts(global const STORED(IN0) *logits, long logits_offset, global const int *labels,
                    long labels_offset, global const float *largest, long largest_offset,
                    global float *parts, long parts_offset, int rows, int C, int inner, int first,
                    int kinds)
{
    local float2 s[GROUP];
    const int lid = (int)get_local_id(0), lane = lid % WIDTH;
    const int r = (int)get_group_id(0) * ROWS + lid / WIDTH, at = min(r, rows - 1);
    const uint own = (uint)labels[labels_offset + at] - (uint)first;
    const float most = largest[largest_offset + at];
    global const STORED(IN0) *x = logits + logits_offset + row_start(at, C, inner);
    VEC exps = 0.0f, plain = 0.0f;
    LANE(i, c)
    {
        const VEC v = AT(IN0, x, c) - most;
        exps += exp(v);
        plain += v;
    }
    const float2 all = row_tree(s, (float2)(sum_of(exps), sum_of(plain)), lid, lane);
    if (r >= rows || lane > 0)
        return;
    parts += parts_offset + (long)r * kinds;
    parts[0] = all.x;
    parts[1] = own < (uint)C ? at_label(x, (int)own, inner) - most : 0.0f;
    if (kinds == 3)
        parts[2] = all.y;
}

/* The gradient for these classes, from the parts of all `classes`. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
cross_entropy_parts_grad(global const STORED(IN0) *logits, long logits_offset,
                         global const int *labels, long labels_offset, global const float *largest,
                         long largest_offset, global const float *parts, long parts_offset,
                         global const float *upstream, long upstream_offset,
                         global STORED(OUT0) *out, long out_offset, int rows, int C, int inner,
                         int first, int classes, int kinds, float smoothing, int ignore)
{
    const int lid = (int)get_local_id(0), lane = lid % WIDTH;
    const int r = (int)get_group_id(0) * ROWS + lid / WIDTH;
    if (r >= rows)
        return;
    const int label = labels[labels_offset + r];
    const long start = row_start(r, C, inner);
    global const STORED(IN0) *x = logits + logits_offset + start;
    const float scale = label == ignore                ? 0.0f
                        : label >= 0 && label < classes ? upstream[upstream_offset]
                                                        : NAN;
    const float most = largest[largest_offset + r], others = smoothing / (float)classes;
    const float factor = 1.0f / parts[parts_offset + (long)r * kinds];
    out += out_offset + start;
    LANE(i, c)
    {
        VEC p = exp(AT(IN0, x, c) - most) * factor - others;
        const int hit = label - first - c;
#if V == 4
        p -= ((int4)(hit) == (int4)(0, 1, 2, 3)) ? (float4)(1.0f - smoothing) : (float4)(0.0f);
#else
        p -= hit == 0 ? 1.0f - smoothing : 0.0f;
#endif
        TO(OUT0, label == ignore ? (VEC)(0.0f) : scale * p, out, c);
    }
}

/* Whether logit c is ranked before logit l: NaN is the largest, and of equal logits the lower index
 * is first. */
static inline int stands_before(float at_c, int c, float at_l, int l)
{
    const int tie = isnan(at_l) ? isnan(at_c) : at_c == at_l;
    return tie ? c < l : isnan(at_c) || at_c > at_l;
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
correct(global const STORED(IN0) *logits, long logits_offset, global const int *labels,
        long labels_offset, global float *sums, long sums_offset, global int *counts,
        long counts_offset, int rows, int C, int inner, int k, int ignore)
{
    local float2 s[GROUP];
    local int s1[GROUP];
    const int lid = (int)get_local_id(0), lane = lid % WIDTH;
    float hits = 0.0f;
    int count = 0;
    for (int first = (int)get_group_id(0) * ROWS; first < rows;
         first += (int)get_num_groups(0) * ROWS) {
        const int r = first + lid / WIDTH, label = r < rows ? labels[labels_offset + r] : ignore;
        const int is_class = label >= 0 && label < C, counted = is_class && label != ignore;
        global const STORED(IN0) *x = logits + logits_offset + row_start(counted ? r : 0, C, inner);
        const float own = at_label(x, counted ? label : 0, inner);
        int before = 0;
        for (int c = lane * V; c < C; c += WIDTH * V) {
#if V == 4
            const float4 v = AT(IN0, x, c);
            before += stands_before(v.x, c, own, label) + stands_before(v.y, c + 1, own, label) +
                      stands_before(v.z, c + 2, own, label) + stands_before(v.w, c + 3, own, label);
#else
            before += stands_before(AT(IN0, x, c), c, own, label);
#endif
        }
        before = tree_ints(s1, before, lid, lane);
        if (lane == 0 && label != ignore) {
            hits += !is_class ? NAN : before < k ? 1.0f : 0.0f;
            count += is_class;
        }
    }
    store_part(s, hits, count, lid, sums + sums_offset, counts + counts_offset);
}
