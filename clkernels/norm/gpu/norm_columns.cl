/*
 * Gradients of the weight and bias of layer norm and RMS norm on GPUs: sums of dy (x - mean) rstd
 * and of dy over the rows. Work-group (i, j) has COLUMNS neighbouring columns and share j of the
 * rows; GROUP / COLUMNS work-items add up one column and join their results in local memory. `sums`
 * is [parts, 2, C], which norm_sum_parts of norm/portable/norm.cl adds up. Build options: those of
 * norm/norm.clh.
 */
#include "core/gpu/tree.clh"
#include "norm/norm.clh"

#define GROUP 256
#define COLUMNS 32
#define HEIGHT (GROUP / COLUMNS)

CLT_TREE(tree, float2, CLT_ADD, HEIGHT, COLUMNS)

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
norm_columns_grad(OPERANDS OUT(sums) long rows, int C, int parts)
{
    local float2 s[GROUP];
    const int lid = (int)get_local_id(0), part = (int)get_group_id(1), row = lid / COLUMNS;
    const int c = (int)get_group_id(0) * COLUMNS + lid % COLUMNS, inside = c < C;
    const long end = inside ? rows * (part + 1) / parts : 0;
    float2 both = 0.0f;
    x += x_offset + c;
    dy += dy_offset + c;
    rstds += rstds_offset;
    IF_MEAN(means += means_offset;)
#pragma unroll 4
    for (long r = rows * part / parts + row; r < end; r += HEIGHT) {
        float h = GET(IN0, x + r * C);
        const float d = GET(IN1, dy + r * C);
        IF_MEAN(h -= means[r];)
        both += (float2)(d * (h * rstds[r]), d);
    }
    both = tree(s, both, lid, row);
    if (row == 0 && inside) {
        sums[sums_offset + 2L * part * C + c] = both.x;
        sums[sums_offset + (2L * part + 1) * C + c] = both.y;
    }
}
