/* Loads checkpoints. A checkpoint is opened only if sizes and hashes of all its files are right. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/user_file.h"
#include "base/str.h"
#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/state.h"

/* Sections are small: a larger file is no state.json. */
enum { MOST_STATE_BYTES = 256 << 20 };

struct clt_checkpoint {
    char *path;
    clt_state state;
    clt_tensors *parts[CLT_PARTS];
};

/* Returns `folder`/`name`. Free it with clt_free. */
static char *join(const char *folder, const char *name)
{
    size_t length = strlen(folder), bytes = length + strlen(name) + 2;
    char *path = clt_alloc(bytes);
    if (path)
        snprintf(path, bytes, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/",
                 name);
    return path;
}

static clt_status load_state(clt_checkpoint *c)
{
    char *path = join(c->path, CLT_STATE_FILE), *text = NULL;
    size_t bytes = 0;
    CLT_TRY_MEMORY(path);
    struct stat info;
    const bool other = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
    clt_status status = clt_file_read_all(path, MOST_STATE_BYTES, &text, &bytes);
    clt_free(path);
    if (status == CLT_NOT_FOUND)
        return clt_fail(CLT_FORMAT, CLT_STATE_FILE ": it is missing");
    if (status != CLT_OK) /* a pipe or folder of this name counts as damage */
        return other ? CLT_FORMAT : status;
    status = clt_state_decode(text, bytes, &c->state);
    clt_free(text);
    if (status != CLT_OK)
        return clt_fail_prefix(status, CLT_STATE_FILE ": ");
    const char *base = strrchr(c->path, '/');
    clt_step_name name;
    if (clt_step_name_parse(base ? base + 1 : c->path, &name) && name.step != c->state.run.step)
        return clt_fail(CLT_FORMAT, CLT_STATE_FILE ": it is of step %lld",
                        (long long)c->state.run.step);
    return CLT_OK;
}

static clt_status load_part_from(const char *path, const clt_part *wanted, bool apart,
                                 clt_tensors **out)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return errno == ENOENT || errno == ENOTDIR ? clt_fail(CLT_FORMAT, "it is missing")
                                                   : clt_fail(CLT_IO, "%s", strerror(errno));
    if ((int64_t)info.st_size != wanted->bytes)
        return clt_fail(CLT_FORMAT, "it has %lld bytes instead of %lld", (long long)info.st_size,
                        (long long)wanted->bytes);
    clt_tensors *tensors;
    int64_t bytes;
    uint64_t hash;
    CLT_TRY(apart ? clt_tensors_open_apart(path, &tensors) : clt_tensors_open(path, &tensors));
    clt_status status = clt_tensors_hash(tensors, &bytes, &hash);
    if (status == CLT_OK && (bytes != wanted->bytes || hash != wanted->hash))
        status = clt_fail(CLT_FORMAT, "its content does not match its hash in " CLT_STATE_FILE);
    if (status != CLT_OK)
        clt_tensors_close(tensors);
    else
        *out = tensors;
    return status;
}

static clt_status load_part(clt_checkpoint *c, int index, bool apart)
{
    char *path = join(c->path, clt_part_files[index]);
    CLT_TRY_MEMORY(path);
    clt_status status = load_part_from(path, &c->state.parts[index], apart, &c->parts[index]);
    if (status != CLT_OK && !strstr(clt_error_message(), path))
        clt_fail_prefix(status, "%s: ", clt_part_files[index]);
    clt_free(path);
    return status;
}

/* Opens this step's folder, and no other instead. `apart`: tensors stay in the files. */
static clt_status load_step(const char *path, bool apart, clt_checkpoint **out)
{
    clt_checkpoint *c = CLT_NEW(clt_checkpoint);
    CLT_TRY_MEMORY(c);
    c->path = clt_strdup(path);
    clt_status status = c->path ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, load_state(c));
    for (int i = 0; status == CLT_OK && i < CLT_PARTS; i++)
        if (c->state.parts[i].there)
            status = load_part(c, i, apart);
    if (status != CLT_OK) {
        clt_checkpoint_close(c);
        return status;
    }
    *out = c;
    return CLT_OK;
}

