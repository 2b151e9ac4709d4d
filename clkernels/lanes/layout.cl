/*
 * Conversion between row-major images and the LANES layout; `rest` elements an image, `n` images.
 *
 * kernels plain_to_lanes(x, x_at, y, y_at, rest, n), lanes_to_plain(x, x_at, y, y_at, rest, n)
 *   global size: (ceil(rest / CHUNK), ceil(n / LANES), 1), local (1, 1, 1). Lanes of index >= n are
 *   neither read nor, in the result, defined.
 * kernel bytes_to_lanes(x, x_at, y, y_at, rest, n, scale, shift)
 *   the same from uchar, as x * scale + shift
 */
#include "transpose.clh"

#define CHUNK 64

KERNEL void plain_to_lanes(global const float *x, long x_at, global float *y, long y_at, int rest,
                           int n)
{
    const int block = (int)get_global_id(1);
    const int begin = (int)get_global_id(0) * CHUNK;
    const int end = min(begin + CHUNK, rest);
    const int images = min(n - block * LANES, LANES);
    /* Past the batch, the first image again: read-only memory that exists. */
#define IMAGE(l) ((long)(block * LANES + ((l) < images ? (l) : 0)) * rest)
    global const float *from = x + x_at;
    global float *to = y + y_at + (long)block * rest * LANES;
    int i = begin;
#define GET_IMAGE(l) CLT_FOUR(from + IMAGE(l) + i)
#define PUT_LANES(j, v) STORE(v, to + (i + j) * LANES)
    for (; i + 4 <= end; i += 4)
        CLT_FOUR_COLUMNS(GET_IMAGE, PUT_LANES)
    for (; i < end; i++)
        for (int l = 0; l < LANES; l++)
            to[i * LANES + l] = from[IMAGE(l) + i];
}

KERNEL void lanes_to_plain(global const float *x, long x_at, global float *y, long y_at, int rest,
                           int n)
{
    const int block = (int)get_global_id(1);
    const int begin = (int)get_global_id(0) * CHUNK;
    const int end = min(begin + CHUNK, rest);
    const int images = min(n - block * LANES, LANES);
    global const float *from = x + x_at + (long)block * rest * LANES;
    global float *to = y + y_at + (long)block * LANES * rest;
    int i = begin;
    for (; images == LANES && i + LANES <= end; i += LANES) {
#define GET_LANES(j) CLT_FOUR(from + (i + j) * LANES + l)
#define PUT_IMAGE(k, v) STORE(v, to + (long)(l + k) * rest + i)
        for (int l = 0; l < LANES; l += 4)
            CLT_FOUR_COLUMNS(GET_LANES, PUT_IMAGE)
    }
    for (int l = 0; l < images; l++)
        for (int k = i; k < end; k++)
            to[(long)l * rest + k] = from[k * LANES + l];
}

KERNEL void bytes_to_lanes(global const uchar *x, long x_at, global float *y, long y_at, int rest,
                           int n, float scale, float shift)
{
    const int block = (int)get_global_id(1);
    const int begin = (int)get_global_id(0) * CHUNK;
    const int end = min(begin + CHUNK, rest);
    const int images = min(n - block * LANES, LANES);
    uchar part[CHUNK * LANES];
    for (int l = 0; l < LANES; l++) {
        global const uchar *from = x + x_at + (long)(block * LANES + (l < images ? l : 0)) * rest;
        for (int i = begin; i < end; i++)
            part[(i - begin) * LANES + l] = from[i];
    }
    global float *to = y + y_at + ((long)block * rest + begin) * LANES;
    for (int i = 0; i < (end - begin) * LANES; i++)
        to[i] = fma((float)part[i], scale, shift);
}
