/*
 * Elements picked by indices, and sums into them, on CPUs. index/portable/index.cl says what the
 * kernels compute, and how arrays and indices are laid out. Work-groups have one work-item.
 *
 * index_add works in place: `begin` first makes the result equal to `base`, or 0.
 *
 * Build options: VW, lanes of a vector; BASE: whether `begin` and scatter_add have a base; SOURCE
 * as in index/portable/index.cl.
 */
#define LANES VW
#include "core/batch_blocked/halves.clh"
#include "index/place.clh"

/* The vector type in which VW elements of the result are stored. */
#if EXACT(OUT0)
typedef vecf vecout;
typedef vecf_anywhere vecout_anywhere;
#else
typedef vecs vecout;
typedef vecs_anywhere vecout_anywhere;
#endif

/* Stores past the caches, to addresses aligned to whole vectors. The array that is zeroed is larger
 * than the caches, and only few of its elements are added to afterwards. */
#ifdef CLT_BUILTINS
#define STORE_PAST(v, p) __builtin_nontemporal_store(v, (global vecout *)(p))
#define END_STREAM __sync_synchronize();
#else
#define STORE_PAST(v, p) (*(global vecout_anywhere *)(p) = (v))
#define END_STREAM
#endif

/* out = base, or 0. Does nothing if base and out are the same memory, or if `adds`: then out has a
 * sum already. A work-item has `share`
 * elements; the global size is ceil(count / share). */
#if BASE
KERNEL void begin(global const STORED(IN2) *base, long base_offset, global STORED(OUT0) *out,
                  long out_offset, long count, long share)
{
    const long first = (long)get_global_id(0) * share, end = min(first + share, count);
    base += base_offset;
    out += out_offset;
    if ((global const void *)base == (global const void *)out)
        return;
    long i = first;
    for (; i + VW <= end; i += VW)
        STORE_AS(OUT0, LOAD_AS(IN2, base + i), out + i);
    for (; i < end; i++)
        PUT(OUT0, GET(IN2, base + i), out + i);
}
#else
KERNEL void begin(global STORED(OUT0) *out, long out_offset, long count, long share, int adds)
{
    const long first = (long)get_global_id(0) * share, end = min(first + share, count);
    out += out_offset;
    if (adds)
        return;
    long i = first;
    for (; i < end && ((ulong)(out + i) / sizeof *out) % VW; i++)
        out[i] = 0;
    for (; i + VW <= end; i += VW)
        STORE_PAST((vecout)(0), out + i);
    for (; i < end; i++)
        out[i] = 0;
    END_STREAM
}
#endif

/* Picked slices are divided into `pieces` pieces of `piece` elements. A work-item copies `share` of
 * all `units` pieces. */