/* Adds to the current message which checkpoint before `path` could be used instead. */
static clt_status refuse(clt_status status, const char *dir, const char *path, int64_t step)
{
    if (status == CLT_OUT_OF_MEMORY)
        return clt_fail_prefix(status, "checkpoint %s: ", path);
    clt_str message = {0};
    clt_str_add(&message, "checkpoint %s %s: %s", path,
                status == CLT_FORMAT ? "is damaged" : "cannot be read", clt_error_message());
    clt_step_name *items = NULL;
    int count = 0;
    bool offered = false;
    clt_checkpoint *candidate;
    if (dir && clt_folder_list(dir, &items, &count) == CLT_OK) {
        for (int i = 0; !offered && i < count; i++) {
            bool before = items[i].step < step || (items[i].step == step && items[i].displaced);
            char *other = before ? join(dir, items[i].text) : NULL;
            if (other && strcmp(other, path) != 0 && load_step(other, true, &candidate) == CLT_OK) {
                clt_checkpoint_close(candidate);
                clt_str_add(&message,
                            "; the newest intact one before it is %s: remove or rename the other "
                            "to go on from it",
                            other);
                offered = true;
            }
            clt_free(other);
        }
    }
    if (!offered)
        clt_str_add(&message, "; there is no intact one before it");
    clt_free(items);
    clt_fail(status, "%s", clt_str_text(&message));
    clt_str_free(&message);
    return status;
}

/* Opens the newest checkpoint. *gone: it was removed while it was read. A run that keeps only its
 * last checkpoints does so. */
static clt_status try_newest(const char *dir, bool apart, bool *gone, clt_checkpoint **out)
{
    clt_step_name *items;
    int count;
    *gone = false;
    CLT_TRY(clt_folder_list(dir, &items, &count));
    if (!count) {
        clt_free(items);
        return clt_fail(CLT_NOT_FOUND, "%s holds no checkpoint (no folder step-N)", dir);
    }
    char *path = join(dir, items[0].text);
    clt_status status = path ? load_step(path, apart, out) : CLT_OUT_OF_MEMORY;
    *gone = path && status != CLT_OK && access(path, F_OK) != 0;
    if (path && status != CLT_OK)
        status = refuse(status, dir, path, items[0].step);
    CLT_FREE(path, items);
    return status;
}

static clt_status open_newest(const char *dir, bool apart, clt_checkpoint **out)
{
    enum { TRIES = 20 };
    bool gone = true;
    clt_status status = CLT_OK;
    for (int i = 0; gone && i < TRIES; i++)
        status = try_newest(dir, apart, &gone, out);
    return status;
}

static clt_status open_step(const char *path, const clt_step_name *name, bool apart,
                            clt_checkpoint **out)
{
    clt_status status = load_step(path, apart, out);
    if (status == CLT_OK)
        return CLT_OK;
    if (!name)
        return refuse(status, NULL, path, 0);
    char *dir = clt_strdup(path);
    CLT_TRY_MEMORY(dir);
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = '\0';
    status = refuse(status, slash ? dir : ".", path, name->step);
    clt_free(dir);
    return status;
}

static clt_status open_checkpoint(const char *path, bool apart, clt_checkpoint **out)
{
    CLT_TRY(clt_path_given(path, "a checkpoint"));
    char *trimmed = clt_strdup(path);
    CLT_TRY_MEMORY(trimmed);
    for (size_t end = strlen(trimmed); end > 1 && trimmed[end - 1] == '/'; end--)
        trimmed[end - 1] = '\0';
    const char *base = strrchr(trimmed, '/');
    clt_step_name name;
    bool named = clt_step_name_parse(base ? base + 1 : trimmed, &name);
    char *state = join(trimmed, CLT_STATE_FILE);
    struct stat info;
    clt_status status;
    if (!state)
        status = CLT_OUT_OF_MEMORY;
    else if (stat(trimmed, &info) != 0)
        status = clt_fail(errno == ENOENT || errno == ENOTDIR ? CLT_NOT_FOUND : CLT_IO,
                          "checkpoint %s: %s", path, strerror(errno));
    else if (named || access(state, F_OK) == 0)
        status = open_step(trimmed, named ? &name : NULL, apart, out);
    else
        status = open_newest(trimmed, apart, out);
    CLT_FREE(state, trimmed);
    return status;
}

