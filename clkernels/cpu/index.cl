/*
 * Elements picked by indices, and sums into them, on CPUs: work-group size 1. Arrays and indices are
 * as portable/index.cl says. Build options: VW, lanes of a vector; BASE, of `begin` and
 * scatter_add.
 */
#define LANES VW
#include "lanes/halves.clh"

/* Past the caches, for addresses at whole vectors: what is zeroed is larger than they are, and only
 * few of it is added to. */
#ifdef CLT_BUILTINS
#define STORE_PAST(v, p) __builtin_nontemporal_store(v, (global vecf *)(p))
#define END_STREAM __sync_synchronize();
#else
#define STORE_PAST(v, p) STORE(v, p)
#define END_STREAM
#endif

/* out = base, or 0; nothing where that is the same memory. Global size: ceil(count / share). */
#if BASE
KERNEL void begin(global const float *base, long base_offset, global float *out, long out_offset,
                  long count, long share)
{
    const long first = (long)get_global_id(0) * share, end = min(first + share, count);
    base += base_offset;
    out += out_offset;
    if (base == out)
        return;
    long i = first;
    for (; i + VW <= end; i += VW)
        STORE(LOAD(base + i), out + i);
    for (; i < end; i++)
        out[i] = base[i];
}
#else
KERNEL void begin(global float *out, long out_offset, long count, long share)
{
    const long first = (long)get_global_id(0) * share, end = min(first + share, count);
    out += out_offset;
    long i = first;
    for (; i < end && ((ulong)(out + i) / sizeof(float)) % VW; i++)
        out[i] = 0;
    for (; i + VW <= end; i += VW)
        STORE_PAST((vecf)0.0f, out + i);
    for (; i < end; i++)
        out[i] = 0;
    END_STREAM
}
#endif

/* A unit is one of the `pieces` of a slice that is picked, `piece` floats; a work-item has `share`
 * of them. */
KERNEL void index_select(global const int *index, long index_offset, global const float *x,
                         long x_offset, global STORED(OUT0) *out, long out_offset, long units, int picks,
                         int size, int inner, int piece, int pieces, int share)
{
    const long first = (long)get_global_id(0) * share, end = min(first + share, units);
    index += index_offset;
    x += x_offset;
    out += out_offset;
    if (first >= end)
        return;
    long slice = first / pieces, outer = slice / picks;
    int part = (int)(first - slice * pieces), pick = (int)(slice - outer * picks);
    for (long u = first; u < end; u++) {
        const int at = index[pick], from = part * piece, to = min(from + piece, inner);
        global STORED(OUT0) *y = out + slice * inner;
        if ((uint)at < (uint)size) {
            global const float *row = x + (outer * size + at) * inner;
            int c = from;
            for (; c + VW <= to; c += VW)
                STORE_AS(OUT0, LOAD(row + c), y + c);
            for (; c < to; c++)
                PUT(OUT0, row[c], y + c);
        } else {
            for (int c = from; c < to; c++)
                PUT(OUT0, NAN, y + c);
        }
        if (++part < pieces)
            continue;
        part = 0;
        slice++;
        if (++pick == picks) {
            pick = 0;
            outer++;
        }
    }
}

/* Work-item (i, j, k): piece i of the slices j * rows .. of `share` outer ones from k * share on. */
KERNEL void index_add(global const int *index, long index_offset, global const STORED(IN1) *source,
                      long source_offset, global float *out, long out_offset, int outer, int picks,
                      int size, int inner, int padding, int piece, int rows, int share)
{
    const int from = (int)get_global_id(0) * piece, to = min(from + piece, inner);
    const int first = (int)get_global_id(1) * rows, end = min(first + rows, size);
    const int begin = (int)get_global_id(2) * share, last = min(begin + share, outer);
    index += index_offset;
    for (int o = begin; o < last; o++) {
        global const STORED(IN1) *x = source + source_offset + (long)o * picks * inner;
        global float *sums = out + out_offset + (long)o * size * inner;
        for (int p = 0; p < picks; p++) {
            const int at = index[p], good = (uint)at < (uint)size, row = good ? at : 0;
            if (row < first || row >= end || (good && at == padding))
                continue;
            global const STORED(IN1) *term = x + (long)p * inner;
            global float *sum = sums + (long)row * inner;
            int c = from;
            if (!good) {
                for (; c < to; c++)
                    sum[c] = NAN;
                continue;
            }
            for (; c + VW <= to; c += VW)
                STORE(LOAD(sum + c) + LOAD_AS(IN1, term + c), sum + c);
            for (; c < to; c++)
                sum[c] += GET(IN1, term + c);
        }
    }
}

