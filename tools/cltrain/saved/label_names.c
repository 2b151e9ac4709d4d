#include "saved/label_names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/message.h"

/* A checkpoint stores no class names if there are more than this. */
enum { MOST_NAMES = 100000 };

static const char *const fashion[] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                      "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

static json_t *names_of(const job *j, const settings *s, int field, int64_t classes)
{
    json_t *names = json_array();
    const int is_fashion = !strcmp(s->data, "fashion-mnist") && classes == 10;
    for (int64_t i = 0; i < classes && classes <= MOST_NAMES; i++) {
        const char *name = is_fashion ? fashion[i] : clt_dataset_class_name(j->train, field, i);
        if (name)
            json_array_append_new(names, json_text(name));
    }
    if ((int64_t)json_array_size(names) == classes)
        return names;
    json_decref(names);
    return NULL;
}

static json_t *describe_field(const job *j, const settings *s, int number)
{
    const clt_model_field *f = &j->fields[number];
    json_t *shape = json_array();
    for (int i = 0; i < f->rank; i++)
        json_array_append_new(shape, json_integer(f->dims[i]));
    json_t *field =
        json_pack("{s:s, s:s, s:o, s:I}", "name", f->name, "dtype", clt_dtype_name(f->dtype),
                  "shape", shape, "classes", (json_int_t)f->classes);
    json_t *names = f->classes > 0 ? names_of(j, s, number, f->classes) : NULL;
    if (field && names)
        json_object_set_new(field, "names", names);
    return field;
}

static json_t *numbers(const double *values, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_real(values[i]));
    return list;
}

static int64_t label_classes(const job *j)
{
    const clt_model_field *label = use_field(j, "label");
    return label ? label->classes : 0;
}

json_t *use_describe(const job *j, const settings *s)
{
    json_t *fields = json_array(), *use = json_pack("{s:O}", "fields", fields);
    for (int i = 0; i < j->input.n_fields; i++)
        json_array_append_new(fields, describe_field(j, s, i));
    json_decref(fields);
    if (use && !strncmp(s->data, "images:", 7)) {
        const int64_t size = j->fields[0].dims[1];
        json_object_set_new(use, "resize", json_integer(s->resize > 0 ? s->resize : size * 8 / 7));
    }
    if (use && j->class_weights)
        json_object_set_new(use, "class_weights", numbers(j->class_weights, (int)label_classes(j)));
    if (use && s->sample_weights)
        json_object_set_new(use, "sample_weights", json_text(s->sample_weights));
    if (use && j->description)
        json_object_set_new(use, "csv", json_loads(j->description, 0, NULL));
    if (use && j->channels) {
        json_object_set_new(use, "mean", numbers(j->mean, j->channels));
        json_object_set_new(use, "std", numbers(j->std, j->channels));
    }
    if (use && s->lora) {
        json_object_set_new(use, "lora", json_text(s->lora));
        json_object_set_new(use, "lora_dropout",
                            json_real(isnan(s->lora_dropout) ? 0 : s->lora_dropout));
    }
    if (use && j->began.batch)
        json_object_set_new(use, "scaled",
                            json_pack("{s:I, s:I}", "batch", (json_int_t)j->began.batch, "devices",
                                      (json_int_t)j->began.devices));
    return use;
}

int use_record(job *j, const settings *s)
{
    json_t *use = use_describe(j, s);
    char *text = use ? json_dumps(use, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    const clt_status status = text ? clt_trainer_set_use(j->trainer, text)
                                   : clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice");
    free(text);
    json_decref(use);
    return library_failure(status);
}

/* --- reading --------------------------------------------------------------------------------- */

static int read_dtype(const char *name, clt_dtype *dtype)
{
    static const clt_dtype all[] = {CLT_F32, CLT_I32, CLT_U8};
    for (size_t i = 0; name && i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, clt_dtype_name(all[i]))) {
            *dtype = all[i];
            return 1;
        }
    return 0;
}

static int read_field(const json_t *from, clt_model_field *f)
{
    const json_t *shape = json_object_get(from, "shape");
    *f = (clt_model_field){.name = json_string_value(json_object_get(from, "name")),
                           .rank = (int)json_array_size(shape),
                           .classes = json_integer_value(json_object_get(from, "classes"))};
    int fits = f->name && f->rank < CLT_MAX_RANK &&
               read_dtype(json_string_value(json_object_get(from, "dtype")), &f->dtype);
    for (int i = 0; fits && i < f->rank; i++) {
        f->dims[i] = json_integer_value(json_array_get(shape, (size_t)i));
        fits = f->dims[i] > 0;
    }
    return fits;
}

