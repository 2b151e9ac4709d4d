/*
 * Feeds random bytes to the reader of csv:PATH (libFuzzer; tests/data/fuzz_csv.sh). The first line
 * has the options, the rest is the file. What opens is described as JSON, and opened again with the
 * description, which must give the same samples.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/formats/csv.h"

static void must(int right)
{
    if (!right)
        abort();
}

/* Opens the rows again, with the columns as a checkpoint keeps them. */
static void open_again(const clt_csv_table *table, const unsigned char *rows,
                       const clt_dataset *first)
{
    clt_csv_columns columns = {0};
    clt_dataset *again = NULL;
    must(clt_csv_columns_read(clt_dataset_description(first), &columns) == CLT_OK);
    must(clt_csv_dataset(table, &columns, rows, false, "again", &again) == CLT_OK);
    must(again->field_count == first->field_count && again->count == first->count);
    for (int f = 0; f < first->field_count; f++)
        must(again->fields[f].bytes == first->fields[f].bytes &&
             !memcmp(again->fields[f].data, first->fields[f].data,
                     (size_t)(first->count * first->fields[f].bytes)));
    clt_dataset_free(again);
    clt_csv_columns_free(&columns);
}

static void open_table(const clt_csv_table *table, const clt_csv_options *options)
{
    clt_csv_columns columns = {0};
    clt_dataset *train = NULL, *test = NULL, *all = NULL;
    unsigned char *rows = calloc((size_t)table->rows + 1, 1);
    for (int64_t i = 0; i < table->rows; i++)
        rows[i] = i % 3 != 2;
    if (clt_csv_columns_find(table, options, rows, &columns) == CLT_OK &&
        clt_csv_dataset(table, &columns, rows, false, "train", &train) == CLT_OK) {
        open_again(table, rows, train);
        for (int64_t i = 0; i < table->rows; i++)
            rows[i] = !rows[i];
        if (table->rows > 2 &&
            clt_csv_dataset(table, &columns, rows, false, "test", &test) == CLT_OK)
            clt_dataset_free(test);
        memset(rows, 1, (size_t)table->rows);
        if (clt_csv_dataset(table, &columns, rows, true, "all", &all) == CLT_OK)
            clt_dataset_free(all);
        clt_dataset_free(train);
    }
    clt_csv_columns_free(&columns);
    free(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data, *end = size ? memchr(bytes, '\n', size) : NULL;
    const size_t length = end ? (size_t)(end - bytes) : size;
    char *text = malloc(length + 8);
    memcpy(text, "x?", 2);
    memcpy(text + 2, bytes, length);
    text[length + 2] = '\0';
    clt_csv_options options;
    clt_csv_table table = {0};
    clt_csv_columns columns = {0};
    if (clt_csv_options_read(text, &options) == CLT_OK && end &&
        clt_csv_parse("fuzz.csv", end + 1, size - length - 1, options.delimiter, options.header,
                      &table) == CLT_OK)
        open_table(&table, &options);
    clt_csv_free(&table);
    clt_csv_options_free(&options);
    /* A description comes from a checkpoint, which may be damaged. */
    text[length] = '\0';
    (void)clt_csv_columns_read(text, &columns);
    clt_csv_columns_free(&columns);
    free(text);
    return 0;
}
