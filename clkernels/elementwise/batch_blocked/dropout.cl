/* Dropout (elementwise/dropout.clh) in the batch-blocked layout. Work-item (lane, chunk, block)
 * computes 16 consecutive elements of one sample. */
#include "elementwise/dropout.clh"

kernel void dropout_batch_blocked(global const STORED(IN0) *x_base, long x_offset, global STORED(OUT0) *out_base,
                          long out_offset, int lanes, long sample, float p, float scale, int sub,
                          ulong seed, uint step, long position)
{
    const int lane = (int)get_global_id(0);
    const long at = (long)get_global_id(1) * 16, group = (long)get_global_id(2);
    const long place = (group * sample + at) * lanes + lane;
    drop(x_base + x_offset + place, out_base + out_offset + place, (int)min(16L, sample - at), lanes,
         (ulong)((position + group * lanes + lane) * sample + at), p, scale, sub, seed, step);
}
