#include "saved/same_use.h"

#include <math.h>
#include <string.h>

#include <cltrain/checkpoint.h>

#include "saved/label_names.h"
#include "text/message.h"

/* Means that another build computes may differ by rounding. */
static const double ROUNDING = 1e-9;

/* --- classes --------------------------------------------------------------------------------- */

/* Class names in `use` have passed through json_text, so this one must too. */
static int is_named(const char *own, const char *name)
{
    json_t *text = json_text(own);
    const char *written = json_string_value(text);
    const int same = written && name && !strcmp(written, name);
    json_decref(text);
    return same;
}

static int same_names(const json_t *names, const clt_dataset *data, int field)
{
    size_t c;
    json_t *name;
    json_array_foreach(names, c, name)
    {
        const char *own = clt_dataset_class_name(data, field, (int64_t)c);
        if (own && !is_named(own, json_string_value(name)))
            return failure("%s: class %zu is '%s', but '%s' in the data that the model was trained "
                           "on: both need the same names of classes",
                           clt_dataset_name(data), c, own, json_string_value(name));
    }
    return 0;
}

int use_same_classes(const json_t *use, const clt_dataset *data)
{
    size_t i;
    json_t *f;
    int field;
    json_array_foreach(json_object_get(use, "fields"), i, f)
    {
        const char *name = json_string_value(json_object_get(f, "name"));
        const json_t *names = json_object_get(f, "names");
        if (name && names && clt_dataset_find_field(data, name, &field) == CLT_OK)
            TRY(same_names(names, data, field));
    }
    return 0;
}

/* --- resumed runs ---------------------------------------------------------------------------- */

static int is_close(const json_t *a, const json_t *b, double scale)
{
    const double x = json_number_value(a), y = json_number_value(b);
    return fabs(x - y) <= ROUNDING * (fabs(x) + fabs(y) + fabs(scale));
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static int same_numbers(const json_t *before, const json_t *now)
{
    static const char *const keys[] = {"mean", "std", "fill"};
    const double scale = json_number_value(json_object_get(before, "std"));
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *a = json_object_get(before, keys[k]), *b = json_object_get(now, keys[k]);
        if (!a != !b)
            return failure("--resume: column '%s' has missing values filled in %s: both need the "
                           "same missing=",
                           text_of(now, "name"), a ? "the checkpoint only" : "this run only");
        if (!is_close(a, b, scale))
            return failure("--resume: column '%s' has the %s %.6g, but %.6g in the checkpoint: go "
                           "on with the same data, or begin a new run with --init",
                           text_of(now, "name"), keys[k], json_number_value(b),
                           json_number_value(a));
    }
    return 0;
}

static int same_column(const json_t *before, const json_t *now)
{
    const json_t *a = json_object_get(before, "names"), *b = json_object_get(now, "names");
    const char *const name = text_of(now, "name");
    if (strcmp(text_of(before, "name"), name) != 0)
        return failure("--resume: the data have column '%s' where the checkpoint has '%s': both "
                       "need the same columns and options",
                       name, text_of(before, "name"));
    if (strcmp(text_of(before, "kind"), text_of(now, "kind")) != 0)
        return failure("--resume: column '%s' is %s, but %s in the checkpoint: both need the same "
                       "columns and options",
                       name, text_of(now, "kind"), text_of(before, "kind"));
    if (!a != !b || (a && !json_equal(a, b)) ||
        !json_object_get(before, "index") != !json_object_get(now, "index"))
        return failure("--resume: column '%s' has other categories than in the checkpoint: both "
                       "need the same texts and options",
                       name);
    return same_numbers(before, now);
}

/* Means and deviations belong to the weights, which were trained with them. */
static int same_columns(const json_t *before, const json_t *now)
{
    const json_t *old = json_object_get(json_object_get(before, "csv"), "columns");
    const json_t *own = json_object_get(json_object_get(now, "csv"), "columns");
    if (!old && !own)
        return 0;
    if (!old != !own)
        return failure("--resume: the run %s on csv:PATH: go on with the same data",
                       old ? "began" : "did not begin");
    if (json_array_size(old) != json_array_size(own))
        return failure("--resume: the data have %zu columns, but %zu in the checkpoint: both need "
                       "the same columns and options",
                       json_array_size(own), json_array_size(old));
    for (size_t i = 0; i < json_array_size(own); i++)
        TRY(same_column(json_array_get(old, i), json_array_get(own, i)));
    return 0;
}

static int same_lora(const json_t *before, const json_t *now)
{
    const char *a = text_of(before, "lora"), *b = text_of(now, "lora");
    const json_t *p = json_object_get(before, "lora_dropout");
    const json_t *q = json_object_get(now, "lora_dropout");
    if (!*a && *b)
        return usage_error("--lora %s: the run that --resume goes on with began without adapters; "
                           "a new run can begin with its parameters by --init",
                           b);
    if (strcmp(a, b) != 0)
        return usage_error("--lora%s%s: the run that --resume goes on with began with --lora '%s': "
                           "give that",
                           *b ? " " : "", *b ? b : " is missing", a);
    if (p && q && !is_close(p, q, 0))
        return usage_error("--lora-dropout %g: the run that --resume goes on with began with %g: "
                           "give that",
                           json_number_value(q), json_number_value(p));
    return 0;
}

/* Other weights make val_loss another quantity, which policies would compare with the old one. */
static int same_weights(const json_t *before, const json_t *now)
{
    const json_t *a = json_object_get(before, "class_weights");
    const json_t *b = json_object_get(now, "class_weights");
    const char *x = text_of(before, "sample_weights"), *y = text_of(now, "sample_weights");
    if (!a != !b)
        return usage_error(
            "--class-weights%s: the run that --resume goes on with began with%s them",
            a ? " is missing" : "", a ? "" : "out");
    for (size_t c = 0; c < json_array_size(b); c++)
        if (!is_close(json_array_get(a, c), json_array_get(b, c), 0))
            return usage_error(
                "--class-weights: class %zu has the weight %g, but %g in the run that "
                "--resume goes on with: give the same weights",
                c, json_number_value(json_array_get(b, c)),
                json_number_value(json_array_get(a, c)));
    if (strcmp(x, y) != 0)
        return usage_error(
            "--sample-weights%s%s: the run that --resume goes on with began with%s%s",
            *y ? " " : "", *y ? y : " is missing", *x ? " " : "out them", x);
    return 0;
}

static int same_run(const json_t *before, const json_t *now, const clt_dataset *train)
{
    TRY(same_lora(before, now));
    TRY(same_columns(before, now));
    TRY(use_same_classes(before, train));
    return same_weights(before, now);
}

int use_same_run(const job *j, const settings *s)
{
    clt_checkpoint *checkpoint = NULL;
    /* clt_fit reports a checkpoint that cannot be read. */
    if (j->ranks.world.rank || !j->resumed ||
        clt_checkpoint_open(j->resumed, &checkpoint) != CLT_OK)
        return 0;
    const clt_section *use = clt_checkpoint_section(checkpoint, "use");
    json_t *before = use ? json_loads(use->text, 0, NULL) : NULL, *now = use_describe(j, s);
    const int code = !now     ? failure("memory does not suffice")
                     : before ? same_run(before, now, j->train)
                              : 0;
    json_decref(before);
    json_decref(now);
    clt_checkpoint_close(checkpoint);
    return code;
}
