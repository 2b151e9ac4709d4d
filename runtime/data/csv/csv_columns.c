/* Finds what the columns of a CSV file mean. */
#include "data/csv/csv_columns.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { MOST_NAMES = 1000, MOST_CLASSES = 100000 };

/* Bounds of a target's deviation. */
#define SMALLEST_SPREAD 1e-150
#define LARGEST_SPREAD 1e150

#define TO_UTF8 "convert the file, as with iconv -f LATIN1 -t UTF-8"

int clt_csv_is_missing(const char *text)
{
    static const char *const words[] = {"", "NA", "N/A", "NaN", "nan", "NAN", "null", "NULL", "?"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i]))
            return 1;
    return 0;
}

/* Fails with the place of a cell in front of the message. */
#define FAIL_AT(table, row, column, format, ...)                                                   \
    clt_fail(CLT_FORMAT, "%s: line %lld, column %lld ('%s'): " format, (table)->path,              \
             (long long)clt_csv_line(table, row), (long long)(column) + 1, (table)->names[column], \
             __VA_ARGS__)

clt_status clt_csv_fail_missing(const clt_csv_table *t, int64_t row, int64_t column,
                                clt_csv_kind kind)
{
    if (kind == CLT_CSV_NUMBER || kind == CLT_CSV_CATEGORY)
        return FAIL_AT(t, row, column,
                       "the value is missing ('%s'): train with missing=mean or missing=frequent "
                       "to fill it, or with drop=%s to leave the column out",
                       clt_csv_text(t, row, column), t->names[column]);
    return FAIL_AT(t, row, column,
                   "the value is missing ('%s'), and missing= does not fill a %s: delete the row",
                   clt_csv_text(t, row, column), kind == CLT_CSV_FIELD ? "field" : "target");
}

clt_status clt_csv_cell_number(const clt_csv_table *t, int64_t row, int64_t column, double *value)
{
    const char *text = clt_csv_text(t, row, column);
    if (!clt_csv_number(text, value))
        return FAIL_AT(t, row, column, "'%.80s' is no number", text);
    if (!isfinite(*value))
        return FAIL_AT(t, row, column, "'%.80s' is not finite", text);
    return CLT_OK;
}

clt_status clt_csv_cell_field(const clt_csv_table *t, int64_t row, int64_t column, float *value)
{
    double number;
    if (clt_csv_is_missing(clt_csv_text(t, row, column)))
        return clt_csv_fail_missing(t, row, column, CLT_CSV_FIELD);
    CLT_TRY(clt_csv_cell_number(t, row, column, &number));
    if (fabs(number) > FLT_MAX || (number != 0 && fabs(number) < FLT_MIN))
        return FAIL_AT(t, row, column,
                       "'%.80s' is out of the range of f32: give the column in another unit",
                       clt_csv_text(t, row, column));
    *value = (float)number;
    return CLT_OK;
}

clt_status clt_csv_scale(const clt_csv_table *t, int64_t row, int64_t column,
                         const clt_csv_column *c, double value, float *out)
{
    double scaled = (value - c->mean) / c->std;
    if (!isfinite(value - c->mean)) /* numbers near the end of f64's range */
        scaled = (value / 4 - c->mean / 4) / (c->std / 4);
    if (!(fabs(scaled) <= FLT_MAX))
        return FAIL_AT(t, row, column,
                       "'%.80s' is too far from the mean of the training samples (%.3g, deviation "
                       "%.3g) for f32: correct it, or delete the row",
                       clt_csv_text(t, row, column), c->mean, c->std);
    *out = (float)scaled;
    return CLT_OK;
}

int64_t clt_csv_name_number(const clt_csv_column *column, const char *text)
{
    for (int64_t low = 0, high = column->n_names; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        const int order = strcmp(column->names[column->sorted[middle]], text);
        if (!order)
            return column->sorted[middle];
        *(order < 0 ? &low : &high) = order < 0 ? middle + 1 : middle;
    }
    return -1;
}

int64_t clt_csv_features(const clt_csv_column *column)
{
    return column->kind == CLT_CSV_NUMBER     ? 1
           : column->kind != CLT_CSV_CATEGORY ? 0
           : column->index                    ? 1
                                              : column->n_names;
}

