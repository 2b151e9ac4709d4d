/*
 * Copies `count` floats between the caller's memory and gradients in 16 bits (OUT0: h or w), which
 * are multiplied by the loss scale at status[at]. A gradient is rounded to nearest, ties to even.
 */
#include "core/storage.clh"

#ifdef SCALED
#define SCALE status[at]
#else
#define SCALE 1.0f
#endif

kernel void round_gradient(global const float *from, long from_first, global STORED(OUT0) * to,
                           long to_first, int count, global const float *status, int at)
{
    const int i = (int)get_global_id(0);
    if (i < count)
        PUT(OUT0, from[from_first + i] * SCALE, to + to_first + i);
}

kernel void widen_gradient(global const STORED(OUT0) * from, long from_first, global float *to,
                           long to_first, int count, global const float *status, int at)
{
    const int i = (int)get_global_id(0);
    if (i < count)
        to[to_first + i] = GET(OUT0, from + from_first + i) / SCALE;
}
