/* Internals of a tokenizer. */
#ifndef CLT_DATA_TOKENIZER_TOKENIZER_H
#define CLT_DATA_TOKENIZER_TOKENIZER_H

#include <stdbool.h>

#include <cltrain/tokenizer.h>

/* A merge of two neighbouring tokens. In an empty place of the hash table `left` is -1. */
typedef struct clt_merge {
    int32_t left, right;
    int32_t rank, merged;
} clt_merge;

struct clt_tokenizer {
    char *spec;
    int64_t vocabulary, end_of_text;
    bool bpe; /* else every byte is a token */

    /* Token i is text[starts[i]] to text[starts[i + 1]]. */
    char *text;
    int64_t *starts;
    int32_t of_byte[256]; /* the token for a single byte; -1: none */
    clt_merge *merges;    /* hash table; its size is a power of two */
    uint32_t merge_mask;
    void *pattern; /* compiled by PCRE2 */
};

/* Scratch memory for the merges of pieces. Start with {0}. */
typedef struct clt_bpe_work {
    struct bpe_link *links;
    struct bpe_pair *heap;
    int room;
} clt_bpe_work;

void clt_bpe_work_free(clt_bpe_work *work);

/* Writes the tokens of a piece of `bytes` (at least 1) bytes to `ids`, which has room for `bytes`
 * tokens. */
clt_status clt_bpe_encode(const clt_tokenizer *t, const char *piece, int bytes, clt_bpe_work *work,
                          int32_t *ids, int *count);

/* Returns the merge of two neighbouring tokens, NULL if there is none. */
const clt_merge *clt_bpe_find(const clt_tokenizer *t, int32_t left, int32_t right);

/* Reads vocab.json and merges.txt in `folder`. */
clt_status clt_bpe_load(clt_tokenizer *t, const char *folder);

/* Cuts text into pieces. _compile compiles the pattern of a tokenizer. _begin makes `match`, one a
 * thread. _next finds the end of the piece that begins at `begin`. */
clt_status clt_pieces_compile(clt_tokenizer *t);
void clt_pieces_free(clt_tokenizer *t);
clt_status clt_pieces_begin(const clt_tokenizer *t, void **match);
clt_status clt_pieces_next(const clt_tokenizer *t, void *match, const char *text, size_t bytes,
                           size_t begin, size_t *end);
void clt_pieces_end(void *match);

#endif
