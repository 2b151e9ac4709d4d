/* Dropout (elementwise/dropout.clh) in the plain layout, for every device. A work-item computes 16
 * consecutive elements. */
#include "elementwise/dropout.clh"

kernel void dropout(global const STORED(IN0) *x_base, long x_offset, global STORED(OUT0) *out_base,
                    long out_offset, long count, long sample, float p, float scale, int sub,
                    ulong seed, uint step, long position, long run, long row, long lowest)
{
    const long first = (long)get_global_id(0) * 16, end = min(first + 16, count);
    for (long at = first, size; at < end; at += size) {
        size = min(end - at, run - at % run);
        drop(x_base + x_offset + at, out_base + out_offset + at, (int)size, 1,
             clt_drop_number(at, sample, position, run, row, lowest), p, scale, sub, seed, step);
    }
}
