/*
 * Rotary position embedding on GPUs. attention/portable/rotary.cl says what it computes, and makes
 * the table of cosines and sines. A work-item turns four neighbouring pairs. `pairs` must be a
 * multiple of 4, and rows must be aligned to float4.
 */

kernel void rotary(global const float *x, long x_offset, global float *y, long y_offset,
                   global const float *table, long table_offset, long items, int T, int width,
                   int turned, int pairs, int halves)
{
    const long item = get_global_id(0);
    if (item >= items)
        return;
    const long row = item / (width / 8);
    const int rest = (int)(item % (width / 8)) * 4, i = rest % pairs, part = rest / pairs;
    const long at = row * width + part * 2 * pairs + (halves ? i : 2 * i);
    const int apart = halves ? pairs : 4;
    global const float4 *by =
        (global const float4 *)(table + table_offset + (row % T * pairs + i) * 2);
    const float4 a = *(global const float4 *)(x + x_offset + at);
    const float4 b = *(global const float4 *)(x + x_offset + at + apart);
    const float4 t = by[0], u = by[1];
    float4 cosine = (float4)(t.x, t.z, u.x, u.z), sine = (float4)(t.y, t.w, u.y, u.w);
    if (part >= turned) {
        cosine = (float4)(1.0f);
        sine = (float4)(0.0f);
    }
    const float4 first = halves ? a : (float4)(a.x, a.z, b.x, b.z);
    const float4 second = halves ? b : (float4)(a.y, a.w, b.y, b.w);
    const float4 p = first * cosine - second * sine, q = first * sine + second * cosine;
    *(global float4 *)(y + y_offset + at) = halves ? p : (float4)(p.x, q.x, p.y, q.y);
    *(global float4 *)(y + y_offset + at + apart) = halves ? q : (float4)(p.z, q.z, p.w, q.w);
}
