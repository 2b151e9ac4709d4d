/*
 * Checksums of tensors on GPUs: the same sums as train/portable/checksum.cl, but neighbouring
 * work-items read neighbouring vectors of four words. `first` is a multiple of four.
 */
kernel void checksum(global const uint *words, long first, long count, global uint *sums,
                     int tensor)
{
    const int item = (int)get_global_id(0), items = (int)get_global_size(0);
    const uint4 lane = (uint4)(0, 1, 2, 3);
    uint4 a = 0, b = 0;
    global const uint4 *vectors = (global const uint4 *)(words + first);
    const long whole = count / 4;
#pragma unroll 4
    for (long i = item; i < whole; i += items) {
        const uint4 x = vectors[i], at = (uint)(4 * i) + lane;
        a += x * (2 * at + 1);
        b += (x ^ at * 0x9E3779B9u) * 0x85EBCA6Bu ^ x >> 15;
    }
    uint all_a = (a.x + a.z) + (a.y + a.w), all_b = (b.x + b.z) + (b.y + b.w);
    if (item < count - 4 * whole) {
        const uint at = (uint)(4 * whole) + item, x = words[first + 4 * whole + item];
        all_a += x * (2 * at + 1);
        all_b += (x ^ at * 0x9E3779B9u) * 0x85EBCA6Bu ^ x >> 15;
    }
    global uint *own = sums + 2 * (tensor * items + item);
    own[0] = all_a;
    own[1] = all_b;
}
