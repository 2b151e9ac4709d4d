/* Hashes of kernel files' tokens, for tuning keys: comments, white space and the files' names may
 * change. Caches of compiled programs hash whole texts instead. */
#ifndef CLT_DEVICE_PROGRAM_SOURCE_TOKENS_H
#define CLT_DEVICE_PROGRAM_SOURCE_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

/* Of a text whose includes are not followed. */
uint64_t clt_tokens_hash(const char *text);

/* Of an embedded file and all that it includes; 0: there is no such file. Thread-safe, as the next
 * one; both hash all files when they are first called, in a few ms. */
uint64_t clt_source_tokens(const char *file);

/* Whether an embedded file has that hash. */
bool clt_source_known(uint64_t tokens);

#endif
