/*
 * Dropout on GPUs, with the random numbers of elementwise/dropout.clh. A work-item computes the
 * four elements whose numbers belong to one Philox block, the next work-item the next four.
 * Build options: STREAM; V: 4 if these elements are an aligned vector of four, else 1; PART: 1 if
 * the array is a part of a divided tensor. Then a work-item has four neighbouring elements.
 */
#include "core/gpu/halves.clh"
#include "elementwise/dropout.clh"
#define GROUP 256

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
dropout(global const STORED(IN0) *x, long x_offset, global STORED(OUT0) *out, long out_offset, long count,
        long sample, float p, float scale, int sub, ulong seed, uint step, long position, long run,
        long row, long lowest)
{
#if PART
    const long from = (long)get_global_id(0) * 4, end = min(from + 4, count);
    for (long i = from, size; i < end; i += size) {
        size = min(end - i, run - i % run);
        drop(x + x_offset + i, out + out_offset + i, (int)size, 1,
             clt_drop_number(i, sample, position, run, row, lowest), p, scale, sub, seed, step);
    }
#else
    const ulong first = (ulong)(position * sample);
    const ulong block = (first >> 2) + get_global_id(0);
    const long at = (long)(block * 4 - first);
    if (at >= count)
        return;
    const uint4 bits = clt_random4(seed, STREAM, (uint)sub, step, block);
    x += x_offset + at;
    out += out_offset + at;
#if V == 4
    if (at + 4 <= count) {
        const float4 unit = (float4)(clt_unit(bits.x), clt_unit(bits.y), clt_unit(bits.z),
                                     clt_unit(bits.w));
        const float4 v = GET4(IN0, x);
        PUT4(OUT0, unit >= p ? v * scale : (float4)(0.0f), out);
        return;
    }
#endif
    const uint own[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < (V == 4 ? 3 : 4); i++)
        if (at + i >= 0 && at + i < count)
            PUT(OUT0, clt_unit(own[i]) >= p ? GET(IN0, x + i) * scale : 0.0f, out + i);
#endif
}
