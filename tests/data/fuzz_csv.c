/*
 * Feeds random bytes to the reader of csv:PATH (libFuzzer; tests/data/fuzz_csv.sh). The first line
 * has the options, the rest is the file. What opens is described as JSON, and opened again with the
 * description, which must give the same samples.
 *
 * If the first line begins with @, the rest is written to a file, and with / to train.csv of a
 * folder. Rows behind a line %% go to the folder's test.csv. A digit next is the number of classes.
 * Training samples, tests and all samples are then opened as the command does.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "data/csv/csv.h"

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

/* --- files ------------------------------------------------------------------------------------ */

static char folder[64]; /* holds the file, or train.csv and test.csv */

static void remove_folder(void)
{
    rmdir(folder);
}

static void make_folder(void)
{
    if (*folder)
        return;
    snprintf(folder, sizeof folder, "/tmp/fuzz-csv-XXXXXX");
    must(mkdtemp(folder) != NULL);
    atexit(remove_folder);
}

static void write_file(const char *path, const char *bytes, size_t count)
{
    FILE *file = fopen(path, "w");
    must(file && fwrite(bytes, 1, count, file) == count && !fclose(file));
}

/* Opens training samples, then tests and all samples with the columns of training. */
static void open_splits(const char *path, const clt_dataset_options *given)
{
    clt_dataset *train = NULL, *other = NULL;
    clt_dataset_options options = *given;
    clt_data_request r = {path, "train", path, &options, false, false};
    if (clt_open_csv(&r, &train) != CLT_OK)
        return;
    options.description = clt_dataset_description(train);
    for (int all = 0; all <= 1; all++) {
        r.test = !all;
        r.all = all;
        if (clt_open_csv(&r, &other) == CLT_OK)
            clt_dataset_free(other);
    }
    clt_dataset_free(train);
}

static void open_files(const char *text, const char *rows, size_t count)
{
    const bool in_folder = *text == '/';
    const char *second = NULL;
    char train[128], test[128], *path = malloc(strlen(text) + 128);
    clt_dataset_options options = {0};
    make_folder();
    if (text[1] >= '0' && text[1] <= '9')
        options.classes = *++text - '0';
    snprintf(train, sizeof train, "%s/train.csv", folder);
    snprintf(test, sizeof test, "%s/test.csv", folder);
    sprintf(path, "%s?%s", in_folder ? folder : train, text + 1);
    if (in_folder)
        second = memmem(rows, count, "\n%%\n", 4);
    write_file(train, rows, second ? (size_t)(second - rows) + 1 : count);
    if (second)
        write_file(test, second + 4, count - (size_t)(second + 4 - rows));
    open_splits(path, &options);
    unlink(train);
    if (second)
        unlink(test);
    free(path);
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
    if (end && (text[2] == '@' || text[2] == '/')) {
        open_files(text + 2, end + 1, size - length - 1);
        free(text);
        return 0;
    }
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
