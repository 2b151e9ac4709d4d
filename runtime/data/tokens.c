/*
 * Files of tokens, mapped: 16-bit numbers as nanoGPT and llm.c write them, or the bytes of a text.
 * A sample is a window of `length` tokens and the same window one token later; windows begin at
 * multiples of `length` in their file.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/str.h"
#include "base/vec.h"
#include "data/kinds.h"
#include "data/listing.h"

/* llm.c's header: 256 numbers of 32 bits, of which the first three mean something. */
enum { HEADER_BYTES = 1024, MAGIC = 20240520, MAGIC_WIDE = 20240801, HEADER_VERSION = 1 };

enum { DEFAULT_LENGTH = 1024, BYTE_VALUES = 256, WIDE_VALUES = 65536, HASHED = 1 << 16 };

typedef struct shard {
    char *path;
    void *map;
    size_t bytes;
    const unsigned char *tokens; /* behind the header */
    int64_t count;               /* tokens */
    int64_t first;               /* number of its first sample */
} shard;

typedef struct tokens {
    shard *shards;
    int n_shards, room;
    int width; /* bytes of a token: 1 or 2 */
    int64_t length, vocabulary;
    int64_t offset; /* the data set's first sample among those of the files */
} tokens;

static void tokens_free(void *payload)
{
    tokens *t = payload;
    for (int i = 0; t && i < t->n_shards; i++) {
        if (t->shards[i].map)
            munmap(t->shards[i].map, t->shards[i].bytes);
        clt_free(t->shards[i].path);
    }
    if (t)
        clt_free(t->shards);
    clt_free(t);
}

static int64_t token_at(const tokens *t, const shard *s, int64_t i)
{
    return t->width == 1 ? s->tokens[i] : s->tokens[2 * i] | s->tokens[2 * i + 1] << 8;
}

static int64_t number_at(const shard *s, int i)
{
    const unsigned char *p = (const unsigned char *)s->map + 4 * i;
    return (int64_t)p[0] | (int64_t)p[1] << 8 | (int64_t)p[2] << 16 | (int64_t)p[3] << 24;
}

/* Where the tokens lie in a file of 16-bit ones. */
static clt_status read_header(shard *s)
{
    const int64_t magic = s->bytes >= 4 ? number_at(s, 0) : 0;
    size_t header = 0;
    if (magic == MAGIC_WIDE && s->bytes >= HEADER_BYTES)
        return clt_fail(CLT_UNSUPPORTED,
                        "%s: tokens of 32 bits (llm.c's magic number 20240801), not of 16",
                        s->path);
    if (magic == MAGIC && s->bytes >= HEADER_BYTES) {
        header = HEADER_BYTES;
        const int64_t version = number_at(s, 1), announced = number_at(s, 2);
        const int64_t held = (int64_t)(s->bytes - header);
        if (version != HEADER_VERSION)
            return clt_fail(CLT_FORMAT, "%s: version %lld of llm.c's header, not %d", s->path,
                            (long long)version, HEADER_VERSION);
        if (held != 2 * announced)
            return clt_fail(CLT_FORMAT,
                            "%s: %s: its header announces %lld tokens of 2 bytes, but %lld bytes "
                            "follow it",
                            s->path, held < 2 * announced ? "truncated" : "trailing bytes",
                            (long long)announced, (long long)held);
    }
    if ((s->bytes - header) % 2)
        return clt_fail(CLT_FORMAT, "%s: %lld bytes are not a number of 16-bit tokens", s->path,
                        (long long)(s->bytes - header));
    s->tokens = (const unsigned char *)s->map + header;
    s->count = (int64_t)(s->bytes - header) / 2;
    return CLT_OK;
}

