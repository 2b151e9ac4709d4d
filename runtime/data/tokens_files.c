/*
 * Which files tokens come from, and where they lie in them: 16-bit numbers as nanoGPT and llm.c
 * write them, llm.c's of 32 bits, or the bytes of a text.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "base/vec.h"
#include "data/listing.h"
#include "data/tokens.h"

/* llm.c's header: 256 numbers of 32 bits, of which the first three mean something. */
enum { HEADER_BYTES = 1024 };

/* What the header says: GPT-2's tokens, and Llama 3's. */
typedef struct header_kind {
    int64_t magic, version;
    int width;
} header_kind;

static const header_kind header_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

void clt_tokens_drop_files(clt_tokens *t)
{
    for (int i = 0; i < t->n_shards; i++) {
        if (t->shards[i].map)
            munmap(t->shards[i].map, t->shards[i].bytes);
        clt_free(t->shards[i].path);
    }
    clt_free(t->shards);
    t->shards = NULL;
    t->n_shards = 0;
}

static int64_t number_at(const clt_shard *s, int i)
{
    const unsigned char *p = (const unsigned char *)s->map + 4 * i;
    return (int64_t)p[0] | (int64_t)p[1] << 8 | (int64_t)p[2] << 16 | (int64_t)p[3] << 24;
}

static clt_status check_header(const clt_shard *s, const header_kind *kind)
{
    const int64_t version = number_at(s, 1), announced = number_at(s, 2);
    const int64_t held = (int64_t)(s->bytes - HEADER_BYTES);
    if (version != kind->version)
        return clt_fail(CLT_FORMAT, "%s: version %lld of llm.c's header, not %lld", s->path,
                        (long long)version, (long long)kind->version);
    if (held != kind->width * announced)
        return clt_fail(CLT_FORMAT,
                        "%s: %s: its header announces %lld tokens of %d bytes, but %lld bytes "
                        "follow it",
                        s->path, held < kind->width * announced ? "truncated" : "trailing bytes",
                        (long long)announced, kind->width, (long long)held);
    return CLT_OK;
}

/* Where the tokens lie in a file of numbers. */
static clt_status read_header(clt_shard *s)
{
    const int64_t magic = s->bytes >= HEADER_BYTES ? number_at(s, 0) : 0;
    size_t header = 0;
    s->width = 2;
    for (size_t i = 0; i < sizeof header_kinds / sizeof *header_kinds; i++)
        if (magic == header_kinds[i].magic) {
            CLT_TRY(check_header(s, &header_kinds[i]));
            header = HEADER_BYTES;
            s->width = header_kinds[i].width;
        }
    if ((s->bytes - header) % (size_t)s->width)
        return clt_fail(CLT_FORMAT, "%s: %lld bytes are not a number of 16-bit tokens", s->path,
                        (long long)(s->bytes - header));
    s->tokens = (const unsigned char *)s->map + header;
    s->count = (int64_t)(s->bytes - header) / s->width;
    return CLT_OK;
}

static clt_status map_file(clt_shard *s)
{
    const int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        const clt_status status =
            clt_fail(errno == ENOENT || errno == ENOTDIR ? CLT_NOT_FOUND : CLT_IO,
                     "%s: cannot be opened: %s", s->path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    if (!S_ISREG(info.st_mode)) {
        close(fd);
        return clt_fail(CLT_IO, "%s: is not a regular file", s->path);
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
static clt_status add_shard(clt_tokens *t, char *path)
{
    const clt_status pushed =
        path ? CLT_PUSH(t->shards, t->n_shards, t->room, (clt_shard){.path = path})
             : CLT_OUT_OF_MEMORY;
    if (pushed != CLT_OK) {
        clt_free(path);
        return pushed;
    }
    clt_shard *s = &t->shards[t->n_shards - 1];
    CLT_TRY(map_file(s));
    s->width = t->text ? 1 : 2;
    if (!t->text)
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

static clt_status no_file(const clt_data_request *r, const char *ending)
{
    return clt_fail(CLT_NOT_FOUND, "%s: no file's name has the word %s and ends in %s", r->path,
                    r->test ? "val or test" : "train", ending);
}

static clt_status add_folder(clt_tokens *t, const clt_data_request *r, const char *ending)
{
    clt_listing list;
    name_rule rule = {ending, r->test};
    clt_status status = clt_listing_read(r->path, is_of_split, &rule, &list);
    for (int i = 0; status == CLT_OK && i < list.count; i++)
        status = add_shard(t, join(r->path, list.names[i]));
    if (status == CLT_OK && !list.count)
        status = no_file(r, ending);
    clt_listing_free(&list);
    return status;
}

/* Of the files that a shell's pattern matches, by name, those of the split. */
static clt_status add_pattern(clt_tokens *t, const clt_data_request *r, const char *ending)
{
    glob_t found = {0};
    name_rule rule = {ending, r->test};
    const int failed = glob(r->path, GLOB_BRACE, NULL, &found);
    clt_status status = failed && failed != GLOB_NOMATCH
                            ? clt_fail(CLT_IO, "%s: cannot be listed", r->path)
                            : CLT_OK;
    for (size_t i = 0; status == CLT_OK && i < found.gl_pathc; i++) {
        const char *slash = strrchr(found.gl_pathv[i], '/');
        if (is_of_split(slash ? slash + 1 : found.gl_pathv[i], &rule))
            status = add_shard(t, clt_strdup(found.gl_pathv[i]));
    }
    if (status == CLT_OK && !t->n_shards)
        status = no_file(r, ending);
    globfree(&found);
    return status;
}

clt_status clt_tokens_add_files(clt_tokens *t, const clt_data_request *r, bool *divided)
{
    struct stat info;
    const char *ending = t->text ? ".txt" : ".bin";
    const bool there = stat(r->path, &info) == 0;
    *divided = false;
    if (there && S_ISDIR(info.st_mode))
        return add_folder(t, r, ending);
    if (!there && strpbrk(r->path, "*?[{"))
        return add_pattern(t, r, ending);
    *divided = true;
    return add_shard(t, clt_strdup(r->path));
}

/* --- vocabulary ------------------------------------------------------------------------------- */

clt_status clt_tokens_read_vocabulary(const clt_shard *s, int64_t *size)
{
    clt_str path = {0};
    const size_t length = strlen(s->path);
    clt_str_add(&path, "%.*s.json", (int)(length - (clt_ends_in(s->path, ".bin") ? 4 : 0)),
                s->path);
    clt_status status = path.failed ? CLT_OUT_OF_MEMORY : CLT_OK;
    const int most = s->width == 2 ? UINT16_MAX + 1 : INT32_MAX;
    *size = 0;
    if (status == CLT_OK && access(clt_str_text(&path), F_OK) == 0) {
        json_error_t error;
        json_t *root = json_load_file(clt_str_text(&path), 0, &error);
        const json_t *value = json_object_get(root, "vocab_size");
        *size = json_integer_value(value);
        if (!root)
            status = clt_fail(CLT_FORMAT, "%s: line %d: %s", clt_str_text(&path), error.line,
                              error.text);
        else if (!json_is_integer(value) || *size < 1 || *size > most)
            status = clt_fail(CLT_FORMAT, "%s: vocab_size is not a number of 1 to %d",
                              clt_str_text(&path), most);
        json_decref(root);
    }
    clt_str_free(&path);
    return status;
}
