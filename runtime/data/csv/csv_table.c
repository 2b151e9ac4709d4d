#include "data/csv/csv_table.h"

#include <locale.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

const char *clt_csv_text(const clt_csv_table *t, int64_t row, int64_t column)
{
    return t->texts + t->cells[(row + t->header) * t->columns + column];
}

int64_t clt_csv_line(const clt_csv_table *t, int64_t row)
{
    return t->lines[row + t->header];
}

const char *clt_csv_delimiter_hint(const clt_csv_table *t)
{
    const char *first = t->columns == 1 && t->n_cells ? t->texts + t->cells[0] : "";
    if (t->delimiter != ',' && strchr(first, ','))
        return "; did you mean delimiter=%2C (commas)?";
    return strchr(first, ';')    ? "; did you mean delimiter=;?"
           : strchr(first, '\t') ? "; did you mean delimiter=tab?"
           : strchr(first, '|')  ? "; did you mean delimiter=|?"
                                 : "";
}

void clt_csv_free(clt_csv_table *t)
{
    for (int64_t c = 0; t->names && c < t->columns; c++)
        clt_free(t->names[c]);
    CLT_FREE(t->path, t->names, t->texts, t->cells, t->lines);
    *t = (clt_csv_table){0};
}

int clt_csv_number(const char *text, double *value)
{
    static _Atomic(locale_t) shared;
    char *end;
    if (!*text || text[strspn(text, "0123456789+-.eE")]) {
        /* Neither hexadecimal numbers nor "nan". */
        const char *unsigned_text = text + (*text == '-' || *text == '+');
        *value = *text == '-' ? -INFINITY : INFINITY;
        return !strcasecmp(unsigned_text, "inf") || !strcasecmp(unsigned_text, "infinity");
    }
    locale_t own = atomic_load(&shared);
    if (!own) {
        own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        locale_t expected = (locale_t)0;
        if (!atomic_compare_exchange_strong(&shared, &expected, own)) {
            freelocale(own);
            own = expected;
        }
    }
    *value = strtod_l(text, &end, own);
    return !*end && end != text;
}

#ifdef CLT_HAVE_CSV

#include <csv.h>
#include <stdbool.h>
#include <stdio.h>

#include "data/files/reader.h"

enum { PIECE = 1 << 20, MOST_COLUMNS = 16384 };

/* The state of reading. */
typedef struct reading {
    clt_csv_table *table;
    struct csv_parser parser;
    clt_status status;
    bool open;           /* a row has begun */
    int64_t line, begun; /* the line that is read, and that on which the row began */
    int64_t text;        /* the line on which the cell began */
    int64_t count;       /* cells of the row so far */
} reading;

/* Names a column of the row that is read: its number, and what the first row calls it. */
static const char *column_text(const reading *r, int64_t column, char text[128])
{
    const clt_csv_table *t = r->table;
    double number;
    if (t->n_lines && column < t->columns && !clt_csv_number(t->texts + t->cells[column], &number))
        snprintf(text, 128, "column %lld ('%.80s')", (long long)column + 1,
                 t->texts + t->cells[column]);
    else
        snprintf(text, 128, "column %lld", (long long)column + 1);
    return text;
}

static clt_status push(int64_t **items, int64_t *count, int64_t *room, int64_t value)
{
    if (*count == *room) {
        const int64_t more = *room ? 2 * *room : 1024;
        int64_t *grown = clt_realloc(*items, (size_t)more * sizeof **items);
        CLT_TRY_MEMORY(grown);
        *items = grown;
        *room = more;
    }
    (*items)[(*count)++] = value;
    return CLT_OK;
}

static clt_status add_text(clt_csv_table *t, const char *text, size_t length)
{
    const int64_t needed = t->used + (int64_t)length + 1;
    if (needed > t->room) {
        const int64_t room = needed > 2 * t->room ? needed + PIECE : 2 * t->room;
        char *grown = clt_realloc(t->texts, (size_t)room);
        CLT_TRY_MEMORY(grown);
        t->texts = grown;
        t->room = room;
    }
    if (length)
        memcpy(t->texts + t->used, text, length);
    t->texts[needed - 1] = '\0';
    t->used = needed;
    return CLT_OK;
}

