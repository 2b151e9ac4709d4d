/* A model file's JSON, and the lines of its parts. */
#ifndef CLTRAIN_MODELS_FILE_TEXT_H
#define CLTRAIN_MODELS_FILE_TEXT_H

#include <jansson.h>

#include <cltrain/status.h>

typedef struct model_text {
    const char *path;
    char *bytes;
    size_t length;
    json_t *root; /* always an object */
} model_text;

/* Reads the file. Errors: NOT_FOUND, IO, FORMAT (with line and column). After an error there is
 * nothing to free. */
clt_status model_text_read(const char *path, model_text *out);

void model_text_free(model_text *text);

/* Fails with FORMAT and the message "PATH:LINE: ", followed by the formatted text. */
clt_status model_text_fail(const model_text *text, const json_t *container, const char *key,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
