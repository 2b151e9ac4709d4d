/* 64-bit non-cryptographic hashes (xxHash's XXH3) for cache keys, checkpoints and plan identity. */
#ifndef CLT_BASE_HASH_H
#define CLT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t clt_hash(const void *data, size_t bytes, uint64_t seed);

uint64_t clt_hash_text(const char *text, uint64_t seed);

#endif
