/* Hashes the tokens of kernel files: what a compiler reads, without comments, white space and names
 * of files. The hash is FNV-1a. Each file is read once. */
#include "device/program/source_tokens.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

#include "base/hash.h"
#include "device/program/kernel_source.h"

enum { MOST_SOURCES = 512, MOST_INCLUDES = 16 };

/* Hashes of one file, and the files that it includes, as rows of clt_kernel_sources. */
typedef struct file_tokens {
    uint64_t own, all; /* of its own tokens; of these and the tokens of included files */
    int includes[MOST_INCLUDES], n_includes;
} file_tokens;

typedef struct reader {
    uint64_t hash;
    int of_directive; /* number of tokens so far if the line is a directive; else 0 */
    bool of_define, of_include;
} reader;

static void take(reader *r, const char *token, size_t length)
{
    const uint64_t prime = 0x100000001b3;
    for (size_t i = 0; i < length; i++)
        r->hash = (r->hash ^ (unsigned char)token[i]) * prime;
    r->hash = (r->hash ^ 0x100) * prime; /* ends the token; no byte has this value */
}

static bool is_splice(const char *at)
{
    return at[0] == '\\' && at[1] == '\n';
}

const char *clt_token_next(const char *at, bool *line)
{
    *line = false;
    for (;;) {
        if (is_splice(at)) {
            at += 2;
        } else if (at[0] == '/' && at[1] == '/') {
            while (*at && *at != '\n')
                at += is_splice(at) ? 2 : 1;
        } else if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at + 2, "*/");
            at = end ? end + 2 : at + strlen(at);
        } else if (isspace((unsigned char)*at)) {
            *line |= *at++ == '\n';
        } else {
            return at;
        }
    }
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static const char *end_of_number(const char *at)
{
    while (is_word(*at) || *at == '.' ||
           ((*at == '+' || *at == '-') && at[-1] && strchr("eEpP", at[-1])))
        at++;
    return at;
}

static const char *end_of_text(const char *at)
{
    const char quote = *at++;
    while (*at && *at != quote && *at != '\n')
        at += at[0] == '\\' && at[1] ? 2 : 1;
    return *at == quote ? at + 1 : at;
}

/* Returns the end of an operator of one or more characters. */
static const char *end_of_mark(const char *at)
{
    static const char *const marks[] = {"<<=", ">>=", "...", "->", "++", "--", "<<", ">>",
                                        "<=",  ">=",  "==",  "!=", "&&", "||", "*=", "/=",
                                        "%=",  "+=",  "-=",  "&=", "^=", "|=", "##"};
    if (!at[1] || !strchr("<>.+-=&|#", at[1]))
        return at + 1;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (!strncmp(at, marks[i], strlen(marks[i])))
            return at + strlen(marks[i]);
    return at + 1;
}

const char *clt_token_end(const char *at)
{
    if (isdigit((unsigned char)at[0]) || (at[0] == '.' && isdigit((unsigned char)at[1])))
        return end_of_number(at);
    if (*at == '"' || *at == '\'')
        return end_of_text(at);
    if (!is_word(*at))
        return end_of_mark(at);
    while (is_word(*at))
        at++;
    return at;
}

/* Notes whether the token belongs to a directive. The end of a directive counts as a token. */
static void place(reader *r, const char *at, size_t length, bool first)
{
    if (first) {
        if (r->of_directive)
            take(r, "\n", 1);
        r->of_directive = *at == '#';
        r->of_define = r->of_include = false;
    } else if (r->of_directive) {
        r->of_directive++;
    }
    if (r->of_directive == 2) {
        r->of_define = length == 6 && !memcmp(at, "define", length);
        r->of_include = length == 7 && !memcmp(at, "include", length);
    }
}

/* Hashes the text of the file `name`. With `file`, included files become rows of it, and their
 * names do not count; names without such a row do. */
static uint64_t read_text(const char *name, const char *at, file_tokens *file)
{
    reader r = {.hash = 0xcbf29ce484222325};
    bool first = true;
    for (at = clt_token_next(at, &first), first = true; *at;) {
        const char *end = clt_token_end(at);
        const size_t length = (size_t)(end - at);
        place(&r, at, length, first);
        const clt_kernel_source *other = NULL;
        if (r.of_directive == 3 && r.of_include && *at == '"' && length > 2 && file &&
            file->n_includes < MOST_INCLUDES)
            other = clt_source_include(name, at + 1, length - 2);
        if (other)
            file->includes[file->n_includes++] = (int)(other - clt_kernel_sources);
        else
            take(&r, at, length);
        /* `#define A(x)` and `#define A (x)` differ. */
        if (r.of_directive == 3 && r.of_define && *end == '(')
            take(&r, "()", 2);
        at = clt_token_next(end, &first);
    }
    if (r.of_directive)
        take(&r, "\n", 1);
    return r.hash;
}

uint64_t clt_tokens_hash(const char *text)
{
    return read_text("", text, NULL);
}

bool clt_has_token(const char *text, const char *word)
{
    bool line;
    const size_t length = strlen(word);
    for (const char *at = clt_token_next(text, &line), *end; *at; at = clt_token_next(end, &line)) {
        end = clt_token_end(at);
        if ((size_t)(end - at) == length && !memcmp(at, word, length))
            return true;
    }
    return false;
}

static file_tokens files[MOST_SOURCES]; /* by row of clt_kernel_sources; all 0: not a kernel file */

/* Adds the hashes of a file and of the files it includes, in the compiler's order, each once. */
static uint64_t join(int file, bool *seen, uint64_t hash)
{
    if (file >= MOST_SOURCES || seen[file])
        return hash;
    seen[file] = true;
    hash = clt_hash(&files[file].own, sizeof files[file].own, hash);
    for (int i = 0; i < files[file].n_includes; i++)
        hash = join(files[file].includes[i], seen, hash);
    return hash;
}

static void make_hashes(void)
{
    for (int i = 0; i < MOST_SOURCES && clt_kernel_sources[i].name; i++)
        if (strstr(clt_kernel_sources[i].name, ".cl"))
            files[i].own =
                read_text(clt_kernel_sources[i].name, clt_kernel_sources[i].text, &files[i]);
    for (int i = 0; i < MOST_SOURCES && clt_kernel_sources[i].name; i++) {
        bool seen[MOST_SOURCES] = {false};
        const char *suffix = strrchr(clt_kernel_sources[i].name, '.');
        if (suffix && !strcmp(suffix, ".cl"))
            files[i].all = join(i, seen, 0);
    }
}

static void prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_hashes);
}

uint64_t clt_source_tokens(const char *file)
{
    prepare();
    for (int i = 0; i < MOST_SOURCES && clt_kernel_sources[i].name; i++)
        if (!strcmp(clt_kernel_sources[i].name, file))
            return files[i].all;
    return 0;
}

bool clt_source_known(uint64_t tokens)
{
    prepare();
    for (int i = 0; i < MOST_SOURCES && clt_kernel_sources[i].name; i++)
        if (tokens && files[i].all == tokens)
            return true;
    return false;
}
