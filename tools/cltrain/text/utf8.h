/* Text that comes in pieces, which may end within a character. */
#ifndef CLTRAIN_COMMAND_TEXT_UTF8_H
#define CLTRAIN_COMMAND_TEXT_UTF8_H

#include <stddef.h>

typedef struct utf8 {
    unsigned char held[4]; /* the beginning of a character */
    int n;
} utf8;

/* Prints whole characters, and U+FFFD for bytes that are none; what is begun waits. Control
 * characters could do anything to a terminal: all but the line's end and the tab are printed as
 * \x1b or \u0085. */
void utf8_print(utf8 *u, const char *text, size_t bytes);

/* Prints U+FFFD if a character has been begun. */
void utf8_end(utf8 *u);

#endif
