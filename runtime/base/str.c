#include "base/str.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

void clt_str_add(clt_str *s, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    size_t needed = s->length + (length < 0 ? 0 : (size_t)length) + 1;
    if (needed > s->room) {
        size_t room = needed > 2 * s->room ? needed : 2 * s->room;
        char *moved = clt_realloc(s->text, room);
        if (!moved) {
            s->failed = true;
            va_end(again);
            return;
        }
        s->text = moved;
        s->room = room;
    }
    vsnprintf(s->text + s->length, s->room - s->length, format, again);
    s->length = needed - 1;
    va_end(again);
}

const char *clt_str_text(const clt_str *s)
{
    return s->text ? s->text : "";
}

void clt_str_clear(clt_str *s)
{
    s->length = 0;
    s->failed = false;
    if (s->text)
        s->text[0] = '\0';
}

void clt_str_free(clt_str *s)
{
    clt_free(s->text);
    *s = (clt_str){0};
}

enum { NEAREST_MAX = 64 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Computes the optimal string alignment distance: Levenshtein's distance in which swapped
 * neighbours count once. Three rows of the table suffice. */
static int edit_distance(const char *a, const char *b)
{
    int rows[3][NEAREST_MAX + 1];
    const int length_b = (int)strnlen(b, NEAREST_MAX);
    int i = 0;
    for (int j = 0; j <= length_b; j++)
        rows[0][j] = j;
    for (i = 1; a[i - 1] && i <= NEAREST_MAX; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        const int x = tolower((unsigned char)a[i - 1]);
        row[0] = i;
        for (int j = 1; j <= length_b; j++) {
            const int y = tolower((unsigned char)b[j - 1]);
            row[j] = least(above[j - 1] + (x != y), least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                tolower((unsigned char)a[i - 2]) == y)
                row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[(i - 1) % 3][length_b];
}

const char *clt_nearest(const char *word, const char *const *names, int count)
{
    const char *best = NULL;
    int limit = (int)strlen(word) / 3;
    int best_distance = (limit < 1 ? 1 : limit) + 1;
    for (int i = 0; i < count; i++) {
        int distance = edit_distance(word, names[i]);
        if (distance < best_distance) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}
