/*
 * Conversion between row-major images and the LANES layout; `rest` elements an image, `n` images.
 *
 * kernels plain_to_lanes(x, x_at, y, y_at, rest, n), lanes_to_plain(x, x_at, y, y_at, rest, n)
 *   global size: (ceil(rest / CHUNK), ceil(n / LANES), 1), local (1, 1, 1). Lanes of index >= n are
 *   neither read nor, in the result, defined.
 *   both: elements of 32 or 16 bits, of one type on both sides
 * kernel bytes_to_lanes(x, x_at, y, y_at, rest, n, scale, shift)
 *   the same from uchar, as x * scale + shift
 */
#include "core/batch_blocked/halves.clh"
#include "core/batch_blocked/transpose.clh"

#define CHUNK 64

/* Elements of 16 bits are moved as they are, each in the lower half of a lane. */
typedef ushort4 four_shorts __attribute__((aligned(2)));
#define FOUR_f(p) CLT_FOUR(p)
#define FOUR_h(p) as_float4(convert_uint4(*(global const four_shorts *)(p)))
#define FOUR_w(p) FOUR_h(p)
#define FOUR(p) CLT_STORAGE(FOUR, IN0)(p)
#define PLACE_f(v, p) STORE(v, p)
#define PLACE_h(v, p) (*(global vecs_anywhere *)(p) = TO_USHORTS(AS_UINTS(v)))
#define PLACE_w(v, p) PLACE_h(v, p)
#define PLACE(v, p) CLT_STORAGE(PLACE, OUT0)(v, p)

KERNEL void plain_to_lanes(global const STORED(IN0) *x, long x_at, global STORED(OUT0) *y, long y_at, int rest,
                           int n)
{
    const int block = (int)get_global_id(1);
    const int begin = (int)get_global_id(0) * CHUNK;
    const int end = min(begin + CHUNK, rest);
    const int images = min(n - block * LANES, LANES);
    /* Past the batch, the first image again: read-only memory that exists. */
#define IMAGE(l) ((long)(block * LANES + ((l) < images ? (l) : 0)) * rest)
    global const STORED(IN0) *from = x + x_at;
    global STORED(OUT0) *to = y + y_at + (long)block * rest * LANES;
    int i = begin;
#define GET_IMAGE(l) FOUR(from + IMAGE(l) + i)
#define PUT_LANES(j, v) PLACE(v, to + (i + j) * LANES)
    for (; i + 4 <= end; i += 4)
        CLT_FOUR_COLUMNS(GET_IMAGE, PUT_LANES)
    for (; i < end; i++)
        for (int l = 0; l < LANES; l++)
            to[i * LANES + l] = from[IMAGE(l) + i];
}

KERNEL void lanes_to_plain(global const STORED(IN0) *x, long x_at, global STORED(OUT0) *y, long y_at, int rest,
                           int n)
{
    const int block = (int)get_global_id(1);
    const int begin = (int)get_global_id(0) * CHUNK;
    const int end = min(begin + CHUNK, rest);
    const int images = min(n - block * LANES, LANES);
    global const STORED(IN0) *from = x + x_at + (long)block * rest * LANES;
    global STORED(OUT0) *to = y + y_at + (long)block * LANES * rest;
    int i = begin;
    for (; images == LANES && i + LANES <= end; i += LANES) {
#define GET_LANES(j) FOUR(from + (i + j) * LANES + l)
#define PUT_IMAGE(k, v) PLACE(v, to + (long)(l + k) * rest + i)
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
