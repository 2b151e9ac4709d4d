/*
 * Conversion between images in plain order [n, rest] and the batch-blocked layout
 * [blocks, rest, LANES] with blocks = ceil(n / LANES), on CPUs. All work-groups have one work-item.
 * Work-item (i, b) converts CHUNK elements of the images of block b, in blocks of LANES x 4 that
 * are transposed in registers. Lanes of images from n on are not read; in a batch-blocked result
 * they hold any bits.
 *
 * plain_to_batch_blocked(x, y, rest, n), batch_blocked_to_plain(x, y, rest, n)
 *   Elements have 32 or 16 bits, with the same type on both sides.
 * bytes_to_batch_blocked(x, y, rest, n, scale, shift)
 *   The same for x of bytes, converted to x * scale + shift.
 *
 * Global size: (ceil(rest / CHUNK), ceil(n / LANES), 1). Build option: LANES.
 */
#include "core/batch_blocked/halves.clh"
#include "core/batch_blocked/transpose.clh"

#define CHUNK 64

/* 16-bit elements are moved without conversion, each in the lower half of a 32-bit lane. */
typedef ushort4 four_shorts __attribute__((aligned(2)));
#define FOUR_f(p) CLT_FOUR(p)
#define FOUR_h(p) as_float4(convert_uint4(*(global const four_shorts *)(p)))
#define FOUR_w(p) FOUR_h(p)
#define FOUR(p) CLT_STORAGE(FOUR, IN0)(p)
#define PLACE_f(v, p) STORE(v, p)
#define PLACE_h(v, p) (*(global vecs_anywhere *)(p) = TO_USHORTS(AS_UINTS(v)))
#define PLACE_w(v, p) PLACE_h(v, p)
#define PLACE(v, p) CLT_STORAGE(PLACE, OUT0)(v, p)

KERNEL void plain_to_batch_blocked(global const STORED(IN0) *x, long x_at, global STORED(OUT0) *y, long y_at, int rest,
                           int n)
{
    const int block = (int)get_global_id(1);
    const int begin = (int)get_global_id(0) * CHUNK;
    const int end = min(begin + CHUNK, rest);
    const int images = min(n - block * LANES, LANES);
    /* Beyond the batch, the first image of the block is read again, because that memory exists. */
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

KERNEL void batch_blocked_to_plain(global const STORED(IN0) *x, long x_at, global STORED(OUT0) *y, long y_at, int rest,
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

KERNEL void bytes_to_batch_blocked(global const uchar *x, long x_at, global float *y, long y_at, int rest,
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
