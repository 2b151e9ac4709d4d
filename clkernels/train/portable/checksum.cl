/*
 * Checksums of tensors, to compare replicas bit for bit: two sums of 32-bit words, mixed with their
 * positions, modulo 2^32. Sums of integers do not depend on their order, so any number of
 * work-items gives the same total. Work-item i takes every items-th block of 16 words, and writes
 * sums[2 * (tensor * items + i)] and the number after it, which the host adds up.
 */
kernel void checksum(global const uint *words, long first, long count, global uint *sums,
                     int tensor)
{
    const int item = (int)get_global_id(0), items = (int)get_global_size(0);
    uint16 a = 0, b = 0;
    uint tail_a = 0, tail_b = 0;
    const uint16 lane = (uint16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    words += first;
    for (long i = 16L * item; i < count; i += 16L * items) {
        if (i + 16 <= count) {
            const uint16 x = vload16(0, words + i), at = (uint)i + lane;
            a += x * (2 * at + 1);
            b += (x ^ at * 0x9E3779B9u) * 0x85EBCA6Bu ^ x >> 15;
        } else {
            for (long k = i; k < count; k++) {
                const uint x = words[k], at = (uint)k;
                tail_a += x * (2 * at + 1);
                tail_b += (x ^ at * 0x9E3779B9u) * 0x85EBCA6Bu ^ x >> 15;
            }
        }
    }
    uint part[16];
    vstore16(a, 0, part);
    for (int i = 0; i < 16; i++)
        tail_a += part[i];
    vstore16(b, 0, part);
    for (int i = 0; i < 16; i++)
        tail_b += part[i];
    global uint *own = sums + 2 * (tensor * items + item);
    own[0] = tail_a;
    own[1] = tail_b;
}