static int read_numbers(const json_t *list, double *values)
{
    const size_t count = json_array_size(list);
    int fits = count <= MOST_CHANNELS;
    for (size_t i = 0; fits && i < count; i++) {
        values[i] = json_number_value(json_array_get(list, i));
        fits = isfinite(values[i]);
    }
    return fits ? (int)count : -1;
}

/* Losses in evaluation have the weights of the training run. */
static int read_class_weights(job *j, const json_t *use)
{
    const json_t *list = json_object_get(use, "class_weights");
    const size_t count = json_array_size(list);
    free(j->class_weights);
    j->class_weights = NULL;
    if (!count)
        return 1;
    j->class_weights = calloc(count, sizeof *j->class_weights);
    int fits = j->class_weights && (int64_t)count == label_classes(j);
    for (size_t i = 0; fits && i < count; i++) {
        j->class_weights[i] = json_number_value(json_array_get(list, i));
        fits = isfinite(j->class_weights[i]) && j->class_weights[i] >= 0;
    }
    j->input.class_weights = j->class_weights;
    return fits;
}

/* Describes the classes for images:DIR. NULL: they have no names. */
static char *describe_classes(const json_t *use)
{
    size_t i;
    json_t *f, *found = NULL;
    json_array_foreach(json_object_get(use, "fields"), i, f)
    {
        const char *name = json_string_value(json_object_get(f, "name"));
        if (name && !strcmp(name, "label"))
            found = json_object_get(f, "names");
    }
    json_t *all = found ? json_pack("{s:O}", "classes", found) : NULL;
    char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return text;
}

int use_read(job *j, const settings *s, const json_t *use, const char *file)
{
    const json_t *fields = json_object_get(use, "fields");
    const size_t count = json_array_size(fields);
    int fits = count > 0 && count <= CLT_DATA_MAX_FIELDS;
    for (size_t i = 0; fits && i < count; i++)
        fits = read_field(json_array_get(fields, i), &j->fields[i]);
    const json_t *csv = json_object_get(use, "csv");
    free(j->description);
    j->description = csv ? json_dumps(csv, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    free(j->classes);
    j->classes = describe_classes(use);
    j->input = (clt_model_input){
        .fields = j->fields, .n_fields = (int)count, .ignore_index = IGNORED_LABEL};
    if (fits && !s->normalize) {
        const int means = read_numbers(json_object_get(use, "mean"), j->mean);
        fits = means >= 0 && read_numbers(json_object_get(use, "std"), j->std) == means;
        j->channels = means;
    }
    fits = fits && read_class_weights(j, use);
    return fits ? 0
                : failure("%s: the section \"use\" of its state.json does not say what the model "
                          "was trained on: give --data",
                          file);
}

const char *use_class_name(const json_t *use, int64_t number)
{
    const json_t *fields = json_object_get(use, "fields");
    for (size_t i = 0; i < json_array_size(fields); i++) {
        const json_t *f = json_array_get(fields, i);
        const char *name = json_string_value(json_object_get(f, "name"));
        if (name && !strcmp(name, "label"))
            return json_string_value(json_array_get(json_object_get(f, "names"), (size_t)number));
    }
    return NULL;
}

const clt_model_field *use_field(const job *j, const char *name)
{
    for (int i = 0; i < j->input.n_fields; i++)
        if (!strcmp(j->fields[i].name, name))
            return &j->fields[i];
    return NULL;
}

int64_t use_sequence(const job *j)
{
    const clt_model_field *tokens = use_field(j, "tokens");
    return tokens && tokens->rank == 1 ? tokens->dims[0] : 0;
}

int64_t use_resize(const json_t *use)
{
    return json_integer_value(json_object_get(use, "resize"));
}

void use_target_scale(const char *description, double *mean, double *std)
{
    size_t i;
    json_t *all = description ? json_loads(description, 0, NULL) : NULL, *column;
    *mean = 0;
    *std = 1;
    json_array_foreach(json_object_get(all, "columns"), i, column)
    {
        const char *kind = json_string_value(json_object_get(column, "kind"));
        if (kind && !strcmp(kind, "target")) {
            *mean = json_number_value(json_object_get(column, "mean"));
            *std = json_number_value(json_object_get(column, "std"));
        }
    }
    json_decref(all);
}
