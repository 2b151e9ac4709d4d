/* A model file's JSON, and on which line a part of it stands. */
#ifndef CLTRAIN_MODELS_FILE_TEXT_H
#define CLTRAIN_MODELS_FILE_TEXT_H

#include <jansson.h>

#include <cltrain/status.h>

typedef struct model_text {
    const char *path;
    char *bytes;
    size_t length;
    json_t *root; /* an object */
} model_text;

/* Errors: NOT_FOUND, IO, FORMAT (with line and column). Then there is nothing to free. */
clt_status model_text_read(const char *path, model_text *out);

void model_text_free(model_text *text);

/* The line (1 is the first) where an object or array of the tree begins, or one of an object's
 * keys; key NULL: the container itself. */
int model_text_line(const model_text *text, const json_t *container, const char *key);

/* Fails with FORMAT: "PATH:LINE: " and the message (printf), for such a place. */
clt_status model_text_fail(const model_text *text, const json_t *container, const char *key,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
