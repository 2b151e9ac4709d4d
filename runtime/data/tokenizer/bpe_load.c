/* Reads vocab.json and merges.txt of a GPT-2 tokenizer. */
#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/user_file.h"
#include "base/str.h"
#include "data/tokenizer/tokenizer.h"

/* More tokens are refused, so that token numbers and sizes of tables stay far below 31 bits. */
enum { MOST_TOKENS = 1 << 24, CODE_POINTS = 0x200 };

/* Upper limit for vocab.json and for merges.txt. */
static const int64_t MOST_BYTES = 1 << 30;

static const char END_OF_TEXT[] = "<|endoftext|>";

/* GPT-2 writes each byte as a printable character. Bytes that Latin-1 prints stand for themselves.
 * The others are numbered from U+0100 on. */
static void number_bytes(int of_code_point[CODE_POINTS])
{
    int next = 0x100;
    for (int c = 0; c < CODE_POINTS; c++)
        of_code_point[c] = -1;
    for (int b = 0; b < 256; b++) {
        const int printed = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        of_code_point[printed ? b : next++] = b;
    }
}

/* Converts a token's characters to its bytes. Characters that stand for no byte are kept as they
 * are. */
static size_t to_bytes(const int of_code_point[CODE_POINTS], const char *key, char *to)
{
    const unsigned char *p = (const unsigned char *)key;
    size_t n = 0;
    while (*p) {
        const int two = p[0] >= 0xC4 && p[0] <= 0xC7, latin = p[0] == 0xC2 || p[0] == 0xC3;
        const int code = p[0] < 0x80 ? p[0] : two || latin ? (p[0] & 31) << 6 | (p[1] & 63) : -1;
        if (code >= 0 && of_code_point[code] >= 0) {
            to[n++] = (char)of_code_point[code];
            p += p[0] < 0x80 ? 1 : 2;
        } else {
            do
                to[n++] = (char)*p++;
            while ((*p & 0xC0) == 0x80);
        }
    }
    return n;
}

/* Sorts the tokens' keys by token number. */
static clt_status sort_keys(const char *path, json_t *root, const char **keys, int64_t count)
{
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= count)
            return clt_fail(CLT_FORMAT, "%s: token '%s': its number is not one of 0 to %lld", path,
                            key, (long long)count - 1);
        if (keys[id])
            return clt_fail(CLT_FORMAT, "%s: tokens '%s' and '%s' have the same number %lld", path,
                            keys[id], key, (long long)id);
        keys[id] = key;
    }
    return CLT_OK;
}

static clt_status store_tokens(clt_tokenizer *t, const char **keys)
{
    int of_code_point[CODE_POINTS];
    size_t total = 1;
    number_bytes(of_code_point);
    for (int64_t i = 0; i < t->vocabulary; i++)
        total += strlen(keys[i]);
    t->text = clt_alloc(total);
    t->starts = clt_calloc((size_t)t->vocabulary + 1, sizeof *t->starts);
    CLT_TRY_MEMORY(t->text && t->starts);
    memset(t->of_byte, -1, sizeof t->of_byte);
    for (int64_t i = 0; i < t->vocabulary; i++) {
        char *to = t->text + t->starts[i];
        const size_t n = to_bytes(of_code_point, keys[i], to);
        t->starts[i + 1] = t->starts[i] + (int64_t)n;
        if (n == 1)
            t->of_byte[(unsigned char)*to] = (int32_t)i;
        if (!strcmp(keys[i], END_OF_TEXT))
            t->end_of_text = i;
    }
    return CLT_OK;
}

static clt_status load_vocabulary(clt_tokenizer *t, const char *path, json_t **root)
{
    json_error_t error;
    char *text;
    size_t bytes;
    CLT_TRY(clt_file_read_all(path, MOST_BYTES, &text, &bytes));
    *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    clt_free(text);
    if (!*root)
        return clt_fail(CLT_FORMAT, "%s: line %d: %s", path, error.line, error.text);
    const size_t count = json_object_size(*root);
    if (!count || count > MOST_TOKENS)
        return clt_fail(CLT_FORMAT, "%s: not an object of 1 to %d tokens and their numbers", path,
                        MOST_TOKENS);
    t->vocabulary = (int64_t)count;
    const char **keys = clt_calloc(count, sizeof *keys);
    clt_status status = keys ? sort_keys(path, *root, keys, t->vocabulary) : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, store_tokens(t, keys));
    clt_free(keys);
    return status;
}