static clt_status map_file(shard *s)
{
    const int fd = open(s->path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        const clt_status status =
            clt_fail(errno == ENOENT || errno == ENOTDIR ? CLT_NOT_FOUND : CLT_IO,
                     "%s: cannot be opened: %s", s->path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    s->bytes = (size_t)info.st_size;
    void *map = s->bytes ? mmap(NULL, s->bytes, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    const int error = errno;
    close(fd);
    if (map == MAP_FAILED)
        return clt_fail(CLT_IO, "%s: cannot be mapped: %s", s->path, strerror(error));
    s->map = map;
    return CLT_OK;
}

/* Takes `path`. A file with fewer tokens than a sample and one more has no samples. */
static clt_status add_shard(tokens *t, char *path)
{
    const clt_status pushed =
        path ? CLT_PUSH(t->shards, t->n_shards, t->room, (shard){.path = path}) : CLT_OUT_OF_MEMORY;
    if (pushed != CLT_OK) {
        clt_free(path);
        return pushed;
    }
    shard *s = &t->shards[t->n_shards - 1];
    CLT_TRY(map_file(s));
    if (t->width == 2)
        return s->bytes ? read_header(s) : CLT_OK;
    s->tokens = s->map;
    s->count = (int64_t)s->bytes;
    return CLT_OK;
}

/* --- which files ------------------------------------------------------------------------------ */

typedef struct name_rule {
    const char *ending;
    bool test;
} name_rule;

/* Whether `word` is in the name, and no letter beside it. */
static bool has_word(const char *name, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = name; (at = strstr(at, word)); at++) {
        const char before = at == name ? '_' : at[-1], after = at[length];
        const bool letters = ((before | 32) >= 'a' && (before | 32) <= 'z') ||
                             ((after | 32) >= 'a' && (after | 32) <= 'z');
        if (!letters)
            return true;
    }
    return false;
}

static bool is_of_split(const char *name, void *user)
{
    const name_rule *rule = user;
    if (!clt_ends_in(name, rule->ending))
        return false;
    return rule->test
               ? has_word(name, "val") || has_word(name, "test") || has_word(name, "validation")
               : has_word(name, "train");
}

static char *join(const char *folder, const char *name)
{
    clt_str path = {0};
    clt_str_add(&path, "%s/%s", folder, name);
    char *copy = path.failed ? NULL : clt_strdup(clt_str_text(&path));
    clt_str_free(&path);
    return copy;
}

static clt_status add_folder(tokens *t, const clt_data_request *r, const char *ending)
{
    clt_listing list;
    name_rule rule = {ending, r->test};
    clt_status status = clt_listing_read(r->path, is_of_split, &rule, &list);
    for (int i = 0; status == CLT_OK && i < list.count; i++)
        status = add_shard(t, join(r->path, list.names[i]));
    if (status == CLT_OK && !list.count)
        status = clt_fail(CLT_NOT_FOUND, "%s: no file's name has the word %s and ends in %s",
                          r->path, r->test ? "val or test" : "train", ending);
    clt_listing_free(&list);
    return status;
}

/* --- vocabulary ------------------------------------------------------------------------------- */

/* "vocab_size" of NAME.json beside NAME.bin; 0 where there is none. */
static clt_status read_vocabulary(const shard *s, int64_t *size)
{
    clt_str path = {0};
    const size_t length = strlen(s->path);
    clt_str_add(&path, "%.*s.json", (int)(length - (clt_ends_in(s->path, ".bin") ? 4 : 0)),
                s->path);
    clt_status status = path.failed ? CLT_OUT_OF_MEMORY : CLT_OK;
    *size = 0;
    if (status == CLT_OK && access(clt_str_text(&path), F_OK) == 0) {
        json_error_t error;
        json_t *root = json_load_file(clt_str_text(&path), 0, &error);
        const json_t *value = json_object_get(root, "vocab_size");
        *size = json_integer_value(value);
        if (!root)
            status = clt_fail(CLT_FORMAT, "%s: line %d: %s", clt_str_text(&path), error.line,
                              error.text);
        else if (!json_is_integer(value) || *size < 1 || *size > WIDE_VALUES)
            status = clt_fail(CLT_FORMAT, "%s: vocab_size is not a number of 1 to %d",
                              clt_str_text(&path), WIDE_VALUES);
        json_decref(root);
    }
    clt_str_free(&path);
    return status;
}

static int64_t largest_token(const tokens *t)
{
    int64_t largest = 0;
    for (int i = 0; i < t->n_shards; i++)
        for (int64_t k = 0; k < t->shards[i].count; k++) {
            const int64_t token = token_at(t, &t->shards[i], k);
            largest = token > largest ? token : largest;
        }
    return largest;
}

static clt_status find_vocabulary(tokens *t, const clt_data_request *r)
{
    t->vocabulary = r->options->classes;
    if (t->width == 1) {
        if (t->vocabulary && t->vocabulary < BYTE_VALUES)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "data '%s': a vocabulary of %lld, but bytes have %d values", r->spec,
                            (long long)t->vocabulary, BYTE_VALUES);
        t->vocabulary = t->vocabulary ? t->vocabulary : BYTE_VALUES;
        return CLT_OK;
    }
    for (int i = 0; i < t->n_shards && !r->options->classes; i++) {
        int64_t size;
        CLT_TRY(read_vocabulary(&t->shards[i], &size));
        if (i && size != t->vocabulary)
            return clt_fail(
                CLT_FORMAT, "%s: vocabulary of %lld, but that of %s is %lld (0: not said)",
                t->shards[i].path, (long long)size, t->shards[0].path, (long long)t->vocabulary);
        t->vocabulary = size;
    }
    if (!t->vocabulary)
        t->vocabulary = largest_token(t) + 1;
    return CLT_OK;
}

/* --- samples ---------------------------------------------------------------------------------- */

static const shard *shard_of(const tokens *t, int64_t sample)
{
    int low = 0, high = t->n_shards - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (t->shards[middle].first <= sample)
            low = middle;
        else
            high = middle - 1;
    }
    return &t->shards[low];
}

