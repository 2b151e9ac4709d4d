#include "job/sample_weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/message.h"

enum { BATCH = 4096 };

/* Reads the number of each training sample in a field. */
static clt_status read_field(const job *j, const char *field, clt_dtype dtype, double *values)
{
    clt_loader_desc desc;
    clt_loader *loader = NULL;
    clt_batch now = {.struct_size = sizeof now};
    clt_loader_desc_init(&desc);
    desc.dataset = j->train;
    desc.batch = BATCH;
    desc.shuffle = 0;
    desc.end_epoch = 1;
    clt_status status = clt_loader_create(&desc, &loader);
    NEXT(status, clt_loader_add_output(loader, field, dtype, NULL));
    NEXT(status, clt_loader_start(loader));
    while (status == CLT_OK) {
        status = clt_loader_next(loader, &now);
        if (status != CLT_OK || now.slot < 0)
            break;
        const void *from = clt_loader_memory(loader, now.slot, 0, 0);
        for (int64_t i = 0; i < now.count; i++)
            values[now.offset + i] = dtype == CLT_F32 ? (double)((const float *)from)[i]
                                                      : (double)((const int32_t *)from)[i];
        status = clt_loader_release(loader, now.slot);
    }
    clt_loader_free(loader);
    return status;
}

/* Makes a number of each training sample from a field. `labels`: it must have classes. */
static int read_numbers(const job *j, const char *option, const char *field, int labels,
                        double **values)
{
    int number;
    int64_t bytes;
    clt_dtype dtype;
    if (labels && clt_dataset_find_field(j->train, field, &number) != CLT_OK)
        return usage_error("--%s balanced: is for classifiers, and the data have no field %s with "
                           "classes (csv: targets of numbers are classes with task=classify)",
                           option, field);
    TRY(name_failure(clt_dataset_find_field(j->train, field, &number)));
    TRY(library_failure(
        clt_dataset_field_info(j->train, number, NULL, &dtype, NULL, NULL, &bytes)));
    if (bytes != clt_dtype_size(dtype) || (labels && !clt_dataset_classes(j->train, number)))
        return usage_error("--%s: field %s of the data has no %s for each sample", option, field,
                           labels ? "label" : "number");
    *values = calloc((size_t)clt_dataset_count(j->train), sizeof **values);
    TRY_MEMORY(*values);
    return library_failure(read_field(j, field, dtype == CLT_F32 ? CLT_F32 : CLT_I32, *values));
}

/* Computes n / (classes * samples of the class), as scikit-learn's "balanced". A class without
 * samples gets 1. */
static int balance(const job *j, const double *labels, int64_t classes, double **weights)
{
    const int64_t n = clt_dataset_count(j->train);
    double *counts = calloc((size_t)classes, sizeof *counts), counted = 0;
    TRY_MEMORY(counts);
    for (int64_t i = 0; i < n; i++)
        if (labels[i] >= 0 && labels[i] < (double)classes) {
            counts[(int64_t)labels[i]]++;
            counted++;
        }
    for (int64_t c = 0; c < classes; c++)
        counts[c] = counts[c] > 0 ? counted / ((double)classes * counts[c]) : 1;
    *weights = counts;
    return 0;
}

/* Reads w0,w1,... */
static int read_list(const char *text, int64_t classes, double **weights)
{
    const char *next = text;
    *weights = calloc((size_t)classes, sizeof **weights);
    TRY_MEMORY(*weights);
    for (int64_t c = 0; c < classes; c++) {
        char *end;
        (*weights)[c] = strtod(next, &end);
        const int last = c == classes - 1;
        const double weight = (*weights)[c];
        if (end == next || !isfinite(weight) || weight < 0 || *end != (last ? '\0' : ','))
            return usage_error("--class-weights %s: must be balanced, or %" PRId64
                               " numbers that are not negative, separated by commas",
                               text, classes);
        /* The range of clt_cross_entropy_options.class_weights. */
        if (weight != 0 && !(weight >= 1e-18 && weight <= 1e18))
            return usage_error("--class-weights %s: the weight of class %" PRId64
                               " (%g) is out of the range 1e-18 to 1e18: only ratios of weights "
                               "matter, so scale them all",
                               text, c, weight);
        next = end + 1;
    }
    return 0;
}

static int64_t label_classes(const job *j)
{
    for (int i = 0; i < j->input.n_fields; i++)
        if (!strcmp(j->fields[i].name, "label"))
            return j->fields[i].classes;
    return 0;
}

static int set_class_weights(job *j, const settings *s, const double *labels)
{
    const int64_t classes = label_classes(j);
    if (!classes)
        return usage_error("--class-weights: the data have no field label with classes");
    free(j->class_weights);
    TRY(labels ? balance(j, labels, classes, &j->class_weights)
               : read_list(s->class_weights, classes, &j->class_weights));
    j->input.class_weights = j->class_weights;
    return 0;
}

static int set_sample_weights(job *j, const settings *s, const double *labels)
{
    double *weights = NULL, *by_class = NULL;
    int code = 0;
    if (s->shuffle && !strcmp(s->shuffle, "off"))
        return usage_error("--sample-weights: draws samples, so --shuffle off does not go with it");
    if (labels) {
        const int64_t n = clt_dataset_count(j->train), classes = label_classes(j);
        weights = calloc((size_t)n, sizeof *weights);
        code =
            weights ? balance(j, labels, classes, &by_class) : failure("memory does not suffice");
        for (int64_t i = 0; !code && i < n; i++)
            weights[i] =
                labels[i] >= 0 && labels[i] < (double)classes ? by_class[(int64_t)labels[i]] : 0;
    } else {
        code = read_numbers(j, "sample-weights", s->sample_weights, 0, &weights);
    }
    NEXT(code, library_failure(clt_dataset_set_sample_weights(j->train, weights)));
    free(weights);
    free(by_class);
    return code;
}

int set_weights(job *j, const settings *s)
{
    const int classes = s->class_weights && !strcmp(s->class_weights, "balanced");
    const int samples = s->sample_weights && !strcmp(s->sample_weights, "balanced");
    double *labels = NULL;
    int code = 0;
    if (!j->train || (!s->class_weights && !s->sample_weights))
        return 0;
    if (classes || samples)
        code = read_numbers(j, classes ? "class-weights" : "sample-weights", "label", 1, &labels);
    if (s->class_weights)
        NEXT(code, set_class_weights(j, s, classes ? labels : NULL));
    if (s->sample_weights)
        NEXT(code, set_sample_weights(j, s, samples ? labels : NULL));
    free(labels);
    return code;
}
