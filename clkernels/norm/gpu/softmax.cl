/*
 * Softmax, log softmax (LOG 1) and their gradients on GPUs, over `rows` rows of C elements. WIDTH
 * work-items of a group compute one row together. If KEEP is set, the row stays in registers
 * between the passes. Build options: LOG, and those of reduce/gpu/rows.clh.
 */
#include "reduce/gpu/rows.clh"

CLT_SUM(tree, float, WIDTH)

/* Finds the work-item's row r. Work-items beyond the last row read that row, because all must meet
 * at the barriers. */
#define BEGIN                                                                                      \
    const int lid = (int)get_local_id(0), lane = lid % WIDTH;                                      \
    const int r = (int)get_group_id(0) * (GROUP / WIDTH) + lid / WIDTH;                            \
    const long start = row_start(min(r, rows - 1), C, inner);

/* With KEEP, each work-item subtracts its own maximum first, and rescales its exponentials to the
 * row's maximum at the end. So the row needs one exchange between work-items instead of two. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax(global const STORED(IN0) *x, long x_offset, global STORED(OUT0) *y, long y_offset, int rows, int C, int inner)
{
    local float2 s[GROUP];
    BEGIN
    x += x_offset + start;
    y += y_offset + start;
#if KEEP
    VEC kept[KEEP];
    float2 all = (float2)(-INFINITY, 0.0f);
    LANE(i, c)
    {
        kept[i] = AT(IN0, x, c);
        all.x = fmax(all.x, largest_of(kept[i]));
    }
    const float own = all.x;
    LANE(i, c)
    {
        const VEC e = exp(kept[i] - taken_off(own));
        all.y += sum_of(e);
#if !LOG
        kept[i] = e;
#endif
    }
#else
    float2 all = lane_exps(x, C, inner, lane);
#endif
    all = tree_exps(s, all, lid, lane);
    if (r >= rows)
        return;
#if LOG
    const float log_sum = log(all.y);
#else
    const float inverse = 1.0f / all.y;
#endif
    LANE(i, c)
    {
#if KEEP && LOG
        TO(OUT0, kept[i] - all.x - log_sum, y, c);
#elif KEEP
        TO(OUT0, kept[i] * (rescale(own, all.x) * inverse), y, c);
#elif LOG
        TO(OUT0, AT(IN0, x, c) - all.x - log_sum, y, c);
#else
        TO(OUT0, exp(AT(IN0, x, c) - all.x) * inverse, y, c);
#endif
    }
}

/* softmax: dx = y (dy - sum of y dy). log softmax: dx = dy - exp(y) * sum of dy. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_grad(global const STORED(IN0) *y, long y_offset, global const STORED(IN1) *dy,
             long dy_offset, global STORED(OUT0) *dx, long dx_offset, int rows, int C, int inner)
{
    local float s[GROUP];
    BEGIN
    y += y_offset + start;
    dy += dy_offset + start;
    dx += dx_offset + start;
#if KEEP
    VEC at_y[KEEP], at_dy[KEEP];
#define OF(kind, name, x) name[i]
#else
#define OF(kind, name, x) AT(kind, x, c)
#endif
    VEC sums = 0.0f;
    LANE(i, c)
    {
#if KEEP
        at_y[i] = AT(IN0, y, c);
        at_dy[i] = AT(IN1, dy, c);
#endif
#if LOG
        sums += OF(IN1, at_dy, dy);
#else
        sums += OF(IN1, at_dy, dy) * OF(IN0, at_y, y);
#endif
    }
    const float sum = tree(s, sum_of(sums), lid, lane);
    if (r >= rows)
        return;
    LANE(i, c)
    {
#if LOG
        TO(OUT0, OF(IN1, at_dy, dy) - exp(OF(IN0, at_y, y)) * sum, dx, c);
#else
        TO(OUT0, OF(IN0, at_y, y) * (OF(IN1, at_dy, dy) - sum), dx, c);
#endif
    }
}
