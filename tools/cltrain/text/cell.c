#define _XOPEN_SOURCE 700 /* wcwidth */
#include "text/cell.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cltrain/text.h>

/* Widths are those of Unicode, whatever the user's locale. */
static locale_t unicode(void)
{
    static locale_t kept;
    if (!kept)
        kept = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    return kept;
}

/* Returns the bytes of the character at `text`, and its columns. */
static size_t next(const char *text, int *columns)
{
    wchar_t letter;
    mbstate_t state = {0};
    const size_t bytes = mbrtowc(&letter, text, strlen(text), &state);
    const int width = bytes && bytes < (size_t)-2 ? wcwidth(letter) : 1;
    *columns = width < 0 ? 1 : width;
    return bytes && bytes < (size_t)-2 ? bytes : 1;
}

/* Returns the bytes of `text` that fill at most `most` columns, with marks that combine with the
 * last letter. *columns gets how many they fill. */
static size_t fill(const char *text, int most, int *columns)
{
    const locale_t own = unicode() ? uselocale(unicode()) : (locale_t)0;
    size_t at = 0;
    *columns = 0;
    while (text[at]) {
        int width;
        const size_t bytes = next(text + at, &width);
        if (*columns + width > most)
            break;
        *columns += width;
        at += bytes;
    }
    if (own)
        uselocale(own);
    return at;
}

static char *escape(const char *text)
{
    const int64_t length = clt_printable(text, NULL, 0);
    char *out = malloc((size_t)length + 1);
    if (out)
        clt_printable(text, out, length + 1);
    return out;
}

int cell_width(const char *text)
{
    int columns = 0;
    char *shown = escape(text);
    if (shown)
        fill(shown, (int)strlen(shown), &columns);
    free(shown);
    return columns;
}

void show_cell(const char *text, int columns, int most, cell_side side)
{
    int width;
    char *shown = escape(text);
    if (!shown)
        return;
    most = most > columns ? most : columns;
    size_t bytes = fill(shown, most, &width);
    const int cut = shown[bytes] != '\0';
    if (cut)
        bytes = fill(shown, most - 1, &width);
    const int pad = columns - width - cut > 0 ? columns - width - cut : 0;
    printf("%*s%.*s%s%*s", side == CELL_RIGHT ? pad : 0, "", (int)bytes, shown, cut ? "~" : "",
           side == CELL_LEFT ? pad : 0, "");
    free(shown);
}
