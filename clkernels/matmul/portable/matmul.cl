/*
 * Matrix products with any strides, on any device: the fallback of the other variants. Build
 * options, with defaults in brackets: A_T, B_T, C_T [f]: storage types of a (and x), b and out
 * (core/storage.clh).
 */
#include "core/activation.clh"
#include "core/storage.clh"
#include "core/product.clh"

/* out[m, n] = activation(sum over k of a[m, k] b[k, n] + bias[n]), for each of get_global_size(1)
 * pairs of matrices. A work-item computes one element. Element (i, j) of an operand is at
 * i * row + j * column. Blocks of 64 terms are added up separately, which keeps rounding errors
 * small. */
kernel void matmul(global const STORED(A_T) * a, long a_offset, global const STORED(B_T) * b,
                   long b_offset, global const float *bias, long bias_offset,
                   global STORED(C_T) * out, long out_offset, int M, int N, int K, int a_row, int a_column, int b_row, int b_column,
                   long a_step, long b_step, int has_bias, int act, float slope)
{
    const long item = get_global_id(0), pair = get_global_id(1);
    if (item >= (long)M * N)
        return;
    const int m = (int)(item / N), n = (int)(item - (long)m * N);
    a += a_offset + pair * a_step + (long)m * a_row;
    b += b_offset + pair * b_step + (long)n * b_column;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 64) {
        const int count = min(64, K - k0);
        float part = 0.0f;
        for (int k = 0; k < count; k++) {
            part += GET(A_T, a) * GET(B_T, b);
            a += a_column;
            b += b_row;
        }
        sum += part;
    }
    if (has_bias)
        sum += bias[bias_offset + n];
    PUT(C_T, clt_activate(sum, act, slope), out + out_offset + pair * M * N + item);
}

/* out[j] = sum over the rows of x[rows, columns], a column a work-item. */
kernel void column_sums(global const STORED(A_T) * x, long x_offset, global float *out, long out_offset,
                        int rows, int columns)
{
    const int column = (int)get_global_id(0);
    if (column >= columns)
        return;
    x += x_offset + column;
    float sum = 0.0f;
    for (int row0 = 0; row0 < rows; row0 += 64) {
        const int count = min(64, rows - row0);
        float part = 0.0f;
        for (int row = 0; row < count; row++) {
            part += GET(A_T, x);
            x += columns;
        }
        sum += part;
    }
    out[out_offset + column] = sum;
}
