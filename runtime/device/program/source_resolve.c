#include "device/program/program.h"

#include <string.h>

#include "base/vec.h"
#include "device/program/kernel_source.h"

enum { MAX_DEPTH = 16 };

typedef struct resolver {
    const char **seen; /* files that were added to `out` */
    int count, room;
    clt_str *out;
} resolver;

const char *clt_source_find(const char *file)
{
    for (const clt_kernel_source *s = clt_kernel_sources; s->name; s++) {
        if (!strcmp(s->name, file))
            return s->text;
    }
    return NULL;
}

static const clt_kernel_source *find_row(const char *name)
{
    for (const clt_kernel_source *s = clt_kernel_sources; s->name; s++) {
        if (!strcmp(s->name, name))
            return s;
    }
    return NULL;
}

const clt_kernel_source *clt_source_include(const char *from, const char *name, size_t length)
{
    char path[256];
    const char *slash = strrchr(from, '/');
    size_t folder = slash ? (size_t)(slash - from) + 1 : 0;
    if (folder + length >= sizeof path)
        return NULL;
    memcpy(path, from, folder);
    memcpy(path + folder, name, length);
    path[folder + length] = '\0';
    const clt_kernel_source *found = find_row(path);
    return found ? found : find_row(path + folder);
}

/* Returns start and length of the name if the line is #include "name". */
static const char *include_name(const char *line, const char *end, size_t *length)
{
    const char *at = line;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    if (at == end || *at++ != '#')
        return NULL;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    if (end - at < 8 || strncmp(at, "include", 7) != 0)
        return NULL;
    at += 7;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    if (at == end || *at++ != '"')
        return NULL;
    const char *close = memchr(at, '"', (size_t)(end - at));
    if (!close)
        return NULL;
    *length = (size_t)(close - at);
    return at;
}

static clt_status add_text(resolver *r, const char *name, const char *text, int depth)
{
    if (depth > MAX_DEPTH)
        return clt_fail(CLT_INTERNAL, "kernel file %s: includes are nested too deeply", name);
    int number = 1;
    clt_str_add(r->out, "#line 1 \"%s\"\n", name);
    for (const char *line = text; *line; number++) {
        const char *newline = strchr(line, '\n');
        const char *end = newline ? newline : line + strlen(line);
        size_t length = 0;
        const char *wanted = include_name(line, end, &length);
        if (!wanted) {
            clt_str_add(r->out, "%.*s\n", (int)(end - line), line);
        } else {
            const clt_kernel_source *file = clt_source_include(name, wanted, length);
            if (!file)
                return clt_fail(CLT_NOT_FOUND,
                                "kernel file %s, line %d: there is no embedded file \"%.*s\"", name,
                                number, (int)length, wanted);
            bool known = false;
            for (int i = 0; i < r->count && !known; i++)
                known = r->seen[i] == file->name;
            if (!known) {
                CLT_TRY(CLT_PUSH(r->seen, r->count, r->room, file->name));
                CLT_TRY(add_text(r, file->name, file->text, depth + 1));
            }
            clt_str_add(r->out, "#line %d \"%s\"\n", number + 1, name);
        }
        line = newline ? newline + 1 : end;
    }
    return r->out->failed ? CLT_OUT_OF_MEMORY : CLT_OK;
}

clt_status clt_source_resolve(const char *name, const char *text, clt_str *out)
{
    resolver r = {.out = out};
    if (!text) {
        const clt_kernel_source *row = find_row(name);
        if (!row)
            return clt_fail(CLT_NOT_FOUND, "kernel file %s is not part of this library", name);
        /* Use the table's pointer, so that a file that includes itself is found in `seen`. */
        name = row->name;
        text = row->text;
        CLT_TRY(CLT_PUSH(r.seen, r.count, r.room, name));
    }
    clt_status status = add_text(&r, name, text, 0);
    clt_free(r.seen);
    return status;
}
