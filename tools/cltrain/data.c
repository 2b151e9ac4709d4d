/* `cltrain data`: what a data set holds, and text to files of tokens. */
#include "data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "message.h"

enum { BATCH = 64, MOST_COUNTED = 1 << 20, MOST_PRINTED = 100 };

/* What all samples of a field say. */
typedef struct field_sums {
    const char *name;
    clt_dtype dtype;
    int rank, output;
    int64_t shape[CLT_DATA_MAX_RANK], elements, classes;
    double least, most, sum, squares;
    int64_t numbers, not_finite;
    int64_t *counts; /* by class; NULL: not labels */
} field_sums;

clt_status data_options(const settings *s, clt_dataset_options *options)
{
    clt_dataset_options_init(options);
    options->classes = s->classes > 0 ? s->classes : 0;
    options->image_size = s->image_size > 0 ? s->image_size : 0;
    options->resize = s->resize > 0 ? s->resize : 0;
    options->sequence = s->seq_len > 0 ? s->seq_len : 0;
    return CLT_OK;
}

static clt_status begin_field(const clt_dataset *d, int number, field_sums *f)
{
    *f = (field_sums){.elements = 1, .least = INFINITY, .most = -INFINITY};
    clt_status status =
        clt_dataset_field_info(d, number, &f->name, &f->dtype, &f->rank, f->shape, NULL);
    for (int i = 0; status == CLT_OK && i < f->rank; i++)
        f->elements *= f->shape[i];
    f->classes = clt_dataset_classes(d, number);
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
        if (f->counts) /* the loader has checked its range */
            f->counts[(int64_t)x]++;
    }
}

static clt_status read_samples(clt_dataset *d, field_sums *fields, int n_fields)
{
    clt_loader_desc desc;
    clt_loader *loader = NULL;
    clt_batch batch = {.struct_size = sizeof batch};
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = BATCH;
    desc.shuffle = 0;
    desc.end_epoch = 1;
    clt_status status = clt_loader_create(&desc, &loader);
    for (int i = 0; status == CLT_OK && i < n_fields; i++)
        status = clt_loader_add_output(loader, fields[i].name, fields[i].dtype, &fields[i].output);
    if (status == CLT_OK)
        status = clt_loader_start(loader);
    while (status == CLT_OK) {
        status = clt_loader_next(loader, &batch);
        if (status != CLT_OK || batch.slot < 0)
            break;
        for (int i = 0; i < n_fields; i++)
            add_values(&fields[i], clt_loader_memory(loader, batch.slot, 0, fields[i].output),
                       batch.count * fields[i].elements);
        status = clt_loader_release(loader, batch.slot);
    }
    clt_loader_free(loader);
    return status;
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

static void print_classes(const clt_dataset *d, int number, const field_sums *f)
{
    int64_t least = INT64_MAX, most = 0, empty = 0;
    for (int64_t c = 0; c < f->classes; c++) {
        least = f->counts[c] < least ? f->counts[c] : least;
        most = f->counts[c] > most ? f->counts[c] : most;
        empty += !f->counts[c];
    }
    printf("           %lld classes, of %lld to %lld", (long long)f->classes, (long long)least,
           (long long)most);
    if (empty)
        printf(", %lld of them empty", (long long)empty);
    printf("\n");
    for (int64_t c = 0; f->classes <= MOST_PRINTED && c < f->classes; c++) {
        const char *name = clt_dataset_class_name(d, number, c);
        printf("           %4lld  %-20s %lld\n", (long long)c, name ? name : "",
               (long long)f->counts[c]);
    }
}

static void print_field(const clt_dataset *d, int number, const field_sums *f)
{
    char shape[160];
    shape_text(f, shape);
    printf("  %-12s %-4s %-16s", f->name, clt_dtype_name(f->dtype), shape);
    if (f->numbers)
        printf(" %.6g to %.6g, mean %.6g, std %.6g", f->least, f->most, mean_of(f), std_of(f));
    if (f->not_finite)
        printf(", %lld not finite", (long long)f->not_finite);
    printf("\n");
    if (f->counts)
        print_classes(d, number, f);
}

static json_t *field_json(const clt_dataset *d, int number, const field_sums *f)
{
    json_t *shape = json_array(), *classes = f->counts ? json_array() : NULL;
    for (int i = 0; i < f->rank; i++)
        json_array_append_new(shape, json_integer(f->shape[i]));
    for (int64_t c = 0; f->counts && c < f->classes; c++) {
        const char *name = clt_dataset_class_name(d, number, c);
        json_array_append_new(classes,
                              json_pack("{s:s?, s:I}", "name", name, "count", f->counts[c]));
    }
    const int any = f->numbers > 0;
    return json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o*}", "name", f->name, "dtype",
        clt_dtype_name(f->dtype), "shape", shape, "min", any ? json_real(f->least) : json_null(),
        "max", any ? json_real(f->most) : json_null(), "mean",
        any ? json_real(mean_of(f)) : json_null(), "std", any ? json_real(std_of(f)) : json_null(),
        "not_finite", (json_int_t)f->not_finite, "classes", classes);
}

