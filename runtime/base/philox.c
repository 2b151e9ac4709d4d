#include "base/philox.h"

void clt_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void clt_random4(uint64_t seed, clt_stream stream, uint32_t sub, uint32_t step, uint64_t block,
                 uint32_t out[4])
{
    /* 40 bits of block and 24 bits of sub allow 2^42 elements a tensor and 16 million
     * sub-streams. */
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)((block >> 32) & 0xFFu) | (sub << 8),
                                 step, (uint32_t)stream};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    clt_philox(counter, key, out);
}
