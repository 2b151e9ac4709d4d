/*
 * Elements picked by indices, and sums into them, on GPUs. index/portable/index.cl says what the
 * kernels compute, and how arrays and indices are laid out. A work-item has V neighbouring
 * elements, the next work-item the next V.
 *
 * Kernels that add or copy work in place: `begin` first makes the result equal to `base`, or 0.
 *
 * Build options: V: 4 if slices and samples are multiples of 4, else 1; BASE: whether `begin` has a
 * base; SOURCE as in index/portable/index.cl.
 */
#include "core/gpu/halves.clh"
#include "index/place.clh"
#define GROUP 256
#define KERNEL kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))

#if V == 4
#define VEC float4
#define INTS int4
#else
#define VEC float
#define INTS int
#endif
#if V == 4
#define READ_AS(kind, p) GET4(kind, p)
#define WRITE_AS(kind, v, p) PUT4(kind, v, p)
#else
#define READ_AS(kind, p) GET(kind, p)
#define WRITE_AS(kind, v, p) PUT(kind, v, p)
#endif
#define AT(p) *(global VEC *)(p)
#define READ(p) *(global const VEC *)(p)

/* out = base, or 0. Does nothing if base and out are the same memory. */
#if BASE
#define BASE_ARRAY global const STORED(IN2) *base, long base_offset,
#else
#define BASE_ARRAY
#endif
KERNEL void begin(BASE_ARRAY global STORED(OUT0) *out, long out_offset, int count)
{
    const int at = (int)get_global_id(0) * V;
    if (at >= count)
        return;
#if BASE
    if ((global const void *)(base + base_offset) != (global const void *)(out + out_offset))
        WRITE_AS(OUT0, READ_AS(IN2, base + base_offset + at), out + out_offset + at);
#else
    WRITE_AS(OUT0, (VEC)(0.0f), out + out_offset + at);
#endif
}

KERNEL void index_select(global const int *index, long index_offset, global const STORED(IN1) *x,
                         long x_offset, global STORED(OUT0) *out, long out_offset, int count, int picks,
                         int size, int inner, int lowest, int whole)
{
    const int i = (int)get_global_id(0) * V;
    if (i >= count)
        return;
    const int slice = i / inner, outer = slice / picks;
    const int at = index[index_offset + slice - outer * picks];
    VEC v = (VEC)(PICKED_ELSEWHERE(at, whole));
    if (SLICE(at, lowest) < (uint)size)
        v = READ_AS(IN1, x + x_offset + (outer * size + (int)SLICE(at, lowest)) * inner + i - slice * inner);
    WRITE_AS(OUT0, v, out + out_offset + i);
}

/*
 * Links the picks of each place in order. The link of pick p is the following pick of the same
 * place, or `picks` after the last one. next[p] is the link itself for the first pick of a place,
 * and its complement for the others, so that index_add recognises first picks. Picks of padding are
 * never first.
 */
KERNEL void chain(global const int *index, long index_offset, global int *next, long next_offset,
                  int picks, int size, int lowest, int whole, int padding)
{
    const int p = (int)get_global_id(0);
    if (p >= picks)
        return;
    index += index_offset;
    const int here = place_of(index[p], lowest, size, whole, padding);
    int first = here >= 0, after = picks;
    for (int q = 0; q < p; q++)
        if (place_of(index[q], lowest, size, whole, padding) == here) {
            first = 0;
            break;
        }
    for (int q = p + 1; q < picks; q++)
        if (place_of(index[q], lowest, size, whole, padding) == here) {
            after = q;
            break;
        }
    next[next_offset + p] = first ? after : ~after;
}

/* The work-items of the first pick of a place follow the links and add all its picks to the place.
 * Those of other picks return. */
