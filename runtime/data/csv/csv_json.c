/* The columns of a CSV file as JSON, which checkpoints keep. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/error.h"
#include "data/csv/csv_columns.h"

static const char *const kinds[] = {"dropped", "number", "category", "label", "target", "field"};
static const char *const ways[] = {"refuse", "mean", "frequent"}; /* clt_csv_missing */
enum { KINDS = sizeof kinds / sizeof *kinds, MOST_COLUMNS = 16384, MOST_NAMES = 100000 };

int clt_csv_is_utf8(const char *text)
{
    json_t *string = json_string(text);
    json_decref(string);
    return string != NULL;
}

static json_t *write_column(const clt_csv_column *c)
{
    json_t *out = json_pack("{s:s, s:s}", "name", c->name, "kind", kinds[c->kind]);
    if (out && (c->kind == CLT_CSV_NUMBER || c->kind == CLT_CSV_TARGET)) {
        json_object_set_new(out, "mean", json_real(c->mean));
        json_object_set_new(out, "std", json_real(c->std));
    }
    if (out && c->names) {
        json_t *names = json_array();
        for (int64_t i = 0; i < c->n_names; i++)
            if (json_array_append_new(names, json_string(c->names[i]))) {
                json_decref(names);
                json_decref(out);
                return NULL;
            }
        json_object_set_new(out, "names", names);
    }
    if (out && c->index)
        json_object_set_new(out, "index", json_true());
    if (out && c->fills)
        json_object_set_new(out, "fill", json_real(c->fill));
    return out;
}

clt_status clt_csv_columns_write(const clt_csv_columns *columns, char **json)
{
    const char delimiter[] = {columns->delimiter, '\0'};
    json_t *list = json_array();
    for (int64_t i = 0; i < columns->count; i++)
        if (json_array_append_new(list, write_column(&columns->list[i]))) {
            json_decref(list);
            return CLT_OUT_OF_MEMORY; /* names are UTF-8 */
        }
    json_t *all = json_pack("{s:s, s:b, s:o}", "delimiter", delimiter, "header", columns->header,
                            "columns", list);
    if (all && columns->missing >= 0)
        json_object_set_new(all, "missing", json_string(ways[columns->missing]));
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(all);
    *json = text ? clt_strdup(text) : NULL;
    free(text);
    return *json ? CLT_OK : clt_fail(CLT_OUT_OF_MEMORY, "csv: its columns cannot be described");
}

static clt_status read_names(const json_t *names, clt_csv_column *c)
{
    const size_t count = json_array_size(names);
    if (count < 1 || count > MOST_NAMES)
        return CLT_FORMAT;
    c->names = clt_calloc(count, sizeof *c->names);
    CLT_TRY_MEMORY(c->names);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (!name)
            return CLT_FORMAT;
        CLT_TRY_MEMORY(c->names[i] = clt_strdup(name));
        c->n_names++;
    }
    return clt_csv_sort_names(c);
}

static clt_status read_column(const json_t *from, clt_csv_column *c)
{
    const char *name = json_string_value(json_object_get(from, "name"));
    const char *kind = json_string_value(json_object_get(from, "kind"));
    const json_t *fill = json_object_get(from, "fill");
    int k = 0;
    while (kind && k < KINDS && strcmp(kind, kinds[k]))
        k++;
    if (!name || !kind || k == KINDS)
        return CLT_FORMAT;
    CLT_TRY_MEMORY(c->name = clt_strdup(name));
    c->kind = (clt_csv_kind)k;
    c->index = json_is_true(json_object_get(from, "index"));
    c->fills = fill != NULL;
    c->fill = json_number_value(fill);
    if (c->kind == CLT_CSV_CATEGORY || c->kind == CLT_CSV_LABEL) {
        CLT_TRY(read_names(json_object_get(from, "names"), c));
        return c->fills && !(c->fill >= 0 && c->fill < (double)c->n_names) ? CLT_FORMAT : CLT_OK;
    }
    c->mean = json_number_value(json_object_get(from, "mean"));
    c->std = json_number_value(json_object_get(from, "std"));
    const int fits = isfinite(c->mean) && isfinite(c->std) && isfinite(c->fill);
    const int plain = c->kind == CLT_CSV_DROPPED || c->kind == CLT_CSV_FIELD;
    return plain || (fits && c->std > 0) ? CLT_OK : CLT_FORMAT;
}

/* Descriptions of version 0.2 and before do not say it. */
static int read_missing(const json_t *all)
{
    const char *way = json_string_value(json_object_get(all, "missing"));
    int number = way ? (int)(sizeof ways / sizeof *ways) - 1 : -1;
    while (number >= 0 && strcmp(way, ways[number]))
        number--;
    return number;
}

clt_status clt_csv_columns_read(const char *json, clt_csv_columns *out)
{
    json_t *all = json_loads(json, 0, NULL);
    const json_t *list = json_object_get(all, "columns");
    const char *delimiter = json_string_value(json_object_get(all, "delimiter"));
    const size_t count = json_array_size(list);
    clt_status status =
        delimiter && delimiter[0] && !delimiter[1] && count > 0 && count <= MOST_COLUMNS
            ? CLT_OK
            : CLT_FORMAT;
    *out = (clt_csv_columns){0};
    if (status == CLT_OK) {
        out->delimiter = delimiter[0];
        out->header = json_is_true(json_object_get(all, "header"));
        out->missing = read_missing(all);
        out->list = clt_calloc(count, sizeof *out->list);
        status = out->list ? CLT_OK : CLT_OUT_OF_MEMORY;
    }
    for (size_t i = 0; status == CLT_OK && i < count; i++) {
        out->count++;
        status = read_column(json_array_get(list, i), &out->list[i]);
        out->features += clt_csv_features(&out->list[i]);
    }
    json_decref(all);
    if (status == CLT_OK && !out->features)
        status = CLT_FORMAT;
    return status != CLT_FORMAT
               ? status
               : clt_fail(CLT_FORMAT, "csv: the description of the columns is not one that "
                                      "clt_dataset_description gave");
}
