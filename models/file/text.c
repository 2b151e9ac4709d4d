#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cltrain/text.h>
#include <yajl/yajl_parse.h>

#include "builders.h"

enum { MOST_BYTES = 64 << 20 };

static clt_status read_bytes(const char *path, model_text *out)
{
    int fd;
    const clt_status opened = clt_text_open(path, &fd);
    if (opened != CLT_OK)
        return clt_model_fail(opened, "model file %s", clt_error_message());
    FILE *file = fdopen(fd, "rb");
    if (!file) {
        close(fd);
        return clt_model_fail(CLT_OUT_OF_MEMORY, "memory does not suffice for %s", path);
    }
    size_t room = 1 << 16;
    clt_status status = CLT_OK;
    out->bytes = malloc(room);
    out->length = 0;
    while (out->bytes && status == CLT_OK) {
        const size_t got = fread(out->bytes + out->length, 1, room - out->length, file);
        out->length += got;
        if (!got)
            break;
        if (out->length > MOST_BYTES)
            status = clt_model_fail(CLT_FORMAT, "model file %s: larger than 64 MiB", path);
        if (out->length < room)
            continue;
        char *more = realloc(out->bytes, room *= 2);
        if (!more)
            free(out->bytes);
        out->bytes = more;
    }
    if (!out->bytes)
        status = clt_model_fail(CLT_OUT_OF_MEMORY, "memory does not suffice for %s", path);
    else if (ferror(file))
        status = clt_model_fail(CLT_IO, "model file %s: cannot be read: %s", path, strerror(errno));
    fclose(file);
    if (status != CLT_OK)
        free(out->bytes);
    return status;
}

static int has_control(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return 1;
    return 0;
}

/* Returns the container of a key or text with a line break or another control character; NULL if
 * there is none. Messages and tables show names as they are, one line each. */
static const json_t *find_control(const json_t *tree)
{
    size_t i;
    json_t *child;
    const char *key;
    const json_t *found = NULL;
    json_array_foreach(tree, i, child)
    {
        found = json_is_string(child) && has_control(json_string_value(child))
                    ? tree
                    : find_control(child);
        if (found)
            return found;
    }
    json_object_foreach((json_t *)tree, key, child)
    {
        const int own =
            has_control(key) || (json_is_string(child) && has_control(json_string_value(child)));
        found = own ? tree : find_control(child);
        if (found)
            return found;
    }
    return NULL;
}

clt_status model_text_read(const char *path, model_text *out)
{
    model_text text = {.path = path};
    clt_status status = read_bytes(path, &text);
    if (status != CLT_OK)
        return status;
    json_error_t error;
    text.root = json_loadb(text.bytes, text.length, JSON_REJECT_DUPLICATES, &error);
    if (!text.root)
        status = clt_model_fail(CLT_FORMAT, "%s:%d: column %d: %s", path, error.line, error.column,
                                error.text);
    else if (!json_is_object(text.root))
        status =
            clt_model_fail(CLT_FORMAT, "%s:1: a model file is an object: {\"nodes\": [...]}", path);
    const json_t *control = status == CLT_OK ? find_control(text.root) : NULL;
    if (control)
        status = model_text_fail(&text, control, NULL,
                                 "a name or text here has a line break or another control "
                                 "character: remove it");
    if (status != CLT_OK)
        model_text_free(&text);
    else
        *out = text;
    return status;
}

void model_text_free(model_text *text)
{
    json_decref(text->root);
    free(text->bytes);
    text->root = NULL;
    text->bytes = NULL;
}

/* Counts containers in the order in which they begin, until `wanted`. jansson's tree and yajl's
 * events have this order. */
static int index_of(const json_t *tree, const json_t *wanted, int *index)
{
    if (!json_is_object(tree) && !json_is_array(tree))
        return 0;
    if (tree == wanted)
        return 1;
    ++*index;
    size_t i;
    json_t *child;
    const char *key;
    json_array_foreach(tree, i, child) if (index_of(child, wanted, index)) return 1;
    json_object_foreach((json_t *)tree, key, child) if (index_of(child, wanted, index)) return 1;
    return 0;
}

/* A pass through the text, to a container and to a key in it. */
typedef struct search {
    yajl_handle handle;
    int begun, wanted; /* containers so far; index of the wanted container */
    int depth, inside; /* nesting depth; depth of the wanted container's keys, 0 before it */
    const char *key;
    size_t offset; /* offset of the match */
} search;

static int on_begin(void *user)
{
    search *s = user;
    s->depth++;
    if (s->begun++ != s->wanted)
        return 1;
    s->offset = yajl_get_bytes_consumed(s->handle);
    s->inside = s->depth;
    return s->key != NULL; /* 0 stops the parser */
}

static int on_end(void *user)
{
    search *s = user;
    return s->depth-- != s->inside;
}

static int on_key(void *user, const unsigned char *key, size_t length)
{
    search *s = user;
    if (s->depth != s->inside || strlen(s->key) != length || memcmp(s->key, key, length) != 0)
        return 1;
    s->offset = yajl_get_bytes_consumed(s->handle);
    return 0;
}

/* Returns the line, counted from 1, where an object or array of the tree begins, or where one of an
 * object's keys is. With key NULL it is the container's line. */
static int text_line(const model_text *text, const json_t *container, const char *key)
{
    static const yajl_callbacks callbacks = {.yajl_start_map = on_begin,
                                             .yajl_map_key = on_key,
                                             .yajl_end_map = on_end,
                                             .yajl_start_array = on_begin,
                                             .yajl_end_array = on_end};
    search s = {.key = key};
    index_of(text->root, container, &s.wanted);
    s.handle = yajl_alloc(&callbacks, NULL, &s);
    if (!s.handle)
        return 1;
    yajl_parse(s.handle, (const unsigned char *)text->bytes, text->length);
    yajl_free(s.handle);
    int line = 1;
    for (size_t i = 0; i < s.offset && i < text->length; i++)
        line += text->bytes[i] == '\n';
    return line;
}

clt_status model_text_fail(const model_text *text, const json_t *container, const char *key,
                           const char *format, ...)
{
    char message[768];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    return clt_model_fail(CLT_FORMAT, "%s:%d: %s", text->path, text_line(text, container, key),
                          message);
}