/* Prints one split, or appends it to `list`. */
static clt_status inspect(clt_dataset *d, json_t *list)
{
    const int n = clt_dataset_field_count(d);
    field_sums fields[CLT_DATA_MAX_FIELDS] = {{0}};
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < n; i++)
        status = begin_field(d, i, &fields[i]);
    if (status == CLT_OK)
        status = read_samples(d, fields, n);
    if (status == CLT_OK && !list) {
        printf("%s: %lld samples\n", clt_dataset_name(d), (long long)clt_dataset_count(d));
        for (int i = 0; i < n; i++)
            print_field(d, i, &fields[i]);
    } else if (status == CLT_OK) {
        json_t *array = json_array();
        for (int i = 0; i < n; i++)
            json_array_append_new(array, field_json(d, i, &fields[i]));
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:o}", "data", clt_dataset_name(d), "samples",
                                        (json_int_t)clt_dataset_count(d), "fields", array));
    }
    for (int i = 0; i < n; i++)
        free(fields[i].counts);
    return status;
}

static int inspect_data(const settings *s, const char *spec)
{
    static const char *const splits[] = {"train", "test"};
    clt_dataset_options options;
    clt_status status = data_options(s, &options);
    json_t *list = s->json ? json_array() : NULL;
    for (int i = 0; status == CLT_OK && i < 2; i++) {
        clt_dataset *d = NULL;
        options.split = splits[i];
        status = clt_dataset_open(spec, &options, &d);
        if (status == CLT_OK)
            status = inspect(d, list);
        clt_dataset_free(d);
    }
    if (status != CLT_OK) {
        json_decref(list);
        return strchr(spec, ':') && status == CLT_NOT_FOUND ? library_failure(status)
                                                            : name_failure(status);
    }
    return list ? print_object(json_pack("{s:o}", "splits", list), JSON_REAL_PRECISION(9))
                : EXIT_DONE;
}

int run_data(const settings *s)
{
    static const char *const subjects[] = {"inspect", "tokenize"};
    if (!s->n_names)
        return usage_error("data what? inspect SPEC, or tokenize FILE...");
    if (!strcmp(s->names[0], "tokenize"))
        return settings_check(s, FOR_TOKENIZE, "data tokenize") ? EXIT_USAGE : run_tokenize(s);
    if (strcmp(s->names[0], "inspect"))
        return unknown_name("subject of data", s->names[0], subjects, 2);
    if (settings_check(s, FOR_DATA_INSPECT, "data inspect"))
        return EXIT_USAGE;
    if (s->n_names != 2)
        return usage_error("data inspect takes one SPEC, as in fashion-mnist or idx:DIR");
    return inspect_data(s, s->names[1]);
}
