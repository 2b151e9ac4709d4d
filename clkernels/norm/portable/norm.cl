/*
 * Layer norm, RMS norm and their gradients on any device; norm/norm.clh has the formula and
 * arguments. A work-item computes one row, or the sum of one column over a share of the rows.
 */
#include "norm/norm.clh"

kernel void norm_rows(FORWARD)
{
    const long r = get_global_id(0);
    float mean = 0.0f, squares = 0.0f;
    if (r >= rows)
        return;
    x += x_offset + r * C;
    y += y_offset + r * C;
    BEGIN_AFFINE
#if !RMS
    for (int c = 0; c < C; c++)
        mean += GET(IN0, x + c);
    mean /= (float)C;
    means[means_offset + r] = mean;
#endif
    for (int c = 0; c < C; c++)
        squares += (GET(IN0, x + c) - mean) * (GET(IN0, x + c) - mean);
    const float rstd = 1.0f / sqrt(squares / (float)C + eps);
    rstds[rstds_offset + r] = rstd;
    for (int c = 0; c < C; c++) {
        float v = (GET(IN0, x + c) - mean) * rstd;
        IF_WEIGHT(v *= w[c];)
        IF_BIAS(v += b[c];)
        PUT(OUT0, v, y + c);
    }
}

/* With g = dy w and h = (x - mean) rstd: dx = rstd (g - mean of g - h * mean of g h). RMS norm has
 * no mean of g. */
kernel void norm_rows_grad(OPERANDS IF_WEIGHT(IN(w)) ROWS_OUT(OUT0, dx) long rows, int C)
{
    const long r = get_global_id(0);
    float sum = 0.0f, product = 0.0f, mean = 0.0f;
    if (r >= rows)
        return;
    x += x_offset + r * C;
    dy += dy_offset + r * C;
    dx += dx_offset + r * C;
    IF_WEIGHT(w += w_offset;)
    IF_MEAN(mean = means[means_offset + r];)
    const float rstd = rstds[rstds_offset + r];
    for (int c = 0; c < C; c++) {
        const float g = GET(IN1, dy + c) IF_WEIGHT(*w[c]);
        IF_MEAN(sum += g;)
        product += g * ((GET(IN0, x + c) - mean) * rstd);
    }
    sum /= (float)C;
    product /= (float)C;
    for (int c = 0; c < C; c++) {
        const float g = GET(IN1, dy + c) IF_WEIGHT(*w[c]);
        PUT(OUT0, rstd * (g - sum - (GET(IN0, x + c) - mean) * rstd * product), dx + c);
    }
}

/* Sums of dy h and of dy in column c, over the rows from rows * part / parts on. `sums` is
 * [parts, 2, C]. */
kernel void norm_columns_grad(OPERANDS OUT(sums) long rows, int C, int parts)
{
    const long item = get_global_id(0);
    const int part = (int)(item / C), c = (int)(item % C);
    float dw = 0.0f, db = 0.0f;
    if (part >= parts)
        return;
    for (long r = rows * part / parts; r < rows * (part + 1) / parts; r++) {
        float h = GET(IN0, x + x_offset + r * C + c);
        const float d = GET(IN1, dy + dy_offset + r * C + c);
        IF_MEAN(h -= means[means_offset + r];)
        dw += d * (h * rstds[rstds_offset + r]);
        db += d;
    }
    sums[sums_offset + 2L * part * C + c] = dw;
    sums[sums_offset + (2L * part + 1) * C + c] = db;
}

/* out[i] = sum over p of part[p * stride + first + i], in order. */
kernel void norm_sum_parts(global const float *part, long part_offset, global float *out,
                           long out_offset, int count, int stride, int first, int parts)
{
    const int i = (int)get_global_id(0);
    float sum = 0.0f;
    if (i >= count)
        return;
    for (int p = 0; p < parts; p++)
        sum += part[part_offset + (long)p * stride + first + i];
    out[out_offset + i] = sum;
}
