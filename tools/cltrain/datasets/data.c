/* `cltrain data`: describes a data set, or converts text to files of tokens. */
#include "datasets/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options/commands.h"
#include "text/cell.h"
#include "text/message.h"
#include "datasets/divide.h"
#include "datasets/helper.h"

/* Columns of names in tables. */
enum { NAME = 20, SHORT = 12, MOST_NAME = 200 };

enum { BATCH = 64, MOST_COUNTED = 1 << 20, MOST_PRINTED = 100, MOST_CHANNELS = 16, MOST_TOLD = 10 };

/* Statistics of one field over all samples. */
typedef struct field_sums {
    const char *name;
    clt_dtype dtype;
    int rank, output;
    int64_t shape[CLT_DATA_MAX_RANK], elements, classes;
    double least, most, sum, squares;
    int64_t numbers, not_finite;
    int64_t *counts; /* samples of each class; NULL if the field has no labels */
    int channels;    /* of an image field; 0 for other fields or more than MOST_CHANNELS */
    double channel_sum[MOST_CHANNELS], channel_squares[MOST_CHANNELS];
} field_sums;

/* Samples that cannot be read, with the error messages of the first few. */
typedef struct broken_samples {
    int64_t count;
    char *said[MOST_TOLD];
} broken_samples;

clt_status data_options(const settings *s, clt_dataset_options *options)
{
    clt_dataset_options_init(options);
    options->classes = s->classes > 0 ? s->classes : 0;
    options->image_size = s->image_size > 0 ? s->image_size : 0;
    options->resize = s->resize > 0 ? s->resize : 0;
    options->sequence = s->seq_len > 0 ? s->seq_len : 0;
    return CLT_OK;
}

/* Writes the element type and shape of a field, such as "f32 [3,8,8]". Labels of every type are fed
 * alike, so their type is left out. */
static clt_status kind_of(const clt_dataset *d, int field, char text[128])
{
    clt_dtype dtype;
    int rank;
    int64_t shape[CLT_DATA_MAX_RANK];
    const clt_status status = clt_dataset_field_info(d, field, NULL, &dtype, &rank, shape, NULL);
    if (status != CLT_OK)
        return status;
    int used = snprintf(text, 128, "%s%s [", clt_dataset_is_image(d, field) ? "images of " : "",
                        clt_dataset_classes(d, field) ? "labels" : clt_dtype_name(dtype));
    for (int i = 0; i < rank && used < 100; i++)
        used +=
            snprintf(text + used, 128 - (size_t)used, "%s%lld", i ? "," : "", (long long)shape[i]);
    snprintf(text + used, 128 - (size_t)used, "]");
    return CLT_OK;
}

clt_status same_field(const clt_dataset *train, const clt_dataset *test, const char *name)
{
    char a[128], b[128], text[768];
    int in_train, in_test;
    clt_status status = clt_dataset_find_field(train, name, &in_train);
    NEXT(status, clt_dataset_find_field(test, name, &in_test));
    NEXT(status, kind_of(train, in_train, a));
    NEXT(status, kind_of(test, in_test, b));
    if (status != CLT_OK || !strcmp(a, b))
        return status;
    snprintf(text, sizeof text, "%.300s: field '%.60s' has %s, but in the training samples %s",
             clt_dataset_name(test), name, b, a);
    return clt_error_set(CLT_MISMATCH, text);
}

static clt_status begin_field(const clt_dataset *d, int number, field_sums *f)
{
    *f = (field_sums){.elements = 1, .least = INFINITY, .most = -INFINITY};
    clt_status status =
        clt_dataset_field_info(d, number, &f->name, &f->dtype, &f->rank, f->shape, NULL);
    for (int i = 0; status == CLT_OK && i < f->rank; i++)
        f->elements *= f->shape[i];
    f->classes = clt_dataset_classes(d, number);
    if (clt_dataset_is_image(d, number))
        f->channels = f->rank < 3 ? 1 : f->shape[0] <= MOST_CHANNELS ? (int)f->shape[0] : 0;
    if (status == CLT_OK && f->classes > 0 && f->classes <= MOST_COUNTED) {
        f->counts = calloc((size_t)f->classes, sizeof *f->counts);
        if (!f->counts)
            return clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice");
    }
    return status;
}

static double value_at(const field_sums *f, const void *data, int64_t i)
{
    if (f->dtype == CLT_U8)
        return ((const unsigned char *)data)[i];
    if (f->dtype == CLT_I32)
        return ((const int32_t *)data)[i];
    return (double)((const float *)data)[i];
}

