/*
 * Layer norm, RMS norm and their gradients on GPUs; norm/norm.clh has the formula and arguments.
 * WIDTH work-items of a group compute one row of C elements together. If KEEP is set, the row stays
 * in registers between the passes. Build options: those of reduce/gpu/rows.clh
 * (rows are contiguous) and norm/norm.clh.
 */
#include "reduce/gpu/rows.clh"
#include "norm/norm.clh"

CLT_SUM(tree, float, WIDTH)
CLT_SUM2(tree2, WIDTH)

/* Finds the work-item's row r. Work-items beyond the last row read that row, because all must meet
 * at the barriers. */
#define BEGIN                                                                                      \
    const int lid = (int)get_local_id(0), lane = lid % WIDTH;                                      \
    const long r = (long)get_group_id(0) * (GROUP / WIDTH) + lid / WIDTH;                          \
    const long at = min(r, rows - 1), start = at * C;

/* The vector that LANE visits: from registers or from memory. */
#if KEEP
#define OF(name, x) name[i]
#else
#define OF(name, x) AT(IN0, x, c)
#endif

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void norm_rows(FORWARD)
{
    local float s[GROUP];
    BEGIN
    x += x_offset + start;
    y += y_offset + start;
    BEGIN_AFFINE
    VEC all = 0.0f;
    float mean = 0.0f;
#if KEEP
    VEC kept[KEEP];
    LANE(i, c)
    {
        kept[i] = AT(IN0, x, c);
        all += kept[i];
    }
#elif !RMS
    LANE(i, c) all += AT(IN0, x, c);
#endif
#if !RMS
    mean = tree(s, sum_of(all), lid, lane) / (float)C;
#endif
    all = 0.0f;
    LANE(i, c)
    {
        const VEC v = OF(kept, x) - mean;
        all = fma(v, v, all);
    }
    const float rstd = 1.0f / sqrt(tree(s, sum_of(all), lid, lane) / (float)C + eps);
    if (r >= rows)
        return;
    if (lane == 0) {
        rstds[rstds_offset + r] = rstd;
        IF_MEAN(means[means_offset + r] = mean;)
    }
    LANE(i, c)
    {
        VEC v = (OF(kept, x) - mean) * rstd;
        IF_WEIGHT(v *= AT(f, w, c);)
        IF_BIAS(v += AT(f, b, c);)
        TO(OUT0, v, y, c);
    }
}

/* With g = dy w and h = (x - mean) rstd: dx = rstd (g - mean of g - h * mean of g h). RMS norm has
 * no mean of g. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
norm_rows_grad(OPERANDS IF_WEIGHT(IN(w)) ROWS_OUT(OUT0, dx) long rows, int C)
{
    local float2 s[GROUP];
    BEGIN
    x += x_offset + start;
    dy += dy_offset + start;
    dx += dx_offset + start;
    IF_WEIGHT(w += w_offset;)
    const float rstd = rstds[rstds_offset + at];
    float mean = 0.0f;
    IF_MEAN(mean = means[means_offset + at];)
    VEC sum = 0.0f, product = 0.0f;
#if KEEP
    VEC g[KEEP], h[KEEP];
    LANE(i, c)
    {
        h[i] = (AT(IN0, x, c) - mean) * rstd;
        g[i] = AT(IN1, dy, c) IF_WEIGHT(*AT(f, w, c));
    }
#define G g[i]
#define H h[i]
#else
#define G (AT(IN1, dy, c) IF_WEIGHT(*AT(f, w, c)))
#define H ((AT(IN0, x, c) - mean) * rstd)
#endif
    LANE(i, c)
    {
        const VEC v = G;
        IF_MEAN(sum += v;)
        product = fma(v, H, product);
    }
    const float2 both =
        tree2(s, (float2)(sum_of(sum), sum_of(product)), lid, lane) / (float)C;
    if (r >= rows)
        return;
    LANE(i, c) TO(OUT0, rstd * (G - both.x - H * both.y), dx, c);
}
