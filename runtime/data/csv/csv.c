/* csv:PATH: makes features x and a label or number y of the columns of a CSV file. */
#include "data/csv/csv.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"

/* Every tenth row of a file without splits is for tests. Files that are sorted by class then have
 * all classes in both. */
enum { TENTH = 10 };

static bool is_test_row(int64_t row, int64_t rows)
{
    return row % TENTH == TENTH - 1 || (rows < TENTH && row == rows - 1);
}

/* A data set in the making. */
typedef struct making {
    const clt_csv_table *table;
    const clt_csv_columns *columns;
    const unsigned char *rows;
    int64_t count;  /* rows that count */
    int64_t *place; /* by column of `columns`: the column of the table; -1: not there */
    bool all;       /* the target may be missing */
    const clt_csv_column *target;
    int64_t target_place;
} making;

/* --- which columns are where ------------------------------------------------------------------ */

static bool is_target(const clt_csv_column *c)
{
    return c->kind == CLT_CSV_LABEL || c->kind == CLT_CSV_TARGET;
}

/* Whether a name is a number, as where values were taken for a header. */
static bool has_number(const clt_csv_table *t)
{
    double value;
    for (int64_t k = 0; k < t->columns; k++)
        if (clt_csv_number(t->names[k], &value))
            return true;
    return false;
}

static clt_status find_by_name(making *m)
{
    const clt_csv_table *t = m->table;
    for (int64_t i = 0; i < m->columns->count; i++) {
        const clt_csv_column *c = &m->columns->list[i];
        for (int64_t k = 0; m->place[i] < 0 && k < t->columns; k++)
            m->place[i] = !strcmp(t->names[k], c->name) ? k : -1;
        const bool may_lack = is_target(c) || c->kind == CLT_CSV_FIELD;
        if (m->place[i] < 0 && c->kind != CLT_CSV_DROPPED && !(m->all && may_lack)) {
            if (*clt_csv_delimiter_hint(t))
                return clt_fail(CLT_FORMAT, "%s: line %lld: has one column only, '%.80s'%s",
                                t->path, (long long)t->lines[0], t->names[0],
                                clt_csv_delimiter_hint(t));
            const char *near = clt_nearest(c->name, (const char *const *)t->names, (int)t->columns);
            return clt_fail(CLT_FORMAT,
                            "%s: line %lld: has no column '%s', which the training samples "
                            "had%s%s%s%s",
                            t->path, (long long)t->lines[0], c->name,
                            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "",
                            has_number(t)  ? "; if the line has values say header=off"
                            : is_target(c) ? "; to predict rows without it give csv:FILE as a file "
                                             "to predict, not as --data"
                                           : "");
        }
    }
    return CLT_OK;
}

/* Where this file or the training samples have no header, columns are found by their numbers. The
 * target may be left out. */
static clt_status find_by_number(making *m)
{
    const clt_csv_table *t = m->table;
    const bool without = m->all && t->columns == m->columns->count - 1;
    int64_t next = 0;
    if (!without && t->columns != m->columns->count)
        return clt_fail(CLT_FORMAT, "%s: line %lld: has %lld columns, the training samples %lld%s",
                        t->path, (long long)t->lines[0], (long long)t->columns,
                        (long long)m->columns->count, clt_csv_delimiter_hint(t));
    for (int64_t i = 0; i < m->columns->count; i++)
        if (!without || !is_target(&m->columns->list[i]))
            m->place[i] = next++;
    return CLT_OK;
}

/* --- features --------------------------------------------------------------------------------- */

/* Texts of a column that the training samples do not have. */
typedef struct unknowns {
    int64_t count, first; /* the first one's row */
} unknowns;

static clt_status number_of(const making *m, const clt_csv_column *c, int64_t row, int64_t place,
                            double *value)
{
    if (!clt_csv_is_missing(clt_csv_text(m->table, row, place)))
        return clt_csv_cell_number(m->table, row, place, value);
    *value = c->fill;
    return c->fills ? CLT_OK : clt_csv_fail_missing(m->table, row, place, c->kind);
}