static void add_values(field_sums *f, const void *data, int64_t n)
{
    const int64_t plane = f->channels ? f->elements / f->channels : 1;
    for (int64_t i = 0; i < n; i++) {
        const double x = value_at(f, data, i);
        if (!isfinite(x)) {
            f->not_finite++;
            continue;
        }
        f->least = x < f->least ? x : f->least;
        f->most = x > f->most ? x : f->most;
        f->sum += x;
        f->squares += x * x;
        f->numbers++;
        if (f->counts) /* the loader has checked the range of labels */
            f->counts[(int64_t)x]++;
        if (f->channels) {
            const int64_t c = i / plane % f->channels;
            f->channel_sum[c] += x;
            f->channel_squares[c] += x * x;
        }
    }
}

/* Reads samples *at to `end` in batches. After a failure *at is the first sample of the batch that
 * failed. */
static clt_status read_range(clt_dataset *d, field_sums *fields, int n_fields, int64_t batch_size,
                             int64_t end, int64_t *at)
{
    clt_loader_desc desc;
    clt_loader *loader = NULL;
    clt_batch batch = {.struct_size = sizeof batch};
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = batch_size;
    desc.shuffle = 0;
    desc.offset = *at;
    desc.end_epoch = 1;
    clt_status status = clt_loader_create(&desc, &loader);
    for (int i = 0; status == CLT_OK && i < n_fields; i++)
        status = clt_loader_add_output(loader, fields[i].name, fields[i].dtype, &fields[i].output);
    NEXT(status, clt_loader_start(loader));
    while (status == CLT_OK && *at < end) {
        status = clt_loader_next(loader, &batch);
        if (status != CLT_OK)
            break;
        for (int i = 0; i < n_fields; i++)
            add_values(&fields[i], clt_loader_memory(loader, batch.slot, 0, fields[i].output),
                       batch.count * fields[i].elements);
        *at += batch.count;
        status = clt_loader_release(loader, batch.slot);
    }
    clt_loader_free(loader);
    return status;
}

/* Reads all samples. Notes a file that cannot be read, and goes on with the next sample. */
static clt_status read_samples(clt_dataset *d, field_sums *fields, int n_fields,
                               broken_samples *broken)
{
    const int64_t count = clt_dataset_count(d);
    for (int64_t at = 0; at < count;) {
        clt_status status = read_range(d, fields, n_fields, BATCH, count, &at);
        if (status != CLT_OK && clt_dataset_kind(d) != CLT_DATA_CALLBACK)
            return status;
        const int64_t end = count - at < BATCH ? count : at + BATCH;
        while (at < end) {
            status = read_range(d, fields, n_fields, 1, at + 1, &at);
            if (status == CLT_OK)
                continue;
            if (status != CLT_FORMAT && status != CLT_IO)
                return status;
            if (broken->count < MOST_TOLD)
                broken->said[broken->count] = strdup(clt_error_message());
            broken->count++;
            at++;
        }
    }
    return CLT_OK;
}

/* --- printing --------------------------------------------------------------------------------- */

static void shape_text(const field_sums *f, char text[160])
{
    int used = snprintf(text, 160, "[");
    for (int i = 0; i < f->rank; i++)
        used += snprintf(text + used, 160 - (size_t)used, "%s%lld", i ? "," : "",
                         (long long)f->shape[i]);
    snprintf(text + used, 160 - (size_t)used, "]");
}

static double mean_of(const field_sums *f)
{
    return f->numbers ? f->sum / (double)f->numbers : NAN;
}

static double std_of(const field_sums *f)
{
    const double mean = mean_of(f);
    return sqrt(fmax(0, f->squares / (double)f->numbers - mean * mean));
}

/* Returns a value for --normalize: first the mean of each channel, then the standard deviations.
 * Bytes are divided by 255, as training does. */
static double channel_value(const field_sums *f, int k)
{
    const int c = k % f->channels;
    const double n = (double)f->numbers / f->channels, scale = f->dtype == CLT_U8 ? 255 : 1;
    const double mean = f->channel_sum[c] / n;
    return (k < f->channels ? mean : sqrt(fmax(0, f->channel_squares[c] / n - mean * mean))) /
           scale;
}

/* Returns whether --normalize can be suggested. A channel with a single value has no standard
 * deviation to divide by. */
static int can_normalize(const field_sums *f)
{
    int can = f->channels && f->numbers && !f->not_finite;
    for (int k = f->channels; can && k < 2 * f->channels; k++)
        can = channel_value(f, k) > 0;
    return can;
}

