#include "text/utf8.h"

#include <stdio.h>

/* Returns the length of the character that these n bytes begin, 0 if no character begins so. A
 * length above n means that bytes are missing. */
static int length_of(const unsigned char *c, int n)
{
    const int length = c[0] < 0x80   ? 1
                       : c[0] < 0xC2 ? 0
                       : c[0] < 0xE0 ? 2
                       : c[0] < 0xF0 ? 3
                       : c[0] < 0xF5 ? 4
                                     : 0;
    for (int i = 1; i < n && i < length; i++)
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    if (n > 1 && ((c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xED && c[1] > 0x9F) ||
                  (c[0] == 0xF0 && c[1] < 0x90) || (c[0] == 0xF4 && c[1] > 0x8F)))
        return 0;
    return length;
}

static void print_character(const unsigned char *c, int length)
{
    if (length == 1 && ((*c < ' ' && *c != '\n' && *c != '\t') || *c == 127))
        printf("\\x%02x", *c);
    else if (length == 2 && c[0] == 0xC2 && c[1] < 0xA0)
        printf("\\u00%02x", c[1]);
    else
        fwrite(c, 1, (size_t)length, stdout);
}

/* Prints all complete characters among the held bytes. */
static void settle(utf8 *u)
{
    while (u->n) {
        const int length = length_of(u->held, u->n);
        if (length > u->n)
            return;
        const int taken = length ? length : 1;
        if (length)
            print_character(u->held, length);
        else
            fputs("\xEF\xBF\xBD", stdout);
        u->n -= taken;
        for (int i = 0; i < u->n; i++)
            u->held[i] = u->held[i + taken];
    }
}

void utf8_print(utf8 *u, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        u->held[u->n++] = (unsigned char)text[i];
        settle(u);
    }
}

void utf8_end(utf8 *u)
{
    if (u->n)
        fputs("\xEF\xBF\xBD", stdout);
    u->n = 0;
}
