/* Hashes of the tokens of kernel files, for tuning keys. Comments, white space and the names of
 * files do not change them. Caches of compiled programs hash whole texts instead. */
#ifndef CLT_DEVICE_PROGRAM_SOURCE_TOKENS_H
#define CLT_DEVICE_PROGRAM_SOURCE_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the first character behind white space and comments. *line becomes whether they hold the
 * end of a line. */
const char *clt_token_next(const char *at, bool *line);

/* Returns the end of the token that begins at `at`. */
const char *clt_token_end(const char *at);

/* Hashes the tokens of a text, without following its includes. */
uint64_t clt_tokens_hash(const char *text);

/* Returns whether the identifier `word` stands in a text outside of comments. */
bool clt_has_token(const char *text, const char *word);

/* Returns the hash of an embedded kernel file and of all files that it includes; 0 if there is no
 * such file. The first call of this or the next function hashes all files, in a few milliseconds.
 * Both are thread-safe. */
uint64_t clt_source_tokens(const char *file);

/* Returns whether an embedded kernel file has that hash. */
bool clt_source_known(uint64_t tokens);

#endif