static void print_classes(const clt_dataset *d, int number, const field_sums *f)
{
    int64_t least = INT64_MAX, most = 0, empty = 0;
    for (int64_t c = 0; c < f->classes; c++) {
        least = f->counts[c] < least ? f->counts[c] : least;
        most = f->counts[c] > most ? f->counts[c] : most;
        empty += !f->counts[c];
    }
    show("           %lld classes, of %lld to %lld", (long long)f->classes, (long long)least,
         (long long)most);
    if (empty)
        show(", %lld of them empty", (long long)empty);
    show("\n");
    for (int64_t c = 0; f->classes <= MOST_PRINTED && c < f->classes; c++) {
        const char *name = clt_dataset_class_name(d, number, c);
        show("           %4lld  ", (long long)c);
        show_cell(name ? name : "", NAME, MOST_NAME, CELL_LEFT);
        show(" %lld\n", (long long)f->counts[c]);
    }
}

static void print_field(const clt_dataset *d, int number, const field_sums *f)
{
    char shape[160];
    shape_text(f, shape);
    show("  ");
    show_cell(f->name, SHORT, MOST_NAME, CELL_LEFT);
    show(" %-4s %-16s", clt_dtype_name(f->dtype), shape);
    if (f->numbers)
        show(" %.6g to %.6g, mean %.6g, std %.6g", f->least, f->most, mean_of(f), std_of(f));
    if (f->not_finite)
        show(", %lld not finite", (long long)f->not_finite);
    show("\n");
    if (can_normalize(f)) {
        show("           --normalize ");
        for (int k = 0; k < 2 * f->channels; k++)
            show("%s%.4g", k ? "," : "", channel_value(f, k));
        show("\n");
    }
    if (f->counts)
        print_classes(d, number, f);
}

/* Prints what csv:PATH found in the columns. */
static void print_columns(const clt_dataset *d)
{
    const char *description = clt_dataset_description(d);
    json_t *all = description ? json_loads(description, 0, NULL) : NULL, *column;
    size_t i;
    json_array_foreach(json_object_get(all, "columns"), i, column)
    {
        const json_t *names = json_object_get(column, "names");
        const json_t *mean = json_object_get(column, "mean");
        const json_t *fill = json_object_get(column, "fill");
        show("  column ");
        show_cell(json_string_value(json_object_get(column, "name")), SHORT, MOST_NAME, CELL_LEFT);
        show(" %-9s", json_string_value(json_object_get(column, "kind")));
        if (names)
            show(" %lld names", (long long)json_array_size(names));
        else if (mean)
            show(" mean %.6g, std %.6g", json_number_value(mean),
                 json_number_value(json_object_get(column, "std")));
        if (fill && names) {
            show(", missing: ");
            show_text(json_string_value(json_array_get(names, (size_t)json_number_value(fill))));
        } else if (fill) {
            show(", missing: %.6g", json_number_value(fill));
        }
        show("\n");
    }
    json_decref(all);
}

static void print_broken(const broken_samples *b, int64_t samples)
{
    if (b->count)
        show("  %lld of %lld samples cannot be read:\n", (long long)b->count, (long long)samples);
    for (int i = 0; i < MOST_TOLD && i < b->count; i++)
        show("           %s\n", b->said[i] ? b->said[i] : "");
    if (b->count > MOST_TOLD)
        show("           and %lld more\n", (long long)b->count - MOST_TOLD);
}

static json_t *broken_json(const broken_samples *b)
{
    json_t *said = json_array();
    for (int i = 0; i < MOST_TOLD && i < b->count; i++)
        json_array_append_new(said, json_text(b->said[i] ? b->said[i] : ""));
    return json_pack("{s:I, s:o}", "count", (json_int_t)b->count, "first", said);
}

static json_t *field_json(const clt_dataset *d, int number, const field_sums *f)
{
    json_t *shape = json_array(), *classes = f->counts ? json_array() : NULL;
    json_t *normalize = can_normalize(f) ? json_array() : NULL;
    for (int k = 0; normalize && k < 2 * f->channels; k++)
        json_array_append_new(normalize, json_real(channel_value(f, k)));
    for (int i = 0; i < f->rank; i++)
        json_array_append_new(shape, json_integer(f->shape[i]));
    for (int64_t c = 0; f->counts && c < f->classes; c++) {
        const char *name = clt_dataset_class_name(d, number, c);
        json_array_append_new(classes,
                              json_pack("{s:o, s:I}", "name", name ? json_text(name) : json_null(),
                                        "count", (json_int_t)f->counts[c]));
    }
    const int any = f->numbers > 0;
    return json_pack(
        "{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o*, s:o*}", "name", json_text(f->name), "dtype",
        clt_dtype_name(f->dtype), "shape", shape, "min", any ? json_real(f->least) : json_null(),
        "max", any ? json_real(f->most) : json_null(), "mean",
        any ? json_real(mean_of(f)) : json_null(), "std", any ? json_real(std_of(f)) : json_null(),
        "not_finite", (json_int_t)f->not_finite, "classes", classes, "normalize", normalize);
}