clt_status clt_checkpoint_open(const char *path, clt_checkpoint **out)
{
    return open_checkpoint(path, false, out);
}

clt_status clt_checkpoint_open_apart(const char *path, clt_checkpoint **out)
{
    return open_checkpoint(path, true, out);
}

static clt_status give_path(const clt_checkpoint *c, int64_t room, char *found)
{
    const size_t bytes = strlen(c->path) + 1;
    if (room < 0 || bytes > (size_t)room)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "the path of the checkpoint needs %zu bytes, not %lld", bytes,
                        (long long)room);
    memcpy(found, c->path, bytes);
    return CLT_OK;
}

clt_status clt_checkpoint_find(const char *path, int64_t room, char *found)
{
    clt_checkpoint *c;
    CLT_TRY(clt_checkpoint_open_apart(path, &c));
    const clt_status status = give_path(c, room, found);
    clt_checkpoint_close(c);
    return status;
}

clt_status clt_checkpoint_find_intact(const char *dir, int64_t room, char *found)
{
    clt_step_name *items;
    int count;
    CLT_TRY(clt_folder_list(dir, &items, &count));
    clt_status status =
        count ? CLT_FORMAT
              : clt_fail(CLT_NOT_FOUND, "%s holds no checkpoint (no folder step-N)", dir);
    clt_checkpoint *c = NULL;
    for (int i = 0; i < count && status == CLT_FORMAT; i++) {
        char *path = join(dir, items[i].text);
        status = path ? load_step(path, true, &c) : CLT_OUT_OF_MEMORY;
        if (path && status != CLT_OK)
            clt_fail_prefix(status, "%s%s: ",
                            status == CLT_FORMAT ? "no checkpoint is intact; checkpoint "
                                                 : "checkpoint ",
                            path);
        clt_free(path);
    }
    clt_free(items);
    if (status == CLT_OK) {
        status = give_path(c, room, found);
        clt_checkpoint_close(c);
    }
    return status;
}

void clt_checkpoint_close(clt_checkpoint *c)
{
    if (!c)
        return;
    for (int i = 0; i < CLT_PARTS; i++)
        clt_tensors_close(c->parts[i]);
    clt_state_free(&c->state);
    CLT_FREE(c->path, c);
}

const char *clt_checkpoint_path(const clt_checkpoint *c)
{
    return c->path;
}

const clt_run_state *clt_checkpoint_run(const clt_checkpoint *c)
{
    return &c->state.run;
}

const clt_tensors *clt_checkpoint_model(const clt_checkpoint *c)
{
    return c->parts[CLT_PART_MODEL];
}

const clt_tensors *clt_checkpoint_optimizer(const clt_checkpoint *c)
{
    return c->parts[CLT_PART_OPTIMIZER];
}

const clt_tensors *clt_checkpoint_average(const clt_checkpoint *c)
{
    return c->parts[CLT_PART_AVERAGE];
}

const clt_section *clt_checkpoint_section(const clt_checkpoint *c, const char *name)
{
    for (int i = 0; i < c->state.section_count; i++)
        if (strcmp(c->state.sections[i].name, name) == 0)
            return &c->state.sections[i];
    return NULL;
}

const clt_section *clt_checkpoint_section_at(const clt_checkpoint *c, int index)
{
    return index >= 0 && index < c->state.section_count ? &c->state.sections[index] : NULL;
}
