/* Reading of text files. */
#ifndef CLTRAIN_COMMAND_TEXT_TEXT_H
#define CLTRAIN_COMMAND_TEXT_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* Opens a text file as clt_text_open does. Returns NULL after a message. */
FILE *open_text(const char *path);

/* Reads the whole file into memory that the caller frees. The text has no closing zero. Returns
 * NULL after a message. */
char *read_text(const char *path, size_t *bytes);

#endif
