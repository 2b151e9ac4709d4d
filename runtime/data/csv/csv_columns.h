/* What the columns of a CSV file mean: found on training samples, kept as JSON with the model. */
#ifndef CLT_DATA_CSV_CSV_COLUMNS_H
#define CLT_DATA_CSV_CSV_COLUMNS_H

#include "data/csv/csv_table.h"

typedef enum clt_csv_kind {
    CLT_CSV_DROPPED,
    CLT_CSV_NUMBER,   /* a feature (value - mean) / std */
    CLT_CSV_CATEGORY, /* as many features as names, one of which is 1; or one: the name's number */
    CLT_CSV_LABEL,    /* the target of a classifier */
    CLT_CSV_TARGET,   /* the target of a regression, (value - mean) / std */
    CLT_CSV_FIELD     /* a field of its own: the number as it is */
} clt_csv_kind;

/* What to do without a value. */
typedef enum clt_csv_missing {
    CLT_CSV_REFUSE,
    CLT_CSV_MEAN,    /* the mean of a number, the most frequent text */
    CLT_CSV_FREQUENT /* the most frequent value */
} clt_csv_missing;

/* The options behind the path of csv:PATH?NAME=VALUE,... */
typedef struct clt_csv_options {
    char *path, *target; /* target NULL: the last column */
    char **drop, **text; /* columns to leave out, and categories though they look like numbers */
    char **field;        /* columns that are fields of their own */
    int n_drop, room_drop, n_text, room_text, n_field, room_field;
    char delimiter;
    int header;   /* see clt_csv_read */
    int classify; /* 1, 0; -1: a target of texts is a label */
    int index;    /* 1: categories are numbers instead of one feature a name */
    clt_csv_missing missing;
    unsigned given; /* sum of CLT_CSV_GAVE_... */
} clt_csv_options;

/* Options that were given. Beside a description, others are as in training. */
enum {
    CLT_CSV_GAVE_MISSING = 1,
    CLT_CSV_GAVE_CATEGORIES = 2,
    CLT_CSV_GAVE_HEADER = 4,
    CLT_CSV_GAVE_DELIMITER = 8
};

typedef struct clt_csv_column {
    char *name;
    clt_csv_kind kind;
    double mean, std; /* of numbers */
    char **names;     /* of categories and labels, in order */
    int64_t *sorted;  /* numbers of the names, sorted by name */
    int64_t n_names;
    int index;   /* the category is one feature, its number */
    int fills;   /* 1: `fill` stands for missing values */
    double fill; /* the number, or the number of the name */
} clt_csv_column;

typedef struct clt_csv_columns {
    clt_csv_column *list;
    int64_t count;
    int64_t features; /* of all columns */
    char delimiter;
    int header;
    int missing; /* a clt_csv_missing; -1: an older description does not say it */
} clt_csv_columns;

/* Reads "PATH?target=COL,...". Errors: INVALID_ARGUMENT. Free *out even after a failure. */
clt_status clt_csv_options_read(const char *text, clt_csv_options *out);
void clt_csv_options_free(clt_csv_options *options);

/* Checks that the options that were given say what the description says. header= and delimiter=
 * may differ, as they are about the file. Errors: INVALID_ARGUMENT (names option and column). */
clt_status clt_csv_options_agree(const clt_csv_options *options, const clt_csv_columns *columns);

/* Finds the types of the columns on the rows for which `rows` is 1, and means, deviations, names
 * and fills. Errors: FORMAT (names line and column), NOT_FOUND (a name), OUT_OF_MEMORY. Free *out
 * even after a failure. */
clt_status clt_csv_columns_find(const clt_csv_table *table, const clt_csv_options *options,
                                const unsigned char *rows, clt_csv_columns *out);

/* Finds means, deviations and fills again, on the rows for which `rows` is 1. Kinds and names stay.
 * Errors: FORMAT (a column without values), OUT_OF_MEMORY. */
clt_status clt_csv_columns_refit(const clt_csv_table *table, const clt_csv_options *options,
                                 const unsigned char *rows, clt_csv_columns *columns);

/* Converts to JSON, which clt_free frees, and back. Errors: FORMAT. */
clt_status clt_csv_columns_write(const clt_csv_columns *columns, char **json);
clt_status clt_csv_columns_read(const char *json, clt_csv_columns *out);

void clt_csv_columns_free(clt_csv_columns *columns);

/* Whether a text stands for a missing value. */
int clt_csv_is_missing(const char *text);

/* Whether a text looks like a date or a time (docs/data.md lists the forms). */
int clt_csv_is_date(const char *text);

/* Whether JSON can keep a text. */
int clt_csv_is_utf8(const char *text);

/* Fails because the cell is missing, and says what to do. `kind`: the column's. */
clt_status clt_csv_fail_missing(const clt_csv_table *table, int64_t row, int64_t column,
                                clt_csv_kind kind);

/* Reads the number of a column that is a field. Errors: FORMAT (none, or out of f32's range; names
 * line and column). */
clt_status clt_csv_cell_field(const clt_csv_table *table, int64_t row, int64_t column,
                              float *value);

/* Computes (value - mean) / std for the cell's number. Errors: FORMAT (out of f32's range; names
 * line and column). */
clt_status clt_csv_scale(const clt_csv_table *table, int64_t row, int64_t column,
                         const clt_csv_column *c, double value, float *out);

/* Reads a number. Errors: FORMAT (none, or not finite; names line and column). */
clt_status clt_csv_cell_number(const clt_csv_table *table, int64_t row, int64_t column,
                               double *value);

/* Returns the number of a name, or -1. */
int64_t clt_csv_name_number(const clt_csv_column *column, const char *text);

/* Makes `sorted`. */
clt_status clt_csv_sort_names(clt_csv_column *column);

/* Returns the features that a column makes. */
int64_t clt_csv_features(const clt_csv_column *column);

#endif
