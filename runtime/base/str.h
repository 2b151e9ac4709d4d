/* A growable string. str.c also has clt_nearest, which <cltrain/status.h> declares. */
#ifndef CLT_BASE_STR_H
#define CLT_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>

#include <cltrain/export.h>
#include <cltrain/status.h>

/* Start with {0}. `text` is NULL until something was added; see clt_str_text. */
typedef struct clt_str {
    char *text;
    size_t length, room;
    bool failed; /* an allocation failed: the text is incomplete */
} clt_str;

/* Appends formatted text. A failed allocation is remembered in `failed`. */
void clt_str_add(clt_str *s, const char *format, ...) CLT_PRINTF(2, 3);

/* Returns the text, "" if empty. It is valid until the next change. */
const char *clt_str_text(const clt_str *s);

/* Empties the string, keeping its memory. */
void clt_str_clear(clt_str *s);

/* Frees the memory; the string is {0} again. */
void clt_str_free(clt_str *s);

#endif
