#include "base/hash.h"

#include <string.h>
#include <xxhash.h>

uint64_t clt_hash(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

uint64_t clt_hash_text(const char *text, uint64_t seed)
{
    return clt_hash(text, strlen(text), seed);
}
