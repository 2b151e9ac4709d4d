#include "data/tokenizer/tokenizer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

static const char GPT2[] = "gpt2:";

clt_status clt_tokenizer_open(const char *spec, clt_tokenizer **out)
{
    if (!spec || !out)
        return clt_fail(CLT_INVALID_ARGUMENT, "a tokenizer needs its name and a place");
    const bool bpe = !strncmp(spec, GPT2, sizeof GPT2 - 1) && spec[sizeof GPT2 - 1];
    if (!bpe && strcmp(spec, "bytes"))
        return clt_fail(CLT_NOT_FOUND, "tokenizer '%s': there are: bytes, gpt2:DIR", spec);
    clt_tokenizer *t = CLT_NEW(clt_tokenizer);
    CLT_TRY_MEMORY(t);
    t->spec = clt_strdup(spec);
    t->vocabulary = 256;
    t->end_of_text = -1;
    t->bpe = bpe;
    clt_status status = t->spec ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK && bpe)
        status = clt_pieces_compile(t);
    if (status == CLT_OK && bpe)
        status = clt_bpe_load(t, spec + sizeof GPT2 - 1);
    if (status == CLT_OK)
        *out = t;
    else
        clt_tokenizer_free(t);
    return status;
}

void clt_tokenizer_free(clt_tokenizer *t)
{
    if (!t)
        return;
    if (t->pattern)
        clt_pieces_free(t);
    CLT_FREE(t->spec, t->text, t->starts, t->merges, t);
}

int64_t clt_tokenizer_vocabulary(const clt_tokenizer *t)
{
    return t->vocabulary;
}

int64_t clt_tokenizer_end_of_text(const clt_tokenizer *t)
{
    return t->end_of_text;
}

/* Returns the bytes of the UTF-8 character at `p`, of which `left` bytes may be read; 0 if it is
 * invalid (Unicode 15, table 3-7). */
static size_t character_bytes(const unsigned char *p, size_t left)
{
    const unsigned char first = p[0];
    const size_t n = first < 0x80   ? 1
                     : first < 0xC2 ? 0
                     : first < 0xE0 ? 2
                     : first < 0xF0 ? 3
                     : first < 0xF5 ? 4
                                    : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    if ((first == 0xE0 && p[1] < 0xA0) || (first == 0xED && p[1] > 0x9F) ||
        (first == 0xF0 && p[1] < 0x90) || (first == 0xF4 && p[1] > 0x8F))
        return 0;
    return n;
}

static clt_status check_utf8(const clt_tokenizer *t, const char *text, size_t bytes)
{
    for (size_t i = 0, n; i < bytes; i += n) {
        n = character_bytes((const unsigned char *)text + i, bytes - i);
        if (!n)
            return clt_fail(CLT_FORMAT, "tokenizer '%s': byte %zu of the text is not UTF-8",
                            t->spec, i);
    }
    return CLT_OK;
}

/* Makes room for `more` numbers after the first `count`. */
static clt_status grow(int32_t **ids, int64_t count, int64_t *room, size_t more)
{
    if (count + (int64_t)more <= *room)
        return CLT_OK;
    const int64_t wanted = 2 * *room + (int64_t)more + 256;
    int32_t *moved = clt_realloc(*ids, (size_t)wanted * sizeof **ids);
    CLT_TRY_MEMORY(moved);
    *ids = moved;
    *room = wanted;
    return CLT_OK;
}

static clt_status encode_pieces(const clt_tokenizer *t, const char *text, size_t bytes,
                                int32_t **ids, int64_t *count)
{
    clt_bpe_work work = {0};
    void *match = NULL;
    int64_t room = 0;
    size_t end = 0;
    clt_status status = clt_pieces_begin(t, &match);
    for (size_t at = 0; status == CLT_OK && at < bytes; at = end) {
        int more = 0;
        status = clt_pieces_next(t, match, text, bytes, at, &end);
        CLT_NEXT(status, grow(ids, *count, &room, end - at));
        CLT_NEXT(status,
                 clt_bpe_encode(t, text + at, (int)(end - at), &work, *ids + *count, &more));
        *count += more;
    }
    clt_pieces_end(match);
    clt_bpe_work_free(&work);
    return status;
}

clt_status clt_tokenizer_encode(const clt_tokenizer *t, const char *text, size_t bytes,
                                int32_t **ids, int64_t *count)
{
    if (!t || (!text && bytes) || !ids || !count)
        return clt_fail(CLT_INVALID_ARGUMENT, "encoding needs a tokenizer, a text and places");
    int32_t *made = NULL;
    int64_t n = 0, room = 0;
    clt_status status = CLT_OK;
    if (t->bpe) {
        status = check_utf8(t, text, bytes);
        CLT_NEXT(status, encode_pieces(t, text, bytes, &made, &n));
    } else if (bytes) {
        status = grow(&made, 0, &room, bytes);
        for (; status == CLT_OK && n < (int64_t)bytes; n++)
            made[n] = (unsigned char)text[n];
    }
    if (status != CLT_OK) {
        clt_free(made);
        return status;
    }
    *ids = clt_alloc_give(made);
    *count = n;
    return CLT_OK;
}

clt_status clt_tokenizer_decode(const clt_tokenizer *t, const int32_t *ids, int64_t count,
                                char **text, size_t *bytes)
{
    if (!t || (!ids && count) || count < 0 || !text || !bytes)
        return clt_fail(CLT_INVALID_ARGUMENT, "decoding needs a tokenizer, tokens and places");
    size_t total = 0, at = 0;
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= t->vocabulary)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "tokenizer '%s': token %d at position %lld is out of the vocabulary: 0 "
                            "to %lld",
                            t->spec, ids[i], (long long)i, (long long)t->vocabulary - 1);
        total += t->bpe ? (size_t)(t->starts[ids[i] + 1] - t->starts[ids[i]]) : 1;
    }
    char *made = clt_alloc(total + 1);
    CLT_TRY_MEMORY(made);
    for (int64_t i = 0; i < count; i++) {
        if (!t->bpe) {
            made[at++] = (char)ids[i];
            continue;
        }
        const int64_t begin = t->starts[ids[i]], n = t->starts[ids[i] + 1] - begin;
        memcpy(made + at, t->text + begin, (size_t)n);
        at += (size_t)n;
    }
    made[at] = '\0';
    *text = clt_alloc_give(made);
    *bytes = total;
    return CLT_OK;
}