/* Work-item (i, j): piece i of the slices of `share` outer places from j * share on. Without SOURCE
 * they become 0. */
#ifdef SOURCE
KERNEL void index_copy(global const int *index, long index_offset,
#if SOURCE
                       global const float *source, long source_offset,
#endif
                       global float *out, long out_offset, int outer, int picks, int size,
                       int inner, int piece, int share)
{
    const int from = (int)get_global_id(0) * piece, to = min(from + piece, inner);
    const int begin = (int)get_global_id(1) * share, last = min(begin + share, outer);
    int bad = 0;
    index += index_offset;
    for (int o = begin; o < last; o++) {
        global float *slices = out + out_offset + (long)o * size * inner;
        for (int p = 0; p < picks; p++) {
            const int at = index[p];
            if ((uint)at >= (uint)size) {
                bad = 1;
                continue;
            }
            global float *y = slices + (long)at * inner;
            int c = from;
#if SOURCE
            global const float *x = source + source_offset + ((long)o * picks + p) * inner;
            for (; c + VW <= to; c += VW)
                STORE(LOAD(x + c), y + c);
            for (; c < to; c++)
                y[c] = x[c];
#else
            for (; c + VW <= to; c += VW)
                STORE((vecf)0.0f, y + c);
            for (; c < to; c++)
                y[c] = 0;
#endif
        }
        if (bad)
            for (int c = from; c < to; c++)
                slices[c] = NAN;
    }
}
#endif

/* A work-item has `share` of `count` elements. */
KERNEL void gather(global const int *index, long index_offset, global const float *x, long x_offset,
                   global float *out, long out_offset, long count, int picks, int size, int inner,
                   int share)
{
    long at = (long)get_global_id(0) * share;
    const long end = min(at + share, count);
    index += index_offset;
    x += x_offset;
    out += out_offset;
    /* What lies side by side in one line, or one slice. */
    const int run = inner == 1 ? picks : inner;
    while (at < end) {
        const long line = at / run;
        const int from = (int)(at - line * run), to = (int)min((long)run, from + end - at);
        global const float *lines = x + (inner == 1 ? line : line / picks) * size * inner;
        global const int *numbers = index + line * run;
        global float *y = out + line * run;
        if (inner == 1)
            for (int i = from; i < to; i++)
                y[i] = (uint)numbers[i] < (uint)size ? lines[numbers[i]] : NAN;
        else
            for (int i = from; i < to; i++)
                y[i] = (uint)numbers[i] < (uint)size ? lines[(long)numbers[i] * inner + i] : NAN;
        at += to - from;
    }
}

/* Work-item (i, j, k): lines i * piece .. of places j * part .. of `share` outer ones from k * share
 * on, which it also begins with `base`, or 0: they stay in the caches until they are added to. */
KERNEL void scatter_add(global const int *index, long index_offset, global const float *source,
                        long source_offset,
#if BASE
                        global const float *base, long base_offset,
#endif
                        global float *out, long out_offset, int outer, int picks, int size,
                        int inner, int piece, int part, int share)
{
    const int from = (int)get_global_id(0) * piece, to = min(from + piece, inner);
    const int first = (int)get_global_id(1) * part, end = min(first + part, size);
    const int begin = (int)get_global_id(2) * share, last = min(begin + share, outer);
    index += index_offset;
    source += source_offset;
    out += out_offset;
    for (int o = begin; o < last; o++) {
        global float *sums = out + (long)o * size * inner;
#if BASE
        global const float *old = base + base_offset + (long)o * size * inner;
#define OLD(i) old[i]
        if (old != sums)
#else
#define OLD(i) 0.0f
#endif
            if (inner == 1)
                for (int k = first; k < end; k++)
                    sums[k] = OLD(k);
            else
                for (int k = first; k < end; k++)
                    for (int i = from; i < to; i++)
                        sums[(long)k * inner + i] = OLD((long)k * inner + i);
        const long rows = (long)o * picks * inner;
        if (inner == 1)
            for (int p = 0; p < picks; p++) {
                const int at = index[rows + p], good = (uint)at < (uint)size, k = good ? at : 0;
                if (k >= first && k < end)
                    sums[k] += good ? source[rows + p] : NAN;
            }
        else
            for (int p = 0; p < picks; p++) {
                const long row = rows + (long)p * inner;
                for (int i = from; i < to; i++) {
                    const int at = index[row + i], good = (uint)at < (uint)size, k = good ? at : 0;
                    if (k >= first && k < end)
                        sums[(long)k * inner + i] += good ? source[row + i] : NAN;
                }
            }
    }
}
