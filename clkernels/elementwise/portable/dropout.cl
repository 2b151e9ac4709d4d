/* Dropout (elementwise/dropout.clh) in the plain layout, for every device. A work-item computes 16
 * consecutive elements. */
#include "elementwise/dropout.clh"

kernel void dropout(global const STORED(IN0) *x_base, long x_offset, global STORED(OUT0) *out_base,
                    long out_offset, long count, long sample, float p, float scale, int sub,
                    ulong seed, uint step, long position)
{
    const long at = (long)get_global_id(0) * 16;
    if (at >= count)
        return;
    drop(x_base + x_offset + at, out_base + out_offset + at, (int)min(16L, count - at), 1,
         (ulong)(position * sample + at), p, scale, sub, seed, step);
}
