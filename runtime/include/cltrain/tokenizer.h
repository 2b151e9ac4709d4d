/*
 * Text to numbers of tokens and back: bytes, or GPT-2's byte-level byte-pair encoding from the
 * files that its publishers and Hugging Face give with a model.
 */
#ifndef CLTRAIN_TOKENIZER_H
#define CLTRAIN_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include <cltrain/export.h>
#include <cltrain/status.h>

CLT_BEGIN_DECLS

/* Read-only once it is opened: any number of threads may use one. */
typedef struct clt_tokenizer clt_tokenizer;

/*
 * Opens a tokenizer by SPEC, one of
 *   bytes      a token a byte: 256 of them
 *   gpt2:DIR   DIR/vocab.json, an object from tokens to numbers 0 to n - 1, in which each byte is
 *              written as GPT-2's printable character for it, and DIR/merges.txt, a line a merge,
 *              "LEFT RIGHT", the first one first; a first line "#version..." is skipped. Text is
 * cut by GPT-2's pattern (Radford et al., "Language models are unsupervised multitask learners",
 * 2019, and their encoder.py): 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|
 * ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ and in each piece the pair of neighbours that was merged first is
 * merged, the leftmost of equals, until there is none. Fails with NOT_FOUND (a file, or a name),
 * FORMAT (JSON, numbers that are not 0 to n - 1, a merge of what is no token: file and line),
 * UNSUPPORTED (gpt2 in a build without PCRE2).
 */
CLT_API clt_status clt_tokenizer_open(const char *spec, clt_tokenizer **out);

/* Takes NULL. */
CLT_API void clt_tokenizer_free(clt_tokenizer *tokenizer);

/* Number of tokens: all are below it. */
CLT_API int64_t clt_tokenizer_vocabulary(const clt_tokenizer *tokenizer);

/* Number of the token between texts, "<|endoftext|>"; -1: there is none. Encoding never gives it.
 */
CLT_API int64_t clt_tokenizer_end_of_text(const clt_tokenizer *tokenizer);

/*
 * Tokens of `bytes` bytes of text, in *ids, which is the caller's to free(); *count of them, for
 * none of which *ids is NULL. FORMAT for text that is not UTF-8 (gpt2; the message has the
 * position) and for a byte that the vocabulary lacks.
 */
CLT_API clt_status clt_tokenizer_encode(const clt_tokenizer *tokenizer, const char *text,
                                        size_t bytes, int32_t **ids, int64_t *count);

/*
 * The text of tokens, *bytes of it and a 0 behind it, in *text, which is the caller's to free(). A
 * token may be a part of a character. INVALID_ARGUMENT for a number that is no token; the message
 * has its position.
 */
CLT_API clt_status clt_tokenizer_decode(const clt_tokenizer *tokenizer, const int32_t *ids,
                                        int64_t count, char **text, size_t *bytes);

CLT_END_DECLS

#endif
