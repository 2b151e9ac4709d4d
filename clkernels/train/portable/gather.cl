/*
 * Gathers a batch from samples in device memory: out[s] = from[numbers[s]], converted to the same
 * bits as on the host (runtime/data/loader/batch.c). Work-item (e, s, c) converts element e of
 * channel c of sample s. Samples [channels, per_channel] lie one after the other; data without
 * normalisation has one channel. Build option: T, the element type of `from`.
 */

/* The product and the sum are rounded separately, as on the host. */
#pragma OPENCL FP_CONTRACT OFF

#define PARAMETERS(from_type, to_type)                                                             \
    global const long *numbers, long numbers_offset, int count, global const from_type *from,      \
        long from_offset, int per_channel, global to_type *out

/* Finds the work-item's channel, its sample s, and its place `in_sample`. */
#define GATHER_BEGIN                                                                               \
    const int e = (int)get_global_id(0), s = (int)get_global_id(1);                                \
    const int channel = (int)get_global_id(2);                                                     \
    if (e >= per_channel || s >= count)                                                            \
        return;                                                                                    \
    const long elements = (long)per_channel * (long)get_global_size(2);                            \
    const long in_sample = (long)channel * per_channel + e;

#define VALUE from[from_offset + numbers[numbers_offset + s] * elements + in_sample]
#define OUT out[s * elements + in_sample]

kernel void gather_copy(PARAMETERS(T, T))
{
    GATHER_BEGIN
    OUT = VALUE;
}

kernel void gather_widen(PARAMETERS(uchar, int))
{
    GATHER_BEGIN
    OUT = VALUE;
}

/* table [channels, 256]: the number that each byte becomes. */
kernel void gather_look_up(PARAMETERS(uchar, float), global const float *table)
{
    GATHER_BEGIN
    OUT = table[channel * 256 + VALUE];
}

/* table [channels, 2]: scale and shift. */
kernel void gather_scale(PARAMETERS(T, float), global const float *table)
{
    GATHER_BEGIN
    const float product = (float)VALUE * table[2 * channel];
    OUT = product + table[2 * channel + 1];
}