/* Prints one split, or appends it to `list`. */
static clt_status inspect(clt_dataset *d, json_t *list, int64_t *unread)
{
    broken_samples broken = {0};
    const int n = clt_dataset_field_count(d);
    field_sums fields[CLT_DATA_MAX_FIELDS] = {{0}};
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < n; i++)
        status = begin_field(d, i, &fields[i]);
    NEXT(status, read_samples(d, fields, n, &broken));
    *unread += broken.count;
    if (status == CLT_OK && !list) {
        show("%s: %lld samples\n", clt_dataset_name(d), (long long)clt_dataset_count(d));
        for (int i = 0; i < n; i++)
            print_field(d, i, &fields[i]);
        print_columns(d);
        print_broken(&broken, clt_dataset_count(d));
    } else if (status == CLT_OK) {
        json_t *array = json_array();
        for (int i = 0; i < n; i++)
            json_array_append_new(array, field_json(d, i, &fields[i]));
        json_array_append_new(list, json_pack("{s:o, s:I, s:o, s:o}", "data",
                                              json_text(clt_dataset_name(d)), "samples",
                                              (json_int_t)clt_dataset_count(d), "fields", array,
                                              "broken", broken_json(&broken)));
    }
    for (int i = 0; i < MOST_TOLD; i++)
        free(broken.said[i]);
    for (int i = 0; i < n; i++)
        free(fields[i].counts);
    return status;
}

/* Prints the samples that --val leaves for training and those for validation apart: values for
 * --normalize must not come from validation. */
static clt_status inspect_parts(const settings *s, clt_dataset *whole, json_t *list,
                                int64_t *unread)
{
    clt_dataset *rest = NULL, *part = NULL;
    clt_status status = divide_training(s, s->seed >= 0 ? s->seed : 0, whole, &rest, &part);
    NEXT(status, inspect(rest, list, unread));
    NEXT(status, inspect(part, list, unread));
    clt_dataset_free(rest);
    clt_dataset_free(part);
    return status;
}

static int inspect_data(const settings *s, const char *spec)
{
    static const char *const splits[] = {"train", "test"};
    clt_dataset_options options;
    clt_status status = data_options(s, &options);
    json_t *list = s->json ? json_array() : NULL;
    int64_t unread = 0, samples = 0;
    for (int i = 0; status == CLT_OK && i < 2; i++) {
        clt_dataset *d = NULL;
        options.split = splits[i];
        status = open_dataset(spec, &options, &d);
        NEXT(status, i || !s->val ? inspect(d, list, &unread) : inspect_parts(s, d, list, &unread));
        samples += d ? clt_dataset_count(d) : 0;
        clt_dataset_free(d);
    }
    if (status != CLT_OK) {
        json_decref(list);
        return strchr(spec, ':') && status == CLT_NOT_FOUND ? library_failure(status)
                                                            : name_failure(status);
    }
    const int code =
        list ? print_object(json_pack("{s:o}", "splits", list), JSON_REAL_PRECISION(9)) : EXIT_DONE;
    return code || !unread ? code
                           : failure("data '%s': %lld of %lld samples cannot be read", spec,
                                     (long long)unread, (long long)samples);
}

int data_subject(int index, subject_text *out)
{
    static const subject_text subjects[] = {
        {"inspect", "SPEC", FOR_DATA_INSPECT},
        {"tokenize", "FILE...", FOR_TOKENIZE},
    };
    if (index >= 2)
        return 0;
    *out = subjects[index];
    return 1;
}

int run_data(const settings *s)
{
    static const char *const subjects[] = {"inspect", "tokenize"};
    if (!s->n_names)
        return usage_error("data needs a subject: inspect SPEC, or tokenize FILE...");
    if (!strcmp(s->names[0], "tokenize"))
        return settings_check(s, FOR_TOKENIZE, "data tokenize") ? EXIT_USAGE : run_tokenize(s);
    if (strcmp(s->names[0], "inspect"))
        return unknown_name("subject of data", s->names[0], subjects, 2);
    if (settings_check(s, FOR_DATA_INSPECT, "data inspect"))
        return EXIT_USAGE;
    if (s->n_names != 2)
        return usage_error("data inspect takes one SPEC, as in fashion-mnist or idx:DIR");
    if (s->val && !divides_training(s))
        return usage_error("--val %s: data inspect divides training samples only; inspect other "
                           "files by themselves",
                           s->val);
    return inspect_data(s, s->names[1]);
}
