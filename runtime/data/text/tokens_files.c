/*
 * Finds the files of tokens, and where the tokens lie in them. Files hold 16-bit numbers as nanoGPT
 * and llm.c write them, llm.c's 32-bit numbers, or the bytes of a text.
 */
#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/user_file.h"
#include "base/str.h"
#include "base/vec.h"
#include "data/files/listing.h"
#include "data/text/tokens.h"

/* llm.c's header has 256 numbers of 32 bits. Only the first three are used. */
enum { HEADER_BYTES = 1024, HEADER_NUMBERS = 3 };

/* This many files stay open. Further files are opened for each read, because a process may have a
 * limit of 1024. */
enum { HELD_FILES = 256 };

/* Upper limit of the bytes of NAME.json. */
enum { MOST_NOTE_BYTES = 1 << 20 };

/* The headers of llm.c: for GPT-2's tokens, and for Llama 3's. */
typedef struct header_kind {
    int64_t magic, version;
    int width;
} header_kind;

static const header_kind header_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

void clt_tokens_drop_files(clt_tokens *t)
{
    for (int i = 0; i < t->n_shards; i++) {
        if (t->shards[i].fd >= 0)
            close(t->shards[i].fd);
        clt_free(t->shards[i].path);
    }
    clt_free(t->shards);
    t->shards = NULL;
    t->n_shards = 0;
}

/* Whether the file is still the same. The system reuses an inode's number after its file was
 * deleted, so the time of change is compared too. */
static bool is_same(const clt_shard *s, const struct stat *info)
{
    return info->st_dev == s->device && info->st_ino == s->inode &&
           info->st_mtim.tv_sec == s->changed.tv_sec && info->st_mtim.tv_nsec == s->changed.tv_nsec;
}

static clt_status open_again(const clt_shard *s, int *fd)
{
    struct stat info;
    int64_t bytes;
    CLT_TRY(clt_file_open(s->path, fd, &bytes));
    if (fstat(*fd, &info) == 0 && is_same(s, &info))
        return CLT_OK;
    close(*fd);
    return clt_fail(CLT_IO, "%s: was changed or replaced while it was read", s->path);
}

clt_status clt_shard_read(const clt_shard *s, int64_t offset, void *to, int64_t bytes)
{
    if (s->fd >= 0)
        return clt_file_read_at(s->fd, s->path, offset, to, bytes);
    int fd;
    CLT_TRY(open_again(s, &fd));
    const clt_status status = clt_file_read_at(fd, s->path, offset, to, bytes);
    close(fd);
    return status;
}

static clt_status check_header(const clt_shard *s, const header_kind *kind, const int64_t *numbers)
{
    const int64_t version = numbers[1], announced = numbers[2], held = s->bytes - HEADER_BYTES;
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

/* Finds where the tokens lie in a file of numbers. */
static clt_status read_header(clt_shard *s)
{
    unsigned char raw[4 * HEADER_NUMBERS] = {0};
    int64_t numbers[HEADER_NUMBERS];
    if (s->bytes >= HEADER_BYTES)
        CLT_TRY(clt_shard_read(s, 0, raw, sizeof raw));
    for (int i = 0; i < HEADER_NUMBERS; i++)
        numbers[i] = clt_token_at(raw, 4, i);
    s->width = 2;
    for (size_t i = 0; i < sizeof header_kinds / sizeof *header_kinds; i++)
        if (numbers[0] == header_kinds[i].magic) {
            CLT_TRY(check_header(s, &header_kinds[i], numbers));
            s->header = HEADER_BYTES;
            s->width = header_kinds[i].width;
        }
    if ((s->bytes - s->header) % s->width)
        return clt_fail(CLT_FORMAT, "%s: %lld bytes are not a number of 16-bit tokens", s->path,
                        (long long)(s->bytes - s->header));
    s->count = (s->bytes - s->header) / s->width;
    return CLT_OK;
}

static clt_status open_file(clt_shard *s)
{
    struct stat info;
    CLT_TRY(clt_file_open(s->path, &s->fd, &s->bytes));
    if (fstat(s->fd, &info) != 0)
        return clt_fail(CLT_IO, "%s: cannot be read: %s", s->path, strerror(errno));
    s->device = info.st_dev;
    s->inode = info.st_ino;
    s->changed = info.st_mtim;
    return CLT_OK;
}

/* Adds a file. Takes ownership of `path`. A file with no more tokens than a sample's length has no
 * samples. */
static clt_status add_shard(clt_tokens *t, char *path)
{
    const clt_status pushed =
        path ? CLT_PUSH(t->shards, t->n_shards, t->room, (clt_shard){.path = path, .fd = -1})
             : CLT_OUT_OF_MEMORY;
    if (pushed != CLT_OK) {
        clt_free(path);
        return pushed;
    }
    clt_shard *s = &t->shards[t->n_shards - 1];
    CLT_TRY(open_file(s));
    s->width = t->text ? 1 : 2;
    s->count = t->text ? s->bytes : 0;
    if (!t->text && s->bytes)
        CLT_TRY(read_header(s));
    if (t->n_shards > HELD_FILES) {
        close(s->fd);
        s->fd = -1;
    }
    return CLT_OK;
}

/* --- which files ------------------------------------------------------------------------------ */

typedef struct name_rule {
    const char *ending;
    bool test, all;
} name_rule;

/* Whether `word` is in the name without letters next to it. */
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
    if (rule->all)
        return true;
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
    name_rule rule = {ending, r->test, r->all};
    clt_status status = clt_listing_read(r->path, is_of_split, &rule, &list);
    for (int i = 0; status == CLT_OK && i < list.count; i++)
        status = add_shard(t, join(r->path, list.names[i]));
    if (status == CLT_OK && !list.count)
        status = no_file(r, ending);
    clt_listing_free(&list);
    return status;
}

/* Adds the files of the split that a shell's pattern matches, sorted by name. */
static clt_status add_pattern(clt_tokens *t, const clt_data_request *r, const char *ending)
{
    glob_t found = {0};
    name_rule rule = {ending, r->test, r->all};
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
    *divided = !r->all;
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
        char *text = NULL;
        size_t bytes = 0;
        status = clt_file_read_all(clt_str_text(&path), MOST_NOTE_BYTES, &text, &bytes);
        json_t *root = status == CLT_OK ? json_loadb(text, bytes, 0, &error) : NULL;
        const json_t *value = json_object_get(root, "vocab_size");
        *size = json_integer_value(value);
        clt_free(text);
        if (status == CLT_OK && !root)
            status = clt_fail(CLT_FORMAT, "%s: line %d: %s", clt_str_text(&path), error.line,
                              error.text);
        else if (status == CLT_OK && (!json_is_integer(value) || *size < 1 || *size > most))
            status = clt_fail(CLT_FORMAT, "%s: vocab_size is not a number of 1 to %d",
                              clt_str_text(&path), most);
        json_decref(root);
    }
    clt_str_free(&path);
    return status;
}