/* Returns the number of the cell's name, or -1 if it is unknown. */
static clt_status name_of(const making *m, const clt_csv_column *c, int64_t row, int64_t place,
                          int64_t *number)
{
    const char *text = clt_csv_text(m->table, row, place);
    *number = clt_csv_name_number(c, text);
    if (*number >= 0 || !clt_csv_is_missing(text))
        return CLT_OK;
    *number = (int64_t)c->fill;
    return c->fills ? CLT_OK : clt_csv_fail_missing(m->table, row, place, c->kind);
}

static clt_status put_column(const making *m, int64_t column, float *x, int64_t width)
{
    const clt_csv_column *c = &m->columns->list[column];
    const int64_t place = m->place[column];
    unknowns u = {0};
    for (int64_t row = 0; row < m->table->rows; row++) {
        double value = 0;
        int64_t name = 0;
        if (!m->rows[row])
            continue;
        if (c->kind == CLT_CSV_NUMBER) {
            CLT_TRY(number_of(m, c, row, place, &value));
            CLT_TRY(clt_csv_scale(m->table, row, place, c, value, x));
            x += width;
            continue;
        }
        CLT_TRY(name_of(m, c, row, place, &name));
        if (name < 0 && !u.count++)
            u.first = row;
        if (c->index)
            *x = (float)(name < 0 ? c->n_names : name);
        else if (name >= 0)
            x[name] = 1;
        x += width;
    }
    if (u.count)
        clt_log(CLT_LOG_WARN,
                "%s: column '%s': %lld texts are unknown to the training samples, the first in "
                "line %lld ('%.40s'): they count as none of its names",
                m->table->path, c->name, (long long)u.count,
                (long long)clt_csv_line(m->table, u.first), clt_csv_text(m->table, u.first, place));
    return CLT_OK;
}

static clt_status add_features(const making *m, clt_dataset *d)
{
    const int64_t width = m->columns->features;
    void *data;
    float *x;
    CLT_TRY(clt_dataset_add_owned(d, "x", CLT_F32, 1, &width, &data));
    x = data;
    memset(x, 0, (size_t)(m->count * width) * sizeof *x);
    for (int64_t i = 0; i < m->columns->count; i++) {
        const clt_csv_column *c = &m->columns->list[i];
        if (!clt_csv_features(c))
            continue;
        CLT_TRY(put_column(m, i, x, width));
        x += clt_csv_features(c);
    }
    return CLT_OK;
}

/* --- the target ------------------------------------------------------------------------------- */

/* Returns the label that a text probably means: the same number, as 1.0 for 1, or nearly the same
 * text. NULL: none. */
static const char *near_label(const clt_csv_column *c, const char *text)
{
    double value, other;
    const bool number = clt_csv_number(text, &value);
    for (int64_t i = 0; number && i < c->n_names; i++)
        if (clt_csv_number(c->names[i], &other) && other == value)
            return c->names[i];
    return number ? NULL : clt_nearest(text, (const char *const *)c->names, (int)c->n_names);
}

