/* Reads a CSV file (RFC 4180) into a table of texts, with libcsv. */
#ifndef CLT_DATA_CSV_CSV_TABLE_H
#define CLT_DATA_CSV_CSV_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include <cltrain/status.h>

typedef struct clt_csv_table {
    char *path; /* for messages */
    int64_t columns, rows;
    char **names;   /* of the columns; their numbers from 1 if the file has no header */
    int64_t header; /* 1: the first row has the names */
    char delimiter;
    /* Texts without quotes and outer spaces, one after the other, each ended by NUL. */
    char *texts;
    int64_t used, room;
    int64_t *cells; /* [row][column]: where the text begins in `texts`, with the header first */
    int64_t n_cells, room_cells;
    int64_t *lines; /* by row: the line on which it begins, from 1, with the header first */
    int64_t n_lines, room_lines;
} clt_csv_table;

/* Reads a file, plain or .gz. `header` 1: the first row has the names of the columns; 0: it has
 * values; -1: it has names unless all its texts are numbers. Errors: NOT_FOUND, IO, FORMAT (names
 * the line and column), OUT_OF_MEMORY. Free *table even after a failure. */
clt_status clt_csv_read(const char *path, char delimiter, int header, clt_csv_table *table);

/* The same for the bytes of a file. */
clt_status clt_csv_parse(const char *path, const char *bytes, size_t count, char delimiter,
                         int header, clt_csv_table *table);

void clt_csv_free(clt_csv_table *table);

/* Returns the text of a cell, "" if it is empty. */
const char *clt_csv_text(const clt_csv_table *table, int64_t row, int64_t column);

/* Returns the line on which a row begins. */
int64_t clt_csv_line(const clt_csv_table *table, int64_t row);

/* Returns "; did you mean delimiter=;?" if the only column looks like several, else "". */
const char *clt_csv_delimiter_hint(const clt_csv_table *table);

/* Reads a number as C writes it, whatever the locale. Returns whether the whole text is one; it may
 * be infinite. */
int clt_csv_number(const char *text, double *value);

#endif