static clt_status fetch(clt_dataset *dataset, const clt_sample_key *key, int64_t index,
                        void *const *fields)
{
    (void)key;
    const tokens *t = dataset->payload;
    const shard *s = shard_of(t, index + t->offset);
    const int64_t begin = (index + t->offset - s->first) * t->length;
    int32_t *inputs = fields[0], *targets = fields[1];
    for (int64_t i = 0; i <= t->length; i++) {
        const int64_t token = token_at(t, s, begin + i);
        if (token >= t->vocabulary)
            return clt_fail(
                CLT_FORMAT, "%s: token %lld at position %lld is out of the vocabulary: 0 to %lld",
                s->path, (long long)token, (long long)(begin + i), (long long)t->vocabulary - 1);
        if (inputs && i < t->length)
            inputs[i] = (int32_t)token;
        if (targets && i > 0)
            targets[i - 1] = (int32_t)token;
    }
    return CLT_OK;
}

static clt_status count_samples(tokens *t, const clt_data_request *r, bool divide, int64_t *count)
{
    int64_t total = 0, all = 0;
    /* Files without samples would stand between those that have some. */
    int kept = 0;
    for (int i = 0; i < t->n_shards; i++) {
        shard *s = &t->shards[i];
        all += s->count;
        s->first = total;
        if (s->count > t->length) {
            total += (s->count - 1) / t->length;
            const shard swap = t->shards[kept];
            t->shards[kept++] = *s;
            t->shards[i] = swap;
        }
    }
    if (!total)
        return clt_fail(CLT_FORMAT,
                        "%s: %lld tokens are fewer than a sample of %lld and the one after it: "
                        "shorter samples would do",
                        r->path, (long long)all, (long long)t->length);
    *count = total;
    clt_status status = CLT_OK;
    if (divide)
        status = clt_data_tenths(r->path, total, r->test, &t->offset, count);
    /* Those without samples stay at the end, to be freed, and are never found. */
    for (int i = kept; i < t->n_shards; i++)
        t->shards[i].first = INT64_MAX;
    return status;
}

static clt_status make(tokens *t, const clt_data_request *r, int64_t count, clt_dataset **out)
{
    static const char *const names[] = {"tokens", "targets"};
    clt_dataset *d;
    const clt_status made = clt_dataset_new_fetched(r->name, count, fetch, t, tokens_free, &d);
    if (made != CLT_OK) {
        tokens_free(t);
        return made;
    }
    clt_status status = CLT_OK;
    for (int f = 0; f < 2 && status == CLT_OK; f++) {
        status =
            clt_dataset_add_field(d, names[f], CLT_I32, 1, &t->length, NULL, CLT_DATA_BORROW, NULL);
        if (status == CLT_OK)
            status = clt_dataset_set_classes(d, f, t->vocabulary);
    }
    for (int i = 0; i < t->n_shards; i++) {
        const shard *s = &t->shards[i];
        const size_t bytes = s->bytes < HASHED ? s->bytes : HASHED;
        d->content = clt_hash(&s->count, sizeof s->count, d->content);
        if (bytes)
            d->content = clt_hash(s->map, bytes, d->content);
    }
    if (status == CLT_OK)
        *out = d;
    else
        clt_dataset_free(d);
    return status;
}

static clt_status open_windows(const clt_data_request *r, int width, clt_dataset **out)
{
    struct stat info;
    tokens *t = CLT_NEW(tokens);
    if (!t)
        return CLT_OUT_OF_MEMORY;
    t->width = width;
    t->length = r->options->sequence ? r->options->sequence : DEFAULT_LENGTH;
    int64_t count = 0;
    const bool folder = stat(r->path, &info) == 0 && S_ISDIR(info.st_mode);
    clt_status status =
        folder ? add_folder(t, r, width == 1 ? ".txt" : ".bin") : add_shard(t, clt_strdup(r->path));
    if (status == CLT_OK)
        status = count_samples(t, r, !folder, &count);
    if (status == CLT_OK)
        status = find_vocabulary(t, r);
    if (status != CLT_OK) {
        tokens_free(t);
        return status;
    }
    return make(t, r, count, out);
}

clt_status clt_open_tokens(const clt_data_request *r, clt_dataset **out)
{
    return open_windows(r, 2, out);
}

clt_status clt_open_text(const clt_data_request *r, clt_dataset **out)
{
    return open_windows(r, 1, out);
}
