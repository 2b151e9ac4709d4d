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
    for (; i + LANES <= end; i += LANES) {
        vecf a[LANES], b[LANES];
#define GET_IMAGE(l, r, s) a[l] = LOAD(from + IMAGE(l) + i);
        FOR_A(LANES, GET_IMAGE, 0, 0)
        CLT_TRANSPOSE(a, b)
#define PUT_LANES(j, r, s) STORE(a[j], to + (i + j) * LANES);
        FOR_A(LANES, PUT_LANES, 0, 0)
    }
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
        vecf a[LANES], b[LANES];
#define GET_LANES(j, r, s) a[j] = LOAD(from + (i + j) * LANES);
        FOR_A(LANES, GET_LANES, 0, 0)
        CLT_TRANSPOSE(a, b)
#define PUT_IMAGE(l, r, s) STORE(a[l], to + (long)(l)*rest + i);
        FOR_A(LANES, PUT_IMAGE, 0, 0)
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
