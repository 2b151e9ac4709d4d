/*
 * Tokenizers turn text into numbers of tokens and back. A token is a byte, or one of GPT-2's
 * byte-level byte-pair encoding, whose files are published with its models.
 */
#ifndef CLTRAIN_TOKENIZER_H
#define CLTRAIN_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include <cltrain/export.h>
#include <cltrain/status.h>

CLT_BEGIN_DECLS

/* A tokenizer. Any number of threads may use it at once. */
typedef struct clt_tokenizer clt_tokenizer;

/*
 * Opens the tokenizer that `spec` names:
 *
 * - bytes: a token is a byte; there are 256.
 * - gpt2:DIR: DIR/vocab.json is an object from tokens to numbers 0 to n - 1. Bytes in it are
 *   written as GPT-2's printable characters. DIR/merges.txt has a merge a line, "LEFT RIGHT", in
 *   order. A first line "#version..." is skipped.
 *
 * GPT-2's pattern cuts the text into pieces (Radford et al., "Language models are unsupervised
 * multitask learners", 2019, and their encoder.py):
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * In each piece the neighbours with the earliest merge are merged, the leftmost first, until no
 * merge fits.
 *
 * Errors: NOT_FOUND (a file, or a name), FORMAT (JSON, numbers other than 0 to n - 1, a merge of
 * something that is no token; the message has file and line), UNSUPPORTED (gpt2 in a build without
 * PCRE2). Free *out with clt_tokenizer_free.
 */
CLT_API clt_status clt_tokenizer_open(const char *spec, clt_tokenizer **out);

/* Frees the tokenizer. Takes NULL. */
CLT_API void clt_tokenizer_free(clt_tokenizer *tokenizer);

/* Returns the number of tokens. */
CLT_API int64_t clt_tokenizer_vocabulary(const clt_tokenizer *tokenizer);

/* Returns the number of the token between texts, "<|endoftext|>"; -1 if there is none. Encoding
 * never gives this token. */
CLT_API int64_t clt_tokenizer_end_of_text(const clt_tokenizer *tokenizer);

/*
 * Encodes `bytes` bytes of text. *ids has *count tokens; free it with free(). It is NULL if there
 * are none. Errors: FORMAT for text that is not UTF-8 (gpt2; the message has the position), and for
 * a byte that the vocabulary lacks.
 */
CLT_API clt_status clt_tokenizer_encode(const clt_tokenizer *tokenizer, const char *text,
                                        size_t bytes, int32_t **ids, int64_t *count);

/*
 * Decodes tokens. *text has *bytes bytes and a 0 byte after them; free it with free(). A token may
 * be a part of a character. Errors: INVALID_ARGUMENT for a number that is no token; the message has
 * its position.
 */
CLT_API clt_status clt_tokenizer_decode(const clt_tokenizer *tokenizer, const int32_t *ids,
                                        int64_t count, char **text, size_t *bytes);

CLT_END_DECLS

#endif
