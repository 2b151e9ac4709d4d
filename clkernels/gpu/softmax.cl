/*
 * Softmax, its logarithm (LOG 1) and their gradients on GPUs, over `rows` rows of C elements.
 * Build options: LOG, and those of rows.clh.
 */
#include "gpu/rows.clh"

CLT_SUM(tree, float, WIDTH)

#define BEGIN                                                                                      \
    const int lid = (int)get_local_id(0), lane = lid % WIDTH;                                      \
    const int r = (int)get_group_id(0) * (GROUP / WIDTH) + lid / WIDTH;                            \
    const long start = row_start(min(r, rows - 1), C, inner);

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax(global const float *x, long x_offset, global float *y, long y_offset, int rows, int C, int inner)
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
        kept[i] = AT(x, c);
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
        AT(y, c) = kept[i] - all.x - log_sum;
#elif KEEP
        AT(y, c) = kept[i] * (rescale(own, all.x) * inverse);
#elif LOG
        AT(y, c) = AT(x, c) - all.x - log_sum;
#else
        AT(y, c) = exp(AT(x, c) - all.x) * inverse;
#endif
    }
}

/* softmax: y (dy - sum of y dy); log_softmax: dy - exp(y) sum of dy. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
softmax_grad(global const float *y, long y_offset, global const float *dy, long dy_offset,
             global float *dx, long dx_offset, int rows, int C, int inner)
{
    local float s[GROUP];
    BEGIN
    y += y_offset + start;
    dy += dy_offset + start;
    dx += dx_offset + start;
#if KEEP
    VEC at_y[KEEP], at_dy[KEEP];
#define OF(name, x) name[i]
#else
#define OF(name, x) AT(x, c)
#endif
    VEC sums = 0.0f;
    LANE(i, c)
    {
#if KEEP
        at_y[i] = AT(y, c);
        at_dy[i] = AT(dy, c);
#endif
#if LOG
        sums += OF(at_dy, dy);
#else
        sums += OF(at_dy, dy) * OF(at_y, y);
#endif
    }
    const float sum = tree(s, sum_of(sums), lid, lane);
    if (r >= rows)
        return;
    LANE(i, c)
    {
#if LOG
        AT(dx, c) = OF(at_dy, dy) - exp(OF(at_y, y)) * sum;
#else
        AT(dx, c) = OF(at_y, y) * (OF(at_dy, dy) - sum);
#endif
    }
}
