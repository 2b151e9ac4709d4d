/* Printing of UTF-8 text that arrives in pieces. A piece may end within a character. */
#ifndef CLTRAIN_COMMAND_TEXT_UTF8_H
#define CLTRAIN_COMMAND_TEXT_UTF8_H

#include <stddef.h>

typedef struct utf8 {
    unsigned char held[4]; /* the first bytes of an incomplete character */
    int n;
} utf8;

/* Prints whole characters, and U+FFFD for invalid bytes. Keeps an incomplete character until its
 * other bytes arrive. Control characters could do anything to a terminal, so all but newline and
 * tab are printed as \x1b or \u0085. */
void utf8_print(utf8 *u, const char *text, size_t bytes);

/* Prints U+FFFD if an incomplete character is left. */
void utf8_end(utf8 *u);

#endif