static clt_status put_target(const making *m, int64_t row, float *y, int32_t *label)
{
    const char *text = clt_csv_text(m->table, row, m->target_place);
    double value;
    if (clt_csv_is_missing(text) &&
        (m->target->kind == CLT_CSV_TARGET || clt_csv_name_number(m->target, text) < 0))
        return clt_csv_fail_missing(m->table, row, m->target_place, m->target->kind);
    if (m->target->kind == CLT_CSV_TARGET) {
        CLT_TRY(clt_csv_cell_number(m->table, row, m->target_place, &value));
        return clt_csv_scale(m->table, row, m->target_place, m->target, value, y);
    }
    *label = (int32_t)clt_csv_name_number(m->target, text);
    if (*label >= 0)
        return CLT_OK;
    const char *near = near_label(m->target, text);
    return clt_fail(CLT_FORMAT,
                    "%s: line %lld, column %lld ('%s'): the training samples have no label "
                    "'%.80s'%s%.80s%s",
                    m->table->path, (long long)clt_csv_line(m->table, row),
                    (long long)m->target_place + 1, m->target->name, text,
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Whether all targets are there. Samples to predict need none. If some are not, the message of the
 * failure says why. */
static bool has_targets(const making *m)
{
    float y;
    int32_t label;
    if (!m->all)
        return true;
    if (m->target_place < 0) {
        clt_fail(CLT_FORMAT, "%s: line %lld: has no column '%s'", m->table->path,
                 (long long)m->table->lines[0], m->target->name);
        return false;
    }
    for (int64_t row = 0; row < m->table->rows; row++)
        if (m->rows[row] && put_target(m, row, &y, &label) != CLT_OK)
            return false;
    return true;
}

static clt_status add_target(const making *m, clt_dataset *d)
{
    static const int64_t one[] = {1};
    const bool label = m->target->kind == CLT_CSV_LABEL;
    void *data;
    int64_t i = 0;
    if (!has_targets(m)) {
        d->lacked = label ? "label" : "y";
        d->lacked_why = clt_strdup(clt_error_message());
        return d->lacked_why ? CLT_OK : CLT_OUT_OF_MEMORY;
    }
    CLT_TRY(clt_dataset_add_owned(d, label ? "label" : "y", label ? CLT_I32 : CLT_F32,
                                  label ? 0 : 1, one, &data));
    for (int64_t row = 0; row < m->table->rows; row++)
        if (m->rows[row]) {
            CLT_TRY(put_target(m, row, (float *)data + i, (int32_t *)data + i));
            i++;
        }
    if (!label)
        return CLT_OK;
    const int field = d->field_count - 1;
    CLT_TRY(clt_dataset_set_classes(d, field, m->target->n_names));
    return clt_dataset_name_classes(d, field, (const char *const *)m->target->names);
}

/* --- fields of their own -----------------------------------------------------------------------
 */

static clt_status add_fields(const making *m, clt_dataset *d)
{
    for (int64_t i = 0; i < m->columns->count; i++) {
        void *data;
        int64_t at = 0;
        if (m->columns->list[i].kind != CLT_CSV_FIELD || m->place[i] < 0)
            continue;
        CLT_TRY(clt_dataset_add_owned(d, m->columns->list[i].name, CLT_F32, 0, NULL, &data));
        for (int64_t row = 0; row < m->table->rows; row++)
            if (m->rows[row])
                CLT_TRY(clt_csv_cell_field(m->table, row, m->place[i], (float *)data + at++));
    }
    return CLT_OK;
}

clt_status clt_csv_dataset(const clt_csv_table *table, const clt_csv_columns *columns,
                           const unsigned char *rows, bool all, const char *name, clt_dataset **out)
{
    making m = {.table = table, .columns = columns, .rows = rows, .all = all, .target_place = -1};
    clt_dataset *d = NULL;
    for (int64_t i = 0; i < table->rows; i++)
        m.count += rows[i];
    m.place = clt_alloc((size_t)columns->count * sizeof *m.place);
    CLT_TRY_MEMORY(m.place);
    for (int64_t i = 0; i < columns->count; i++)
        m.place[i] = -1;
    const bool named = table->header && columns->header;
    clt_status status = named ? find_by_name(&m) : find_by_number(&m);
    for (int64_t i = 0; status == CLT_OK && i < columns->count; i++)
        if (is_target(&columns->list[i])) {
            m.target = &columns->list[i];
            m.target_place = m.place[i];
        }
    if (status == CLT_OK && !m.target)
        status =
            clt_fail(CLT_FORMAT, "%s: the description of the columns names no target", table->path);
    CLT_NEXT(status, clt_dataset_new(CLT_DATA_HOST, name, m.count, &d));
    CLT_NEXT(status, add_features(&m, d));
    CLT_NEXT(status, add_target(&m, d));
    CLT_NEXT(status, add_fields(&m, d));
    CLT_NEXT(status, clt_csv_columns_write(columns, &d->description));
    clt_free(m.place);
    if (status == CLT_OK)
        *out = d;
    else
        clt_dataset_free(d);
    return status;
}

/* --- files ------------------------------------------------------------------------------------ */

static bool is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* Writes the path of a split in a folder: train.csv, or train.csv.gz. */
static clt_status path_in(const char *folder, const char *split, char **path)
{
    clt_str text = {0};
    clt_str_add(&text, "%s/%s.csv", folder, split);
    if (!text.failed && access(clt_str_text(&text), F_OK) != 0) {
        clt_str_add(&text, ".gz");
        if (!text.failed && access(clt_str_text(&text), F_OK) != 0) {
            clt_str_free(&text);
            return clt_fail(CLT_NOT_FOUND, "%s: has neither %s.csv nor %s.csv.gz", folder, split,
                            split);
        }
    }
    *path = text.failed ? NULL : clt_strdup(clt_str_text(&text));
    clt_str_free(&text);
    return *path ? CLT_OK : CLT_OUT_OF_MEMORY;
}

/* Marks the rows of a split. `whole`: the file has no other split. */
static clt_status mark(const clt_csv_table *t, bool whole, bool test, unsigned char **rows)
{
    *rows = clt_calloc((size_t)t->rows, 1);
    CLT_TRY_MEMORY(*rows);
    if (!whole && t->rows < 2)
        return clt_fail(CLT_FORMAT,
                        "%s: has one row: training and tests need one each, or put them in "
                        "FOLDER/train.csv and FOLDER/test.csv",
                        t->path);
    for (int64_t i = 0; i < t->rows; i++)
        (*rows)[i] = whole || is_test_row(i, t->rows) == test;
    return CLT_OK;
}

/* Reads the columns from the description, or finds them on the training samples. */
static clt_status find_columns(const clt_data_request *r, const clt_csv_options *o,
                               clt_csv_columns *columns)
{
    clt_csv_table table = {0};
    unsigned char *rows = NULL;
    char *path = NULL;
    if (r->options->description) {
        CLT_TRY(clt_csv_columns_read(r->options->description, columns));
        return clt_csv_options_agree(o, columns);
    }
    const bool folder = is_folder(o->path);
    clt_status status = folder ? path_in(o->path, "train", &path) : CLT_OK;
    CLT_NEXT(status, clt_csv_read(folder ? path : o->path, o->delimiter, o->header, &table));
    CLT_NEXT(status, mark(&table, folder, false, &rows));
    CLT_NEXT(status, clt_csv_columns_find(&table, o, rows, columns));
    clt_csv_free(&table);
    CLT_FREE(rows, path);
    return status;
}

/* Reads the table of a split, and marks its rows. header= and delimiter= are about the file, which
 * may be written in another way than the training samples. */
static clt_status read_split(const clt_csv_options *o, const clt_csv_columns *columns, bool test,
                             bool all, clt_csv_table *table, unsigned char **rows)
{
    char *path = NULL;
    const bool folder = is_folder(o->path);
    const char delimiter = o->given & CLT_CSV_GAVE_DELIMITER ? o->delimiter : columns->delimiter;
    const int header = o->given & CLT_CSV_GAVE_HEADER ? o->header : columns->header;
    clt_status status = folder ? path_in(o->path, test ? "test" : "train", &path) : CLT_OK;
    CLT_NEXT(status, clt_csv_read(folder ? path : o->path, delimiter, header, table));
    CLT_NEXT(status, mark(table, folder || all, test, rows));
    clt_free(path);
    return status;
}

static clt_status open_rows(const clt_data_request *r, const clt_csv_options *o,
                            const clt_csv_columns *columns, clt_dataset **out)
{
    clt_csv_table table = {0};
    unsigned char *rows = NULL;
    clt_status status = read_split(o, columns, r->test, r->all, &table, &rows);
    CLT_NEXT(status, clt_csv_dataset(&table, columns, rows, r->all, r->name, out));
    clt_csv_free(&table);
    clt_free(rows);
    return status;
}

/* --- a part for validation ---------------------------------------------------------------------
 */

/* Takes the rows of `held` out of `rows`. Sample k is the row with the k-th mark. */
static clt_status leave_out(const clt_dataset *d, const clt_csv_table *t, const char *held,
                            unsigned char *rows)
{
    int64_t sample = 0;
    for (int64_t i = 0; i < t->rows; i++)
        if (rows[i]) {
            rows[i] = sample < d->count && !held[sample];
            sample++;
        }
    return sample == d->count ? CLT_OK
                              : clt_fail(CLT_FORMAT,
                                         "%s: has %lld training samples, but %lld when it was "
                                         "opened: another program has changed it",
                                         t->path, (long long)sample, (long long)d->count);
}

/* Overwrites the samples of `d` by those of a data set with the same fields. */
static void replace(clt_dataset *d, clt_dataset *by)
{
    for (int i = 0; i < d->field_count; i++)
        memcpy(d->fields[i].owned, by->fields[i].data, (size_t)(d->count * d->fields[i].bytes));
    char *description = d->description;
    d->description = by->description;
    by->description = description;
}

/* Means, deviations and fills are those of the samples that are left for training. */
static clt_status refit(clt_dataset *d, const char *held)
{
    const clt_csv_options *o = d->payload;
    clt_csv_columns columns = {0};
    clt_csv_table table = {0};
    unsigned char *rows = NULL, *left = NULL;
    clt_dataset *fresh = NULL;
    clt_status status = clt_csv_columns_read(d->description, &columns);
    CLT_NEXT(status, read_split(o, &columns, false, false, &table, &rows));
    CLT_NEXT(status, (left = clt_alloc((size_t)table.rows)) ? CLT_OK : CLT_OUT_OF_MEMORY);
    if (status == CLT_OK) {
        memcpy(left, rows, (size_t)table.rows);
        status = leave_out(d, &table, held, left);
    }
    CLT_NEXT(status, clt_csv_columns_refit(&table, o, left, &columns));
    CLT_NEXT(status, clt_csv_dataset(&table, &columns, rows, false, d->name, &fresh));
    if (status == CLT_OK)
        replace(d, fresh);
    clt_dataset_free(fresh);
    clt_csv_free(&table);
    clt_csv_columns_free(&columns);
    CLT_FREE(rows, left);
    return status;
}

static void free_options(void *payload)
{
    clt_csv_options_free(payload);
    clt_free(payload);
}

/* Lets clt_dataset_split find the means anew, unless they were given. Takes over the options. */
static clt_status keep_options(const clt_data_request *r, clt_csv_options *o, clt_dataset *d)
{
    if (r->options->description || r->test || r->all)
        return CLT_OK;
    clt_csv_options *kept = CLT_NEW(clt_csv_options);
    CLT_TRY_MEMORY(kept);
    *kept = *o;
    *o = (clt_csv_options){0};
    d->payload = kept;
    d->payload_free = free_options;
    d->refit = refit;
    return CLT_OK;
}

clt_status clt_open_csv(const clt_data_request *r, clt_dataset **out)
{
    clt_csv_options o;
    clt_csv_columns columns = {0};
    clt_dataset *d = NULL;
    clt_status status = clt_csv_options_read(r->path, &o);
    CLT_NEXT(status, find_columns(r, &o, &columns));
    CLT_NEXT(status, open_rows(r, &o, &columns, &d));
    CLT_NEXT(status, keep_options(r, &o, d));
    clt_csv_columns_free(&columns);
    clt_csv_options_free(&o);
    int field;
    const int64_t classes = r->options->classes;
    if (status == CLT_OK && classes && clt_dataset_find_field(d, "label", &field) == CLT_OK &&
        clt_dataset_classes(d, field) != classes)
        status = clt_fail(CLT_INVALID_ARGUMENT,
                          "data '%s': the label has %lld names, but %lld "
                          "classes were asked for",
                          r->spec, (long long)clt_dataset_classes(d, field), (long long)classes);
    if (status == CLT_OK)
        *out = d;
    else
        clt_dataset_free(d);
    return status;
}