static clt_status add_cell(reading *r, const char *text, size_t length)
{
    char column[128];
    clt_csv_table *t = r->table;
    if (length && memchr(text, '\0', length))
        return clt_fail(CLT_FORMAT, "%s: line %lld, %s: has a zero byte, so it is no text", t->path,
                        (long long)r->begun, column_text(r, r->count, column));
    if (t->n_lines && r->count == t->columns)
        return clt_fail(CLT_FORMAT,
                        "%s: line %lld, column %lld: the row has more than the %lld columns of "
                        "line %lld%s",
                        t->path, (long long)r->begun, (long long)r->count + 1,
                        (long long)t->columns, (long long)t->lines[0], clt_csv_delimiter_hint(t));
    if (r->count == MOST_COLUMNS)
        return clt_fail(CLT_FORMAT, "%s: line %lld: has more than %d columns", t->path,
                        (long long)r->begun, MOST_COLUMNS);
    CLT_TRY(push(&t->cells, &t->n_cells, &t->room_cells, t->used));
    r->count++;
    return add_text(t, text, length);
}

static clt_status end_row(reading *r)
{
    char column[128];
    clt_csv_table *t = r->table;
    if (!t->n_lines)
        t->columns = r->count;
    if (r->count < t->columns)
        return clt_fail(CLT_FORMAT,
                        "%s: line %lld, %s: is missing: the row has %lld of the %lld columns of "
                        "line %lld",
                        t->path, (long long)r->begun, column_text(r, r->count, column),
                        (long long)r->count, (long long)t->columns, (long long)t->lines[0]);
    return push(&t->lines, &t->n_lines, &t->room_lines, r->begun);
}

/* libcsv cannot be stopped by its callbacks. After a failure they do nothing. */
static void on_field(void *text, size_t length, void *user)
{
    reading *r = user;
    CLT_NEXT(r->status, add_cell(r, text, length));
    r->text = r->line; /* of the next one */
}

static void on_row(int end, void *user)
{
    reading *r = user;
    (void)end;
    CLT_NEXT(r->status, end_row(r));
    r->open = false;
    r->count = 0;
}

static bool is_blank(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != '\r' && bytes[i] != '\n' && bytes[i] != ' ')
            return false;
    return true;
}

/* `at`: the character behind the quote; 0: the file ended. */
static clt_status parser_failure(reading *r, char at)
{
    char column[128], where[80] = "";
    const int error = csv_error(&r->parser);
    if (error == CSV_ENOMEM || error == CSV_ETOOBIG)
        return clt_fail(CLT_OUT_OF_MEMORY, "%s: line %lld: its text does not fit in memory",
                        r->table->path, (long long)r->begun);
    const bool other = !r->table->n_lines && at && strchr(",;\t|", at); /* of the header */
    if (!at)
        return clt_fail(CLT_FORMAT,
                        "%s: line %lld, %s: the text begins with a quote and does not end with "
                        "one: the rest of the file is read as part of it",
                        r->table->path, (long long)r->text, column_text(r, r->count, column));
    if (other && at != r->table->delimiter)
        return clt_fail(CLT_FORMAT, "%s: line %lld, column 1: another text begins behind '%c'%s",
                        r->table->path, (long long)r->line, at == '\t' ? ' ' : at,
                        at == ';'    ? "; did you mean delimiter=;?"
                        : at == '\t' ? "; did you mean delimiter=tab?"
                        : at == '|'  ? "; did you mean delimiter=|?"
                                     : "; did you mean delimiter=%2C (commas)?");
    if (r->text != r->line)
        snprintf(where, sizeof where, " in the text that begins on line %lld", (long long)r->text);
    return clt_fail(CLT_FORMAT,
                    "%s: line %lld, %s: a quote is in the wrong place%s: a text with quotes begins "
                    "and ends with one, and has two for each inside",
                    r->table->path, (long long)r->line, column_text(r, r->count, column), where);
}

/* Feeds bytes line by line, so that the parser's callbacks know the line. */
static clt_status feed(reading *r, const char *bytes, size_t count)
{
    while (count) {
        const char *end = memchr(bytes, '\n', count);
        const size_t length = end ? (size_t)(end - bytes) + 1 : count;
        if (r->open || !is_blank(bytes, length)) {
            r->begun = r->open ? r->begun : r->line;
            r->text = r->open ? r->text : r->line;
            r->open = true;
            const size_t used = csv_parse(&r->parser, bytes, length, on_field, on_row, r);
            if (used != length)
                return parser_failure(r, bytes[used] ? bytes[used] : ' ');
            CLT_TRY(r->status);
        }
        r->line += end != NULL;
        bytes += length;
        count -= length;
    }
    return CLT_OK;
}

