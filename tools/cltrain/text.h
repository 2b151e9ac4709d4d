/* Files of text. */
#ifndef CLTRAIN_COMMAND_TEXT_H
#define CLTRAIN_COMMAND_TEXT_H

#include <stddef.h>

/* The whole file, which is the caller's to free; NULL after a message. */
char *read_text(const char *path, size_t *bytes);

#endif
