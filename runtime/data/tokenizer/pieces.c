/* Cuts text into pieces by GPT-2's published pattern. */
#include <limits.h>

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"

#ifdef CLT_HAVE_PCRE2

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Unicode's White_Space, the meaning of \s in GPT-2's pattern. PCRE2's \s has U+180E too. */
#define SPACES                                                                                     \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"  \
    "\\x{205f}\\x{3000}"

static const char pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES
                              "\\p{L}\\p{N}]+|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+";

clt_status clt_pieces_compile(clt_tokenizer *t)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, sizeof pattern - 1, PCRE2_UTF | PCRE2_UCP,
                                     &error, &at, NULL);
    if (!code) {
        PCRE2_UCHAR text[128];
        pcre2_get_error_message(error, text, sizeof text);
        return clt_fail(CLT_UNSUPPORTED, "tokenizer '%s': PCRE2 does not take GPT-2's pattern: %s",
                        t->spec, (char *)text);
    }
    /* An error is ignored: without its compiler, PCRE2 interprets the pattern. */
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    t->pattern = code;
    return CLT_OK;
}

void clt_pieces_free(clt_tokenizer *t)
{
    pcre2_code_free(t->pattern);
}

clt_status clt_pieces_begin(const clt_tokenizer *t, void **match)
{
    *match = pcre2_match_data_create_from_pattern(t->pattern, NULL);
    return *match ? CLT_OK : clt_fail(CLT_OUT_OF_MEMORY, "tokenizer '%s': out of memory", t->spec);
}

clt_status clt_pieces_next(const clt_tokenizer *t, void *match, const char *text, size_t bytes,
                           size_t begin, size_t *end)
{
    /* PCRE2_ANCHORED never skips text: every character begins a match of an alternative. */
    const int found =
        pcre2_match(t->pattern, (PCRE2_SPTR)text, bytes, begin,
                    PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match, NULL);
    if (found < 1) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(found, why, sizeof why);
        return clt_fail(CLT_UNSUPPORTED, "tokenizer '%s': text at byte %zu cannot be cut: %s",
                        t->spec, begin, (char *)why);
    }
    *end = pcre2_get_ovector_pointer(match)[1];
    if (*end - begin > INT_MAX / 8)
        return clt_fail(
            CLT_UNSUPPORTED,
            "tokenizer '%s': %zu bytes of the text, from byte %zu on, are one word: too long",
            t->spec, *end - begin, begin);
    return CLT_OK;
}

void clt_pieces_end(void *match)
{
    pcre2_match_data_free(match);
}

#else

clt_status clt_pieces_compile(clt_tokenizer *t)
{
    return clt_fail(CLT_UNSUPPORTED,
                    "tokenizer '%s': this build has no PCRE2 (Debian: libpcre2-dev)", t->spec);
}

void clt_pieces_free(clt_tokenizer *t)
{
    (void)t;
}

clt_status clt_pieces_begin(const clt_tokenizer *t, void **match)
{
    *match = NULL;
    return clt_pieces_compile((clt_tokenizer *)t);
}

clt_status clt_pieces_next(const clt_tokenizer *t, void *match, const char *text, size_t bytes,
                           size_t begin, size_t *end)
{
    (void)match, (void)text, (void)bytes, (void)begin, (void)end;
    return clt_pieces_compile((clt_tokenizer *)t);
}

void clt_pieces_end(void *match)
{
    (void)match;
}

#endif