static clt_status begin(reading *r, const char *path, char delimiter, clt_csv_table *table)
{
    *r = (reading){.table = table, .line = 1};
    table->delimiter = delimiter;
    table->path = clt_strdup(path);
    CLT_TRY_MEMORY(table->path);
    if (csv_init(&r->parser, CSV_STRICT | CSV_STRICT_FINI))
        return clt_fail(CLT_OUT_OF_MEMORY, "%s: libcsv cannot be started", path);
    csv_set_delim(&r->parser, (unsigned char)delimiter);
    return CLT_OK;
}

/* Whether all texts of the first row are numbers, so that it is no header. */
static bool is_numbers(const clt_csv_table *t)
{
    double value;
    for (int64_t c = 0; c < t->columns; c++)
        if (!clt_csv_number(t->texts + t->cells[c], &value))
            return false;
    return true;
}

static clt_status name_columns(clt_csv_table *t, int header)
{
    t->header = header < 0 ? !is_numbers(t) : header;
    t->rows = t->n_lines - t->header;
    if (t->rows < 1)
        return clt_fail(CLT_FORMAT, "%s: has no rows%s", t->path,
                        t->header ? " behind the header" : "");
    t->names = clt_calloc((size_t)t->columns, sizeof *t->names);
    CLT_TRY_MEMORY(t->names);
    for (int64_t c = 0; c < t->columns; c++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)c + 1);
        const char *name = t->header ? t->texts + t->cells[c] : number;
        if (!*name)
            return clt_fail(
                CLT_FORMAT,
                "%s: line %lld, column %lld: the header has no name for it: write one "
                "(pandas: to_csv(index=False) leaves the index out), or say header=off if the "
                "line has values",
                t->path, (long long)t->lines[0], (long long)c + 1);
        for (int64_t i = 0; i < c; i++)
            if (!strcmp(t->names[i], name))
                return clt_fail(CLT_FORMAT,
                                "%s: line %lld, column %lld: the name '%s' is that of column %lld "
                                "too: rename one, or say header=off if the line has values",
                                t->path, (long long)t->lines[0], (long long)c + 1, name,
                                (long long)i + 1);
        CLT_TRY_MEMORY(t->names[c] = clt_strdup(name));
    }
    return CLT_OK;
}

static clt_status end(reading *r, int header)
{
    if (csv_fini(&r->parser, on_field, on_row, r))
        return parser_failure(r, 0);
    CLT_TRY(r->status);
    return r->table->n_lines ? name_columns(r->table, header)
                             : clt_fail(CLT_FORMAT, "%s: is empty", r->table->path);
}

/* A byte order mark is no part of the first name. */
static size_t mark_of(const char *bytes, size_t count)
{
    return count >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3) ? 3 : 0;
}

clt_status clt_csv_parse(const char *path, const char *bytes, size_t count, char delimiter,
                         int header, clt_csv_table *table)
{
    reading r;
    const size_t mark = mark_of(bytes, count);
    clt_status status = begin(&r, path, delimiter, table);
    if (status != CLT_OK)
        return status;
    CLT_NEXT(status, feed(&r, bytes + mark, count - mark));
    CLT_NEXT(status, end(&r, header));
    csv_free(&r.parser);
    return status;
}

clt_status clt_csv_read(const char *path, char delimiter, int header, clt_csv_table *table)
{
    clt_reader *file = NULL;
    reading r;
    int64_t got = 1, total = 0;
    CLT_TRY(clt_reader_open(path, &file));
    char *piece = clt_alloc(PIECE);
    clt_status status = piece ? begin(&r, path, delimiter, table) : CLT_OUT_OF_MEMORY;
    const bool begun = status == CLT_OK;
    while (status == CLT_OK && got) {
        status = clt_reader_some(file, piece, PIECE, &got);
        const size_t mark = status == CLT_OK && !total ? mark_of(piece, (size_t)got) : 0;
        CLT_NEXT(status, feed(&r, piece + mark, (size_t)got - mark));
        total += got;
    }
    CLT_NEXT(status, end(&r, header));
    if (begun)
        csv_free(&r.parser);
    clt_free(piece);
    clt_reader_close(file);
    return status;
}

#else

clt_status clt_csv_read(const char *path, char delimiter, int header, clt_csv_table *table)
{
    (void)delimiter;
    (void)header;
    (void)table;
    return clt_fail(CLT_UNSUPPORTED,
                    "%s: this build has no libcsv; install it (Debian: libcsv-dev) and build again",
                    path);
}

#endif
