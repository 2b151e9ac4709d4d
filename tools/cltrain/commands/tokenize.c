/* `cltrain data tokenize`: converts text files to one file of 16-bit tokens, as tokens:FILE reads
 * it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cltrain/tokenizer.h>

#include "datasets/data.h"
#include "text/message.h"
#include "text/text.h"

enum { MOST_VALUES = 1 << 16, BLOCK = 1 << 15 };

/* Writes tokens as little-endian numbers on every machine. */
static int write_ids(FILE *file, const int32_t *ids, int64_t count)
{
    unsigned char block[2 * BLOCK];
    for (int64_t at = 0; at < count;) {
        int n = 0;
        for (; n < BLOCK && at < count; n++, at++) {
            block[2 * n] = (unsigned char)ids[at];
            block[2 * n + 1] = (unsigned char)(ids[at] >> 8);
        }
        if (fwrite(block, 2, (size_t)n, file) != (size_t)n)
            return 0;
    }
    return 1;
}

static int add_file(const clt_tokenizer *t, const char *path, const char *output, FILE *out,
                    int64_t *total)
{
    size_t bytes;
    int32_t *ids = NULL;
    int64_t count = 0;
    char *text = read_text(path, &bytes);
    if (!text)
        return EXIT_FAILED;
    const clt_status status = clt_tokenizer_encode(t, text, bytes, &ids, &count);
    int code = 0;
    if (status != CLT_OK)
        code = failure("%s: %s", path, clt_error_message());
    else if (!write_ids(out, ids, count))
        code = failure("%s: cannot be written: %s", output, strerror(errno));
    *total += count;
    free(ids);
    free(text);
    return code;
}

/* Writes NAME.json beside NAME.bin. */
static int write_sidecar(const settings *s, const clt_tokenizer *t, int64_t total)
{
    const size_t length = strlen(s->output);
    char *path = malloc(length + 8);
    json_t *root =
        json_pack("{s:I, s:s, s:I}", "vocab_size", (json_int_t)clt_tokenizer_vocabulary(t),
                  "tokenizer", s->tokenizer, "tokens", (json_int_t)total);
    int code = 0;
    if (!path || !root) {
        code = failure("memory does not suffice");
    } else {
        sprintf(path, "%.*s.json", (int)length - 4, s->output);
        if (json_dump_file(root, path, JSON_INDENT(1)))
            code = failure("%s: cannot be written: %s", path, strerror(errno));
    }
    json_decref(root);
    free(path);
    return code;
}

/* Writes the tokens to the file `beside`, which replaces the output after success. The old output
 * may be one of the texts, or hard to make again. */
static int write_all(const settings *s, const clt_tokenizer *t, const char *beside)
{
    int64_t total = 0;
    const int32_t between = (int32_t)clt_tokenizer_end_of_text(t);
    FILE *out = fopen(beside, "we");
    if (!out)
        return failure("%s: cannot be written: %s", s->output, strerror(errno));
    int code = 0;
    for (int i = 1; !code && i < s->n_names; i++) {
        if (i > 1 && between >= 0) {
            if (!write_ids(out, &between, 1))
                code = failure("%s: cannot be written: %s", s->output, strerror(errno));
            total++;
        }
        NEXT(code, add_file(t, s->names[i], s->output, out, &total));
    }
    if (fclose(out) && !code)
        code = failure("%s: cannot be written: %s", s->output, strerror(errno));
    NEXT(code, write_sidecar(s, t, total));
    if (!code && rename(beside, s->output))
        code = failure("%s: cannot be written: %s", s->output, strerror(errno));
    if (code)
        unlink(beside);
    else
        show("%s: %lld tokens of a vocabulary of %lld\n", s->output, (long long)total,
             (long long)clt_tokenizer_vocabulary(t));
    return code;
}

int run_tokenize(const settings *s)
{
    clt_tokenizer *t = NULL;
    if (s->n_names < 2)
        return usage_error("data tokenize needs files of text");
    if (!s->tokenizer)
        return usage_error("--tokenizer is missing: bytes, or gpt2:DIR");
    const size_t length = s->output ? strlen(s->output) : 0;
    if (length < 5 || strcmp(s->output + length - 4, ".bin"))
        return usage_error("-o is missing, or does not end in .bin: the file to write");
    const clt_status status = clt_tokenizer_open(s->tokenizer, &t);
    if (status != CLT_OK)
        return strchr(s->tokenizer, ':') ? library_failure(status) : name_failure(status);
    char *beside = malloc(length + 32);
    int code = 0;
    if (clt_tokenizer_vocabulary(t) > MOST_VALUES)
        code = failure("--tokenizer %s: a vocabulary of %lld does not fit in 16 bits", s->tokenizer,
                       (long long)clt_tokenizer_vocabulary(t));
    else if (!beside)
        code = failure("memory does not suffice");
    if (!code) {
        sprintf(beside, "%s.tmp-%ld", s->output, (long)getpid());
        code = write_all(s, t, beside);
    }
    free(beside);
    clt_tokenizer_free(t);
    return code;
}
