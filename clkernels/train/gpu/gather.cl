/*
 * Gathers a batch from samples in device memory, on GPUs, to the same bits as
 * train/portable/gather.cl. Work-item (e, s, c) converts V elements side by side of channel c of
 * sample s. Build options: T, the element type of `from`; V: 4 (2 for elements of 8 bytes) if
 * vectors fit the channels and the beginning of `from`, else 1.
 */

/* The product and the sum are rounded separately, as on the host. */
#pragma OPENCL FP_CONTRACT OFF

#if V == 1
#define VECTOR(type) type
#define INTO(type) convert_##type
#elif V == 2
#define VECTOR(type) type##2
#define INTO(type) convert_##type##2
#else
#define VECTOR(type) type##4
#define INTO(type) convert_##type##4
#endif
#define VECTOR_OF(type) VECTOR(type)

#define PARAMETERS(from_type, to_type)                                                             \
    global const long *numbers, long numbers_offset, int count, global const from_type *from,      \
        long from_offset, int per_channel, global to_type *out

/* Finds the work-item's `channel`, and its offsets `read` and `write`. */
#define GATHER_BEGIN                                                                               \
    const int e = (int)get_global_id(0) * V, s = (int)get_global_id(1);                            \
    const int channel = (int)get_global_id(2);                                                     \
    if (e >= per_channel || s >= count)                                                            \
        return;                                                                                    \
    const long elements = (long)per_channel * (long)get_global_size(2);                            \
    const long in_sample = (long)channel * per_channel + e;                                        \
    const long read = from_offset + numbers[numbers_offset + s] * elements + in_sample;            \
    const long write = s * elements + in_sample;

#define VALUE(type) *(global const VECTOR_OF(type) *)(from + read)
#define OUT(type) *(global VECTOR_OF(type) *)(out + write)

kernel void gather_copy(PARAMETERS(T, T))
{
    GATHER_BEGIN
    OUT(T) = VALUE(T);
}

kernel void gather_widen(PARAMETERS(uchar, int))
{
    GATHER_BEGIN
    OUT(int) = INTO(int)(VALUE(uchar));
}

/* table [channels, 256]: the number that each byte becomes. */
kernel void gather_look_up(PARAMETERS(uchar, float), global const float *table)
{
    GATHER_BEGIN
    table += channel * 256;
    const VECTOR(uchar) at = VALUE(uchar);
#if V == 4
    OUT(float) = (float4)(table[at.x], table[at.y], table[at.z], table[at.w]);
#elif V == 2
    OUT(float) = (float2)(table[at.x], table[at.y]);
#else
    OUT(float) = table[at];
#endif
}

/* table [channels, 2]: scale and shift. */
kernel void gather_scale(PARAMETERS(T, float), global const float *table)
{
    GATHER_BEGIN
    const VECTOR(float) product = INTO(float)(VALUE(T)) * table[2 * channel];
    OUT(float) = product + table[2 * channel + 1];
}
