/*
 * Compiled programs in the cache folder. On PoCL 3.1 reading 16 programs back takes 30 ms, where
 * building them again takes 0.7 s of processor time even if its own cache has them. But asking PoCL
 * for a binary makes it compile each kernel once more, so there this waits until the device is
 * closed, and takes a small share of the time that it was open.
 */
#ifndef CLT_DEVICE_PROGRAM_PROGRAM_CACHE_H
#define CLT_DEVICE_PROGRAM_PROGRAM_CACHE_H

#include "device/core/device.h"

/* What a program was made of: two hashes of options, source and device, so that a collision is out
 * of the question. */
typedef struct clt_cache_key {
    uint64_t hash[2];
} clt_cache_key;

clt_cache_key clt_cache_key_make(const clt_device *device, const char *options, const char *source);

/* The built program from its file; false if there is none that works. */
bool clt_program_cache_load(clt_device *device, const clt_cache_key *key, const char *options,
                            cl_program *out);

/* Writes the file, if that is possible. */
void clt_program_cache_store(clt_device *device, const clt_cache_key *key, cl_program program);

#endif
