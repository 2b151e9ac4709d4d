/*
 * Elements picked by indices, and sums into them, for every device.
 *
 * The array is [outer, size, inner], and indices count on `size`. What is picked, or added, is
 * [outer, picks, inner]. index_select, index_add and index_copy have one index for each of the
 * `picks`, which picks a slice of `inner` elements. gather and scatter_add have one index for each
 * element.
 *
 * An index outside of 0 .. size - 1 picks NaN. In index_add, index_copy and scatter_add it makes
 * place 0 NaN. In index_select and index_add, the array may be a part of a longer one
 * (index/place.clh). Terms are added in the order of the picks, so that results are equal from run to
 * run.
 *
 * Build options: BASE: 1 if sums begin with `base`, which may be the memory of `out`; 0 if they
 * begin with 0. SOURCE: see index_copy.
 */
#include "core/storage.clh"
#include "index/place.clh"

#if BASE
#define BASE_ARRAY , global const STORED(IN2) *base, long base_offset
#define BEGIN(i) GET(IN2, base + base_offset + (i))
#else
#define BASE_ARRAY
#define BEGIN(i) 0.0f
#endif

/* A work-item picks one element. */
kernel void index_select(global const int *index, long index_offset, global const STORED(IN1) *x,
                         long x_offset, global STORED(OUT0) *out, long out_offset, long count, int picks,
                         int size, int inner, int lowest, int whole)
{
    const long i = (long)get_global_id(0);
    if (i >= count)
        return;
    const long slice = i / inner;
    const int at = index[index_offset + slice % picks];
    PUT(OUT0,
        SLICE(at, lowest) < (uint)size
            ? GET(IN1, x + x_offset + (slice / picks * size + SLICE(at, lowest)) * inner + i % inner)
            : PICKED_ELSEWHERE(at, whole),
        out + out_offset + i);
}

/* A work-item computes one slice of the result. Picks of the index `padding` add nothing. If the
 * result is stored in 16 bits, an element is added up in f32 over all picks of the slice, and
 * rounded once. */
kernel void index_add(global const int *index, long index_offset, global const STORED(IN1) *source,
                      long source_offset BASE_ARRAY, global STORED(OUT0) *out, long out_offset,
                      long slices, int picks, int size, int inner, int lowest, int whole,
                      int padding)
{
    const long slice = (long)get_global_id(0);
    if (slice >= slices)
        return;
    const int here = (int)(slice % size);
    out += out_offset + slice * inner;
    index += index_offset;
    source += source_offset + slice / size * picks * inner;
#if EXACT(OUT0)
    for (int c = 0; c < inner; c++)
        out[c] = BEGIN(slice * inner + c);
    for (int p = 0; p < picks; p++) {
        if (place_of(index[p], lowest, size, whole, padding) != here)
            continue;
        for (int c = 0; c < inner; c++)
            out[c] += GOOD(index[p], whole) ? GET(IN1, source + (long)p * inner + c) : NAN;
    }
#else
    int first = 0;
    while (first < picks && place_of(index[first], lowest, size, whole, padding) != here)
        first++;
    for (int c = 0; c < inner; c++) {
        float sum = BEGIN(slice * inner + c);
        for (int p = first; p < picks; p++)
            if (place_of(index[p], lowest, size, whole, padding) == here)
                sum += GOOD(index[p], whole) ? GET(IN1, source + (long)p * inner + c) : NAN;
        PUT(OUT0, sum, out + c);
    }
#endif
}

/* A work-item computes one slice of the result: `base`, or the slice of `source` of its last pick.
 * With SOURCE = 0, picked slices become 0 instead. */
#ifdef SOURCE
kernel void index_copy(global const int *index, long index_offset,
#if SOURCE
                       global const float *source, long source_offset,
#endif
                       global const float *base, long base_offset, global float *out,
                       long out_offset, long slices, int picks, int size, int inner)
{
    const long slice = (long)get_global_id(0);
    if (slice >= slices)
        return;
    const int here = (int)(slice % size);
    int from = -1, bad = 0;
    index += index_offset;
    for (int p = 0; p < picks; p++) {
        bad |= (uint)index[p] >= (uint)size;
        from = index[p] == here ? p : from;
    }
    for (int c = 0; c < inner; c++) {
        float v = base[base_offset + slice * inner + c];
#if SOURCE
        if (from >= 0)
            v = source[source_offset + (slice / size * picks + from) * inner + c];
#else
        if (from >= 0)
            v = 0.0f;
#endif
        out[out_offset + slice * inner + c] = bad && here == 0 ? NAN : v;
    }
}
#endif

/* A work-item picks one element. */
kernel void gather(global const int *index, long index_offset, global const float *x, long x_offset,
                   global float *out, long out_offset, long count, int picks, int size, int inner)
{
    const long i = (long)get_global_id(0);
    if (i >= count)
        return;
    const long outer = i / inner / picks;
    const int at = index[index_offset + i];
    out[out_offset + i] = (uint)at < (uint)size
                              ? x[x_offset + (outer * size + at) * inner + i % inner]
                              : NAN;
}

/* A line is the `size` elements of the array that have the same outer and inner index. A work-item
 * computes `part` neighbouring places of a line, and reads all indices of the line. */
kernel void scatter_add(global const int *index, long index_offset, global const float *source,
                        long source_offset BASE_ARRAY, global float *out, long out_offset,
                        long items, int picks, int size, int inner, int part)
{
    const long item = (long)get_global_id(0);
    const int parts = (size + part - 1) / part;
    if (item >= items)
        return;
    const int first = (int)(item / inner % parts) * part, end = min(first + part, size);
    const long outer = item / inner / parts, from = outer * picks * inner + item % inner,
               to = outer * size * inner + item % inner;
    for (int k = first; k < end; k++)
        out[out_offset + to + (long)k * inner] = BEGIN(to + (long)k * inner);
    for (int p = 0; p < picks; p++) {
        const long i = from + (long)p * inner;
        const int at = index[index_offset + i], good = (uint)at < (uint)size, k = good ? at : 0;
        if (k >= first && k < end)
            out[out_offset + to + (long)k * inner] += good ? source[source_offset + i] : NAN;
    }
}
