/* Files of text. */
#ifndef CLTRAIN_COMMAND_TEXT_TEXT_H
#define CLTRAIN_COMMAND_TEXT_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* Opens what clt_text_open takes; NULL after a message. */
FILE *open_text(const char *path);

/* The whole file, which is the caller's to free; NULL after a message. */
char *read_text(const char *path, size_t *bytes);

#endif
