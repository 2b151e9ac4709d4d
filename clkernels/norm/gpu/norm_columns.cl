/*
 * Sums over rows for the weight and bias of layer norm and RMS norm, on GPUs: groups of COLUMNS
 * neighbouring columns and GROUP / COLUMNS rows side by side, each with a share of the rows. A part
 * has the sums of dy h, then those of dy. Build options: those of norm/norm.clh.
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