/* --- merges ----------------------------------------------------------------------------------- */

static void insert(clt_tokenizer *t, const clt_merge *merge)
{
    uint32_t at = (uint32_t)merge->left * 0x9E3779B1u ^ (uint32_t)merge->right * 0x85EBCA77u;
    at = (at ^ at >> 15) & t->merge_mask;
    while (t->merges[at].left >= 0)
        at = (at + 1) & t->merge_mask;
    t->merges[at] = *merge;
}

/* Each merge makes another token, so there are fewer merges than tokens. */
static clt_status make_table(clt_tokenizer *t)
{
    uint32_t room = 16;
    while (room < 2 * (uint32_t)t->vocabulary)
        room *= 2;
    t->merges = clt_calloc(room, sizeof *t->merges);
    CLT_TRY_MEMORY(t->merges);
    t->merge_mask = room - 1;
    for (uint32_t i = 0; i < room; i++)
        t->merges[i].left = -1;
    return CLT_OK;
}

static clt_status number_of(const json_t *root, const char *key, const char *path, int line,
                            int32_t *id)
{
    const json_t *value = json_object_get(root, key);
    if (!value)
        return clt_fail(CLT_FORMAT, "%s: line %d: '%s' is not in the vocabulary", path, line, key);
    *id = (int32_t)json_integer_value(value);
    return CLT_OK;
}

static clt_status read_merge(clt_tokenizer *t, const json_t *root, const char *path, int line,
                             char *text, int32_t rank)
{
    char *space = strchr(text, ' ');
    if (!space || space == text || !space[1] || strchr(space + 1, ' '))
        return clt_fail(CLT_FORMAT, "%s: line %d: not two tokens with a space between them", path,
                        line);
    clt_merge merge = {.rank = rank};
    *space = '\0';
    CLT_TRY(number_of(root, text, path, line, &merge.left));
    CLT_TRY(number_of(root, space + 1, path, line, &merge.right));
    memmove(space, space + 1, strlen(space + 1) + 1);
    CLT_TRY(number_of(root, text, path, line, &merge.merged));
    if (rank >= t->vocabulary)
        return clt_fail(CLT_FORMAT, "%s: line %d: more merges than tokens", path, line);
    if (clt_bpe_find(t, merge.left, merge.right))
        return clt_fail(CLT_FORMAT, "%s: line %d: this pair was merged before", path, line);
    insert(t, &merge);
    return CLT_OK;
}

static clt_status load_merges(clt_tokenizer *t, const char *path, const json_t *root)
{
    char *text;
    size_t bytes;
    CLT_TRY(clt_file_read_all(path, MOST_BYTES, &text, &bytes));
    int number = 1;
    int32_t rank = 0;
    clt_status status = make_table(t);
    for (char *next, *line = text; status == CLT_OK && line < text + bytes; line = next, number++) {
        next = memchr(line, '\n', (size_t)(text + bytes - line));
        next = next ? next + 1 : text + bytes;
        line[strcspn(line, "\r\n")] = '\0';
        if (!*line || (number == 1 && !strncmp(line, "#version", 8)))
            continue;
        status = read_merge(t, root, path, number, line, rank++);
    }
    clt_free(text);
    return status;
}

clt_status clt_bpe_load(clt_tokenizer *t, const char *folder)
{
    json_t *root = NULL;
    clt_str vocabulary = {0}, merges = {0};
    clt_str_add(&vocabulary, "%s/vocab.json", folder);
    clt_str_add(&merges, "%s/merges.txt", folder);
    clt_status status = vocabulary.failed || merges.failed
                            ? CLT_OUT_OF_MEMORY
                            : load_vocabulary(t, clt_str_text(&vocabulary), &root);
    CLT_NEXT(status, load_merges(t, clt_str_text(&merges), root));
    json_decref(root);
    clt_str_free(&vocabulary);
    clt_str_free(&merges);
    return status;
}