KERNEL void index_select(global const int *index, long index_offset, global const STORED(IN1) *x,
                         long x_offset, global STORED(OUT0) *out, long out_offset, long units, int picks,
                         int size, int inner, int lowest, int whole, int piece, int pieces,
                         int share)
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
        if (SLICE(at, lowest) < (uint)size) {
            global const STORED(IN1) *row = x + (outer * size + SLICE(at, lowest)) * inner;
            int c = from;
            for (; c + VW <= to; c += VW)
                STORE_AS(OUT0, LOAD_AS(IN1, row + c), y + c);
            for (; c < to; c++)
                PUT(OUT0, GET(IN1, row + c), y + c);
        } else {
            const float fill = PICKED_ELSEWHERE(at, whole);
            int c = from;
            for (; c + VW <= to; c += VW)
                STORE_AS(OUT0, (vecf)(fill), y + c);
            for (; c < to; c++)
                PUT(OUT0, fill, y + c);
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

/*
 * Links the picks of each place in order. The link of pick p is the following pick of the same
 * place, or `picks` after the last one. next[p] is the link itself for the first pick of a place,
 * and its complement for the others, so that index_add recognises first picks.
 *
 * Work-item j links the picks of `rows` places from j * rows on. It reads the picks from the last
 * one on; head[place] is the last pick of the place that it has met.
 */
KERNEL void chain(global const int *index, long index_offset, global int *head, long head_offset,
                  global int *next, long next_offset, int picks, int size, int lowest, int whole,
                  int padding, int rows)
{
    const int first = (int)get_global_id(0) * rows, end = min(first + rows, size);
    index += index_offset;
    head += head_offset;
    next += next_offset;
    for (int p = 0; p < picks; p++) {
        const int here = place_of(index[p], lowest, size, whole, padding);
        if (here >= first && here < end)
            head[here] = picks;
    }
    for (int p = picks - 1; p >= 0; p--) {
        const int here = place_of(index[p], lowest, size, whole, padding);
        if (here < first || here >= end)
            continue;
        const int after = head[here];
        next[p] = after;
        if (after < picks)
            next[after] = ~next[after];
        head[here] = p;
    }
}

#if EXACT(OUT0)
/* Work-item (i, j, k) adds to piece i of `rows` slices from j * rows on, for `share` outer indices
 * from k * share on. It reads all indices, and adds the picks of its slices in order. */
KERNEL void index_add(global const int *index, long index_offset, global const STORED(IN1) *source,
                      long source_offset, global float *out, long out_offset, int outer, int picks,
                      int size, int inner, int lowest, int whole, int padding, int piece, int rows,
                      int share)
{
    const int from = (int)get_global_id(0) * piece, to = min(from + piece, inner);
    const int first = (int)get_global_id(1) * rows, end = min(first + rows, size);
    const int begin = (int)get_global_id(2) * share, last = min(begin + share, outer);
    index += index_offset;
    for (int o = begin; o < last; o++) {
        global const STORED(IN1) *x = source + source_offset + (long)o * picks * inner;
        global float *sums = out + out_offset + (long)o * size * inner;
        for (int p = 0; p < picks; p++) {
            const int row = place_of(index[p], lowest, size, whole, padding);
            if (row < first || row >= end)
                continue;
            global const STORED(IN1) *term = x + (long)p * inner;
            global float *sum = sums + (long)row * inner;
            int c = from;
            if (!GOOD(index[p], whole)) {
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
#else
/* Elements of a slice that are added up at a time, in registers. */
#define BLOCK (8 * VW)

/* Adds the terms of all picks of a chain to out[0 .. count), in f32. p is the first pick and
 * `after` the second. */
INLINE void add_chain(global const int *next, int p, int after, global const int *index,
                      global const STORED(IN1) *source, global STORED(OUT0) *out, int picks,
                      int whole, int inner, int count)
{
    vecf sums[BLOCK / VW];
    float rest[VW];
    const int vectors = count / VW, left = count % VW;
    for (int v = 0; v < vectors; v++)
        sums[v] = LOAD_AS(OUT0, out + v * VW);
    for (int l = 0; l < left; l++)
        rest[l] = GET(OUT0, out + vectors * VW + l);
    for (;;) {
        const int good = GOOD(index[p], whole);
        global const STORED(IN1) *term = source + (long)p * inner;
        for (int v = 0; v < vectors; v++)
            sums[v] += good ? LOAD_AS(IN1, term + v * VW) : (vecf)(NAN);
        for (int l = 0; l < left; l++)
            rest[l] += good ? GET(IN1, term + vectors * VW + l) : NAN;
        if (after >= picks)
            break;
        p = after;
        after = ~next[p];
    }
    for (int v = 0; v < vectors; v++)
        STORE_AS(OUT0, sums[v], out + v * VW);
    for (int l = 0; l < left; l++)
        PUT(OUT0, rest[l], out + vectors * VW + l);
}

/* The same for results in 16 bits. At the first pick of a slice, the terms of all its picks are
 * added in f32 in the same order (add_chain), so that a sum is rounded once. */
KERNEL void index_add(global const int *next, long next_offset, global const int *index,
                      long index_offset, global const STORED(IN1) *source, long source_offset,
                      global STORED(OUT0) *out, long out_offset, int outer, int picks, int size,
                      int inner, int lowest, int whole, int padding, int piece, int rows, int share)
{
    const int from = (int)get_global_id(0) * piece, to = min(from + piece, inner);
    const int first = (int)get_global_id(1) * rows, end = min(first + rows, size);
    const int begin = (int)get_global_id(2) * share, last = min(begin + share, outer);
    next += next_offset;
    index += index_offset;
    for (int o = begin; o < last; o++) {
        global const STORED(IN1) *x = source + source_offset + (long)o * picks * inner;
        global STORED(OUT0) *sums = out + out_offset + (long)o * size * inner;
        for (int p = 0; p < picks; p++) {
            const int here = place_of(index[p], lowest, size, whole, padding);
            if (here < first || here >= end || next[p] < 0)
                continue;
            global STORED(OUT0) *sum = sums + (long)here * inner;
            int c = from;
            for (; c + BLOCK <= to; c += BLOCK)
                add_chain(next, p, next[p], index, x + c, sum + c, picks, whole, inner, BLOCK);
            if (c < to)
                add_chain(next, p, next[p], index, x + c, sum + c, picks, whole, inner, to - c);
        }
    }
}
#endif

/* Work-item (i, j) copies piece i of all slices of `base`, unless base and out are the same memory, and
 * then piece i of all picked slices, for `share` outer indices from j * share on. With SOURCE = 0, the
 * picked slices become 0 instead. */
#ifdef SOURCE
KERNEL void index_copy(global const int *index, long index_offset,
#if SOURCE
                       global const float *source, long source_offset,
#endif
                       global const float *base, long base_offset, global float *out,
                       long out_offset, int outer, int picks, int size, int inner, int piece,
                       int share)
{
    const int from = (int)get_global_id(0) * piece, to = min(from + piece, inner);
    const int begin = (int)get_global_id(1) * share, last = min(begin + share, outer);
    int bad = 0;
    index += index_offset;
    for (int o = begin; o < last; o++) {
        global float *slices = out + out_offset + (long)o * size * inner;
        global const float *old = base + base_offset + (long)o * size * inner;
        for (int s = 0; old != slices && s < size; s++) {
            int c = from;
            for (; c + VW <= to; c += VW)
                STORE(LOAD(old + (long)s * inner + c), slices + (long)s * inner + c);
            for (; c < to; c++)
                slices[(long)s * inner + c] = old[(long)s * inner + c];
        }
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

/* A work-item picks `share` of `count` elements. */
KERNEL void gather(global const int *index, long index_offset, global const float *x, long x_offset,
                   global float *out, long out_offset, long count, int picks, int size, int inner,
                   int share)
{
    long at = (long)get_global_id(0) * share;
    const long end = min(at + share, count);
    index += index_offset;
    x += x_offset;
    out += out_offset;
    /* Elements are picked in runs: of a line if inner is 1, else of a slice. */
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

/* Work-item (i, j, k) computes `part` places from j * part on of `piece` lines from i * piece on,
 * for `share` outer indices from k * share on. It first sets these places to `base`, or 0, itself:
 * so they stay in the caches until terms are added to them. */
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
