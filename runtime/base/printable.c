/* Makes text from outside fit for a terminal. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cltrain/text.h>

/* Decodes the UTF-8 character at `p`. Returns its bytes, 0 if it is invalid (RFC 3629). *code gets
 * its number. */
static int decode(const unsigned char *p, unsigned *code)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    const int bytes = p[0] < 0x80             ? 1
                      : (p[0] & 0xe0) == 0xc0 ? 2
                      : (p[0] & 0xf0) == 0xe0 ? 3
                      : (p[0] & 0xf8) == 0xf0 ? 4
                                              : 0;
    if (!bytes)
        return 0;
    unsigned number = bytes == 1 ? p[0] : p[0] & (0xffu >> (bytes + 1));
    for (int i = 1; i < bytes; i++) { /* the text's final 0 byte ends this loop too */
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        number = number << 6 | (p[i] & 0x3fu);
    }
    if (number < least[bytes] || number > 0x10ffff || (number >= 0xd800 && number <= 0xdfff))
        return 0;
    *code = number;
    return bytes;
}

static bool is_shown(unsigned code)
{
    const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    const bool separates = code == 0x2028 || code == 0x2029;
    const bool turns = code == 0x061c || code == 0x200e || code == 0x200f ||
                       (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return !control && !separates && !turns;
}

/* The state of the output. `length` may exceed `room`. */
typedef struct writing {
    char *out;
    int64_t room, length;
    bool full;
} writing;

/* Writes all bytes of a character or none, so that a cut text has only whole characters. */
static void put(writing *w, const char *bytes, int count)
{
    w->full = w->full || w->length + count >= w->room;
    if (!w->full) {
        memcpy(w->out + w->length, bytes, (size_t)count);
        w->out[w->length + count] = '\0';
    }
    w->length += count;
}

static void put_escaped(writing *w, unsigned char byte)
{
    char text[8];
    const char letter = byte == '\n' ? 'n' : byte == '\r' ? 'r' : byte == '\t' ? 't' : 'x';
    if (letter == 'x')
        snprintf(text, sizeof text, "\\x%02x", byte);
    else
        snprintf(text, sizeof text, "\\%c", letter);
    put(w, text, (int)strlen(text));
}

int64_t clt_printable(const char *text, char *out, int64_t room)
{
    writing w = {.out = out, .room = room};
    if (room > 0)
        *out = '\0';
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        unsigned code = 0;
        const int bytes = decode(p, &code);
        if (bytes && is_shown(code))
            put(&w, (const char *)p, bytes);
        for (int i = 0; i < (bytes ? bytes : 1) && !(bytes && is_shown(code)); i++)
            put_escaped(&w, p[i]);
        p += bytes ? bytes : 1;
    }
    return w.length;
}