static bool is_listed(char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

/* --- values of a column ----------------------------------------------------------------------- */

/* The training values of a column that are not missing. */
typedef struct values {
    const char **texts;
    double *numbers;
    int64_t count, n_numbers;
    int64_t missing; /* the first row without a value; -1: none */
    int64_t other;   /* the first row whose value is no number; -1: none */
} values;

static void values_free(values *v)
{
    CLT_FREE((void *)v->texts, v->numbers);
}

static clt_status collect(const clt_csv_table *t, int64_t column, const unsigned char *rows,
                          values *v)
{
    *v = (values){.missing = -1, .other = -1};
    v->texts = clt_calloc((size_t)t->rows, sizeof *v->texts);
    v->numbers = clt_calloc((size_t)t->rows, sizeof *v->numbers);
    CLT_TRY_MEMORY(v->texts && v->numbers);
    for (int64_t i = 0; i < t->rows; i++) {
        double number;
        const char *text = clt_csv_text(t, i, column);
        if (!rows[i])
            continue;
        if (clt_csv_is_missing(text)) {
            v->missing = v->missing < 0 ? i : v->missing;
            continue;
        }
        if (clt_csv_number(text, &number)) {
            if (!isfinite(number))
                return clt_csv_cell_number(t, i, column, &number);
            v->numbers[v->n_numbers++] = number;
        } else if (v->other < 0) {
            v->other = i;
        }
        v->texts[v->count++] = text;
    }
    return CLT_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_number(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Names that are numbers are in the order of the numbers. */
static int by_number_of_text(const void *a, const void *b)
{
    double x, y;
    clt_csv_number(*(const char *const *)a, &x);
    clt_csv_number(*(const char *const *)b, &y);
    return x == y ? by_text(a, b) : (x > y) - (x < y);
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* Finds mean and deviation by Welford's method. Numbers are first divided by the power of two above
 * the largest one, which is exact. Otherwise squares of 1e200 or 1e-200 would be infinite or 0. */
static void find_spread(clt_csv_column *c, const values *v)
{
    double largest = 0, mean = 0, spread = 0;
    int exponent;
    for (int64_t i = 0; i < v->n_numbers; i++)
        largest = fmax(largest, fabs(v->numbers[i]));
    frexp(largest, &exponent);
    for (int64_t i = 0; i < v->n_numbers; i++) {
        const double number = ldexp(v->numbers[i], -exponent), delta = number - mean;
        mean += delta / (double)(i + 1);
        spread += delta * (number - mean);
    }
    c->mean = ldexp(mean, exponent);
    c->std = spread > 0 ? ldexp(sqrt(spread / (double)v->n_numbers), exponent)
                        : 1; /* a constant becomes 0 */
}

static clt_status measure(const clt_csv_table *t, int64_t column, clt_csv_column *c, values *v,
                          clt_csv_missing missing)
{
    const bool target = c->kind == CLT_CSV_TARGET;
    find_spread(c, v);
    /* Metrics square errors in the target's unit. */
    if (!isnormal(c->std) || (target && (c->std < SMALLEST_SPREAD || c->std > LARGEST_SPREAD)))
        return clt_fail(CLT_FORMAT,
                        "%s: column %lld ('%s'): its numbers have the deviation %.3g, too %s to "
                        "compute with: give them in another unit%s%s",
                        t->path, (long long)column + 1, c->name, c->std,
                        c->std < 1 ? "small" : "large",
                        target ? "" : ", or leave them out with drop=", target ? "" : c->name);
    c->fills = missing != CLT_CSV_REFUSE;
    c->fill = c->mean;
    if (missing != CLT_CSV_FREQUENT)
        return CLT_OK;
    qsort(v->numbers, (size_t)v->n_numbers, sizeof *v->numbers, by_number);
    for (int64_t i = 0, most = 0, end; i < v->n_numbers; i = end) {
        for (end = i; end < v->n_numbers && v->numbers[end] == v->numbers[i];)
            end++;
        if (end - i > most) {
            most = end - i;
            c->fill = v->numbers[i];
        }
    }
    return CLT_OK;
}

/* --- names ------------------------------------------------------------------------------------ */

/* Names are texts that differ. `sorted` is their order for searches. */
static clt_status set_names(clt_csv_column *c, const char **texts, int64_t count, bool numbers)
{
    int64_t most = 0, names = 0;
    qsort((void *)texts, (size_t)count, sizeof *texts, numbers ? by_number_of_text : by_text);
    for (int64_t i = 0; i < count; i++)
        names += !i || strcmp(texts[i], texts[i - 1]) != 0;
    c->names = clt_calloc((size_t)names, sizeof *c->names);
    CLT_TRY_MEMORY(c->names);
    for (int64_t i = 0, end; i < count; i = end) {
        for (end = i; end < count && !strcmp(texts[end], texts[i]);)
            end++;
        if (end - i > most) {
            most = end - i;
            c->fill = (double)c->n_names;
        }
        CLT_TRY_MEMORY(c->names[c->n_names] = clt_strdup(texts[i]));
        c->n_names++;
    }
    return clt_csv_sort_names(c);
}

/* qsort has no argument for the column: sort pairs. */
typedef struct named {
    const char *name;
    int64_t number;
} named;

clt_status clt_csv_sort_names(clt_csv_column *c)
{
    named *list = clt_calloc((size_t)c->n_names, sizeof *list);
    c->sorted = clt_calloc((size_t)c->n_names, sizeof *c->sorted);
    if (!list || !c->sorted) {
        clt_free(list);
        return CLT_OUT_OF_MEMORY;
    }
    for (int64_t i = 0; i < c->n_names; i++)
        list[i] = (named){c->names[i], i};
    qsort(list, (size_t)c->n_names, sizeof *list, by_text); /* its first member is the name */
    for (int64_t i = 0; i < c->n_names; i++)
        c->sorted[i] = list[i].number;
    clt_free(list);
    return CLT_OK;
}

/* Checkpoints keep names as JSON. */
static clt_status check_utf8(const clt_csv_table *t, int64_t column, const unsigned char *rows)
{
    for (int64_t i = 0; i < t->rows; i++)
        if (rows[i] && !clt_csv_is_utf8(clt_csv_text(t, i, column)))
            return FAIL_AT(t, i, column, "the text is not UTF-8: %s", TO_UTF8);
    return CLT_OK;
}

static clt_status find_names(const clt_csv_table *t, int64_t column, const clt_csv_options *o,
                             const unsigned char *rows, values *v, clt_csv_column *c)
{
    const bool label = c->kind == CLT_CSV_LABEL;
    const int64_t limit = label ? MOST_CLASSES : MOST_NAMES;
    bool dates = !label && !is_listed(o->text, o->n_text, c->name);
    CLT_TRY(check_utf8(t, column, rows));
    for (int64_t i = 0; dates && i < v->count; i++)
        dates = clt_csv_is_date(v->texts[i]);
    if (dates)
        return clt_fail(CLT_FORMAT,
                        "%s: column %lld ('%s') has dates or times, as '%.40s': leave it out with "
                        "drop=%s, make numbers of them, or say text=%s if they are names",
                        t->path, (long long)column + 1, c->name, v->texts[0], c->name, c->name);
    CLT_TRY(set_names(c, v->texts, v->count, v->n_numbers == v->count));
    if (c->n_names > limit)
        return clt_fail(CLT_FORMAT,
                        "%s: column %lld ('%s') has %lld different texts, more than %lld: leave it "
                        "out with drop=%s",
                        t->path, (long long)column + 1, c->name, (long long)c->n_names,
                        (long long)limit, c->name);
    c->fills = !label && o->missing != CLT_CSV_REFUSE;
    c->index = o->index;
    return CLT_OK;
}

/* --- columns ---------------------------------------------------------------------------------- */

/* A column with a few texts among numbers has probably mistakes in it. */
static clt_status check_mixed(const clt_csv_table *t, int64_t column, const values *v)
{
    if (v->other < 0 || v->n_numbers < 9 * (v->count - v->n_numbers))
        return CLT_OK;
    return FAIL_AT(t, v->other, column,
                   "'%.80s' is no number, but %lld of %lld values of the column are: correct it, "
                   "or say text=%s if they are names",
                   clt_csv_text(t, v->other, column), (long long)v->n_numbers, (long long)v->count,
                   t->names[column]);
}

static bool has_comma(const char *text)
{
    static const char digits[] = "0123456789";
    text += *text == '-' || *text == '+';
    const size_t whole = strspn(text, digits);
    const size_t rest = text[whole] == ',' ? strspn(text + whole + 1, digits) : 0;
    return whole && rest && !text[whole + 1 + rest];
}

/* Numbers such as 1,5 would become names. */
static clt_status check_commas(const clt_csv_table *t, int64_t column, const values *v)
{
    double number;
    if (v->other < 0)
        return CLT_OK;
    for (int64_t i = 0; i < v->count; i++)
        if (!has_comma(v->texts[i]) && !clt_csv_number(v->texts[i], &number))
            return CLT_OK;
    return FAIL_AT(t, v->other, column,
                   "'%.80s' has a comma: write decimals with a point, and thousands without a "
                   "separator, or say text=%s if they are names",
                   clt_csv_text(t, v->other, column), t->names[column]);
}

static clt_status check_any(const clt_csv_table *t, int64_t column, const values *v)
{
    return v->count ? CLT_OK
                    : clt_fail(CLT_FORMAT,
                               "%s: column %lld ('%s') has no value in the training samples: leave "
                               "it out with drop=%s",
                               t->path, (long long)column + 1, t->names[column], t->names[column]);
}

static clt_status find_column(const clt_csv_table *t, const clt_csv_options *o, int64_t column,
                              bool target, const unsigned char *rows, values *v, clt_csv_column *c)
{
    const bool text = is_listed(o->text, o->n_text, c->name);
    const bool field = !target && is_listed(o->field, o->n_field, c->name);
    CLT_TRY(check_any(t, column, v));
    if (v->missing >= 0 && (target || field || o->missing == CLT_CSV_REFUSE))
        return clt_csv_fail_missing(t, v->missing, column,
                                    target  ? CLT_CSV_TARGET
                                    : field ? CLT_CSV_FIELD
                                            : CLT_CSV_NUMBER);
    if (field) {
        double value;
        c->kind = CLT_CSV_FIELD;
        return v->other < 0 ? CLT_OK : clt_csv_cell_number(t, v->other, column, &value);
    }
    const bool label = target && (o->classify == 1 || (o->classify < 0 && (text || v->other >= 0)));
    if (!text && o->classify != 1)
        CLT_TRY(check_commas(t, column, v));
    if (!text && !label)
        CLT_TRY(check_mixed(t, column, v));
    if (target && !label && v->other >= 0) {
        double value;
        return clt_csv_cell_number(t, v->other, column, &value);
    }
    const bool number = !label && !text && v->other < 0;
    c->kind = label    ? CLT_CSV_LABEL
              : target ? CLT_CSV_TARGET
              : number ? CLT_CSV_NUMBER
                       : CLT_CSV_CATEGORY;
    if (c->kind == CLT_CSV_LABEL || c->kind == CLT_CSV_CATEGORY)
        return find_names(t, column, o, rows, v, c);
    return measure(t, column, c, v, target ? CLT_CSV_REFUSE : o->missing);
}

static clt_status find_name(const clt_csv_table *t, const char *option, const char *name,
                            int64_t *column)
{
    for (int64_t c = 0; c < t->columns; c++)
        if (!strcmp(t->names[c], name)) {
            *column = c;
            return CLT_OK;
        }
    const char *near = clt_nearest(name, (const char *const *)t->names, (int)t->columns);
    return clt_fail(CLT_NOT_FOUND, "%s: has no column '%s' (%s=)%s%s%s%s", t->path, name, option,
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "",
                    near ? "" : clt_csv_delimiter_hint(t));
}

/* Marks dropped columns, and finds the target: the last column that is left if none is named. */
static clt_status find_target(const clt_csv_table *t, const clt_csv_options *o, bool *dropped,
                              int64_t *target)
{
    for (int i = 0; i < o->n_text; i++)
        CLT_TRY(find_name(t, "text", o->text[i], target));
    for (int i = 0; i < o->n_field; i++)
        CLT_TRY(find_name(t, "field", o->field[i], target));
    for (int i = 0; i < o->n_drop; i++) {
        CLT_TRY(find_name(t, "drop", o->drop[i], target));
        dropped[*target] = true;
    }
    *target = t->columns - 1;
    while (*target > 0 && (dropped[*target] || is_listed(o->field, o->n_field, t->names[*target])))
        --*target;
    if (o->target)
        CLT_TRY(find_name(t, "target", o->target, target));
    return dropped[*target] ? clt_fail(CLT_INVALID_ARGUMENT, "%s: the target '%s' is dropped",
                                       t->path, t->names[*target])
                            : CLT_OK;
}

clt_status clt_csv_columns_find(const clt_csv_table *t, const clt_csv_options *o,
                                const unsigned char *rows, clt_csv_columns *out)
{
    int64_t target = 0;
    *out = (clt_csv_columns){.count = t->columns,
                             .delimiter = o->delimiter,
                             .header = (int)t->header,
                             .missing = (int)o->missing};
    out->list = clt_calloc((size_t)t->columns, sizeof *out->list);
    bool *dropped = clt_calloc((size_t)t->columns, sizeof *dropped);
    clt_status status = out->list && dropped ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, find_target(t, o, dropped, &target));
    for (int64_t i = 0; status == CLT_OK && i < t->columns; i++) {
        clt_csv_column *c = &out->list[i];
        values v = {0};
        c->name = clt_strdup(t->names[i]);
        status = c->name ? CLT_OK : CLT_OUT_OF_MEMORY;
        if (status == CLT_OK && !clt_csv_is_utf8(c->name))
            status = clt_fail(CLT_FORMAT, "%s: line %lld, column %lld: the name is not UTF-8: %s",
                              t->path, (long long)t->lines[0], (long long)i + 1, TO_UTF8);
        if (dropped[i])
            continue;
        CLT_NEXT(status, collect(t, i, rows, &v));
        CLT_NEXT(status, find_column(t, o, i, i == target, rows, &v, c));
        out->features += clt_csv_features(c);
        values_free(&v);
    }
    clt_free(dropped);
    if (status == CLT_OK && !out->features)
        status = clt_fail(CLT_FORMAT, "%s: has no column besides the target '%s'%s", t->path,
                          t->names[target], clt_csv_delimiter_hint(t));
    return status;
}

static clt_status refit_column(const clt_csv_table *t, const clt_csv_options *o, int64_t column,
                               values *v, clt_csv_column *c)
{
    CLT_TRY(check_any(t, column, v));
    if (c->kind != CLT_CSV_CATEGORY)
        return measure(t, column, c, v, c->kind == CLT_CSV_TARGET ? CLT_CSV_REFUSE : o->missing);
    int64_t *counts = clt_calloc((size_t)c->n_names, sizeof *counts), most = 0;
    CLT_TRY_MEMORY(counts);
    for (int64_t i = 0; i < v->count; i++)
        counts[clt_csv_name_number(c, v->texts[i])]++;
    for (int64_t i = 0; i < c->n_names; i++)
        if (counts[i] > most) {
            most = counts[i];
            c->fill = (double)i;
        }
    clt_free(counts);
    return CLT_OK;
}

clt_status clt_csv_columns_refit(const clt_csv_table *t, const clt_csv_options *o,
                                 const unsigned char *rows, clt_csv_columns *columns)
{
    clt_status status = CLT_OK;
    for (int64_t i = 0; status == CLT_OK && i < columns->count; i++) {
        clt_csv_column *c = &columns->list[i];
        values v = {0};
        if (c->kind != CLT_CSV_NUMBER && c->kind != CLT_CSV_TARGET &&
            !(c->kind == CLT_CSV_CATEGORY && c->fills))
            continue;
        status = collect(t, i, rows, &v);
        CLT_NEXT(status, refit_column(t, o, i, &v, c));
        values_free(&v);
    }
    return status;
}

void clt_csv_columns_free(clt_csv_columns *columns)
{
    for (int64_t i = 0; columns->list && i < columns->count; i++) {
        clt_csv_column *c = &columns->list[i];
        for (int64_t n = 0; c->names && n < c->n_names; n++)
            clt_free(c->names[n]);
        CLT_FREE(c->name, c->names, c->sorted);
    }
    clt_free(columns->list);
    *columns = (clt_csv_columns){0};
}
