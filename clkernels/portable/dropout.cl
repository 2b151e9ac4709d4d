/*
 * out = x * scale where the element's random number is at least p, else 0. Elements are numbered
 * over the global batch; see clt_random4. A work-item takes 16 successive numbers of one array or
 * image. Option: STREAM.
 */
#include "philox.clh"

/* `count` elements from number `first` on, `stride` apart in memory. */
static inline void drop(global const float *x, global float *out, int count, int stride, ulong first,
                 float p, float scale, int sub, ulong seed, uint step)
{
    uint4 bits = 0;
    for (int i = 0; i < count; i++) {
        const ulong number = first + (ulong)i;
        if (i == 0 || (number & 3) == 0)
            bits = clt_random4(seed, STREAM, (uint)sub, step, number >> 2);
        const uint k = (uint)(number & 3);
        const uint own = k < 2 ? (k == 0 ? bits.x : bits.y) : (k == 2 ? bits.z : bits.w);
        out[i * stride] = clt_unit(own) >= p ? x[i * stride] * scale : 0.0f;
    }
}

kernel void dropout(global const float *x_base, long x_offset, global float *out_base,
                    long out_offset, long count, long sample, float p, float scale, int sub,
                    ulong seed, uint step, long position)
{
    const long at = (long)get_global_id(0) * 16;
    if (at >= count)
        return;
    drop(x_base + x_offset + at, out_base + out_offset + at, (int)min(16L, count - at), 1,
         (ulong)(position * sample + at), p, scale, sub, seed, step);
}

kernel void dropout_lanes(global const float *x_base, long x_offset, global float *out_base,
                          long out_offset, int lanes, long sample, float p, float scale, int sub,
                          ulong seed, uint step, long position)
{
    const int lane = (int)get_global_id(0);
    const long at = (long)get_global_id(1) * 16, group = (long)get_global_id(2);
    const long place = (group * sample + at) * lanes + lane;
    drop(x_base + x_offset + place, out_base + out_offset + place, (int)min(16L, sample - at), lanes,
         (ulong)((position + group * lanes + lane) * sample + at), p, scale, sub, seed, step);
}