KERNEL void index_add(global const int *next, long next_offset, global const int *index,
                      long index_offset, global const STORED(IN1) *source, long source_offset,
                      global STORED(OUT0) *out, long out_offset, int count, int picks, int size,
                      int inner, int lowest, int whole)
{
    const int i = (int)get_global_id(0) * V;
    if (i >= count)
        return;
    const int slice = i / inner, outer = slice / picks, c = i - slice * inner;
    int p = slice - outer * picks, after = next[next_offset + p];
    if (after < 0)
        return;
    index += index_offset;
    source += source_offset + outer * picks * inner + c;
    const int here = GOOD(index[p], whole) ? (int)SLICE(index[p], lowest) : 0;
    global STORED(OUT0) *sum = out + out_offset + (outer * size + here) * inner + c;
    VEC v = READ_AS(OUT0, sum);
    for (;;) {
        v += GOOD(index[p], whole) ? READ_AS(IN1, source + p * inner) : (VEC)(NAN);
        if (after >= picks)
            break;
        p = after;
        after = ~next[next_offset + p];
    }
    WRITE_AS(OUT0, v, sum);
}

/* The work-items of the last pick of a slice write it: from `source`, or 0 with SOURCE = 0. If an
 * index is out of range, slice 0 becomes NaN; the work-items of the first such pick write it. */
#ifdef SOURCE
KERNEL void index_copy(global const int *index, long index_offset,
#if SOURCE
                       global const float *source, long source_offset,
#endif
                       global float *out, long out_offset, int count, int picks, int size,
                       int inner)
{
    const int i = (int)get_global_id(0) * V;
    if (i >= count)
        return;
    const int slice = i / inner, outer = slice / picks, c = i - slice * inner;
    const int p = slice - outer * picks;
    index += index_offset;
    const int at = index[p], good = (uint)at < (uint)size;
    int other = 0;
    for (int q = 0; q < picks; q++) {
        const int there = index[q], bad = (uint)there >= (uint)size;
        if (good)
            other |= (q > p && there == at) || (bad && at == 0);
        else
            other |= q < p && bad;
    }
    if (other)
        return;
    VEC v = (VEC)(0.0f);
#if SOURCE
    v = READ(source + source_offset + i);
#endif
    AT(out + out_offset + (outer * size + (good ? at : 0)) * inner + c) = good ? v : (VEC)(NAN);
}
#endif

KERNEL void gather(global const int *index, long index_offset, global const float *x, long x_offset,
                   global float *out, long out_offset, int count, int picks, int size, int inner)
{
    const int i = (int)get_global_id(0) * V;
    if (i >= count)
        return;
    const INTS at = *(global const INTS *)(index + index_offset + i);
    x += x_offset;
#define ONE(at, k)                                                                                 \
    ((uint)(at) < (uint)size                                                                       \
         ? x[((i + k) / inner / picks * size + (at)) * inner + (i + k) % inner]                    \
         : NAN)
#if V == 4
    AT(out + out_offset + i) = (float4)(ONE(at.x, 0), ONE(at.y, 1), ONE(at.z, 2), ONE(at.w, 3));
#else
    out[out_offset + i] = ONE(at, 0);
#endif
}

/* A work-item adds to `part` places of a line, the next work-item to those of the next line. */
KERNEL void scatter_add(global const int *index, long index_offset, global const float *source,
                        long source_offset, global float *out, long out_offset, int items,
                        int picks, int size, int inner, int part)
{
    const int item = (int)get_global_id(0), parts = (size + part - 1) / part;
    if (item >= items)
        return;
    const int first = item / inner % parts * part, end = min(first + part, size);
    const int outer = item / inner / parts, line = item % inner;
    index += index_offset + outer * picks * inner + line;
    source += source_offset + outer * picks * inner + line;
    out += out_offset + outer * size * inner + line;
    for (int p = 0; p < picks; p++) {
        const int at = index[p * inner], good = (uint)at < (uint)size, k = good ? at : 0;
        if (k >= first && k < end)
            out[k * inner] += good ? source[p * inner] : NAN;
    }
}
