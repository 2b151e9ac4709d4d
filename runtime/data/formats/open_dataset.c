/* Opens the data set that a SPEC of the command line names. */
#include "data/formats/open_dataset.h"

#include <string.h>

#include "base/error.h"
#include "base/str.h"
#include "data/arrays/idx.h"
#include "data/core/kinds.h"

/* Data sets that a Debian package installs below /usr/share/datasets. */
typedef struct named_set {
    const char *name, *folder, *package;
    int64_t classes;
} named_set;

static const named_set named_sets[] = {
    {"fashion-mnist", "fashion-mnist", "dataset-fashion-mnist", 10},
};

/* A KIND of the notation. */
typedef struct data_kind {
    const char *name, *form;
    clt_status (*open)(const clt_data_request *request, clt_dataset **out);
    bool text, decodes; /* whether it takes options for texts, for images */
} data_kind;

#define KIND(NAME, PATH) .name = #NAME, .form = #NAME ":" PATH, .open = clt_open_##NAME

static const data_kind kinds[] = {
    {KIND(idx, "DIR")},
    {KIND(cifar10, "DIR")},
    {KIND(cifar100, "DIR")},
    {KIND(tokens, "PATH"), .text = true},
    {KIND(text, "PATH"), .text = true},
    {KIND(images, "DIR"), .decodes = true},
    {KIND(npz, "PATH")},
    {KIND(hdf5, "FILE")},
    {KIND(csv, "PATH")},
};

enum {
    NAMED = sizeof named_sets / sizeof *named_sets,
    KINDS = sizeof kinds / sizeof *kinds,
};

const char *clt_dataset_form(int index)
{
    if (index < 0 || index >= NAMED + KINDS)
        return NULL;
    return index < NAMED ? named_sets[index].name : kinds[index - NAMED].form;
}

clt_status clt_open_idx(const clt_data_request *r, clt_dataset **out)
{
    return clt_idx_open(r->name, r->path, r->test ? "test" : "train", r->options->classes,
                        r->options->background != 0, "", out);
}

CLT_STRUCT_INIT(clt_dataset_options, .split = "train")

static clt_status fail_listed(clt_status status)
{
    clt_str all = {0};
    for (int i = 0; clt_dataset_form(i); i++)
        clt_str_add(&all, "%s%s", i ? ", " : "", clt_dataset_form(i));
    clt_fail(status, "there are: %s", clt_str_text(&all));
    clt_str_free(&all);
    return status;
}

static clt_status unknown(clt_status status, const char *spec, const char *word, const char *what,
                          const char *const *names, int count, const char *ending)
{
    const char *near = clt_nearest(word, names, count);
    if (near)
        return clt_fail(status, "data '%s': unknown %s '%s'; did you mean '%s%s'?", spec, what,
                        word, near, ending);
    return clt_fail_prefix(fail_listed(status), "data '%s': unknown %s '%s'; ", spec, what, word);
}

/* Refuses options that this kind does not take. `kind` is NULL for a data set by its name. */
static clt_status check_for_kind(const char *spec, const clt_dataset_options *options,
                                 const data_kind *kind)
{
    if (options->description &&
        !(kind && (kind->open == clt_open_csv || kind->open == clt_open_images)))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data '%s': only csv:PATH and images:DIR take a description", spec);
    if (options->sequence && !(kind && kind->text))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data '%s': only tokens:PATH and text:PATH have samples of %lld tokens",
                        spec, (long long)options->sequence);
    if ((options->image_size || options->resize) && !(kind && kind->decodes))
        return clt_fail(CLT_INVALID_ARGUMENT, "data '%s': only images of images:DIR can be resized",
                        spec);
    return CLT_OK;
}

static clt_status open_named(const char *root, const char *spec, const clt_dataset_options *options,
                             clt_dataset **out)
{
    const char *names[NAMED + KINDS];
    for (int i = 0; i < NAMED; i++) {
        names[i] = named_sets[i].name;
        if (strcmp(names[i], spec))
            continue;
        const named_set *set = &named_sets[i];
        CLT_TRY(check_for_kind(spec, options, NULL));
        clt_str folder = {0}, name = {0}, missing = {0};
        clt_str_add(&folder, "%s/%s", root, set->folder);
        clt_str_add(&name, "%s (%s)", spec, options->split);
        clt_str_add(&missing, "; Debian's package %s has it: apt install %s", set->package,
                    set->package);
        clt_status status = CLT_OUT_OF_MEMORY;
        if (!folder.failed && !name.failed && !missing.failed)
            status = clt_idx_open(clt_str_text(&name), clt_str_text(&folder), options->split,
                                  options->classes ? options->classes : set->classes,
                                  options->background != 0, clt_str_text(&missing), out);
        clt_str_free(&folder);
        clt_str_free(&name);
        clt_str_free(&missing);
        return status;
    }
    for (int i = 0; i < KINDS; i++) {
        names[NAMED + i] = kinds[i].name;
        if (!strcmp(spec, kinds[i].name))
            return clt_fail(CLT_INVALID_ARGUMENT, "data '%s' needs a path, as in '%s:PATH'", spec,
                            spec);
    }
    if (strchr(spec, '/'))
        return clt_fail(CLT_NOT_FOUND, "data '%s': a path needs its kind before it, as in 'idx:%s'",
                        spec, spec);
    return unknown(CLT_NOT_FOUND, spec, spec, "name", names, NAMED + KINDS, "");
}

static clt_status open_kind(const char *spec, const char *colon, const clt_dataset_options *options,
                            clt_dataset **out)
{
    const char *names[KINDS], *path = colon + 1;
    char word[32];
    size_t length = (size_t)(colon - spec);
    if (length >= sizeof word)
        length = sizeof word - 1;
    memcpy(word, spec, length);
    word[length] = '\0';
    for (int i = 0; i < KINDS; i++) {
        names[i] = kinds[i].name;
        if (strcmp(word, names[i]))
            continue;
        CLT_TRY(check_for_kind(spec, options, &kinds[i]));
        if (!*path)
            return clt_fail(CLT_INVALID_ARGUMENT, "data '%s': the path after '%s:' is missing",
                            spec, word);
        clt_str name = {0};
        clt_str_add(&name, "%s (%s)", spec, options->split);
        clt_status status = CLT_OUT_OF_MEMORY;
        if (!name.failed)
            status = kinds[i].open(
                &(clt_data_request){
                    .spec = spec,
                    .name = clt_str_text(&name),
                    .path = path,
                    .options = options,
                    .test = !strcmp(options->split, "test"),
                    .all = !strcmp(options->split, "all"),
                },
                out);
        clt_str_free(&name);
        return status;
    }
    return unknown(CLT_INVALID_ARGUMENT, spec, word, "kind", names, KINDS, ":");
}

clt_status clt_dataset_open_below(const char *root, const char *spec,
                                  const clt_dataset_options *options, clt_dataset **out)
{
    clt_dataset_options defaults;
    if (!options) {
        clt_dataset_options_init(&defaults);
        options = &defaults;
    }
    if (!spec || !*spec)
        return clt_fail_prefix(fail_listed(CLT_INVALID_ARGUMENT), "the data are not named; ");
    CLT_TRY(CLT_CHECK_STRUCT(options, clt_dataset_options));
    static const char *const splits[] = {"train", "test"};
    static const char *const whole[] = {"npz:", "hdf5:", "images:", "tokens:", "text:", "csv:"};
    bool takes_all = false;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        takes_all = takes_all || !strncmp(spec, whole[i], strlen(whole[i]));
    const char *split = options->split ? options->split : "";
    if (strcmp(split, splits[0]) && strcmp(split, splits[1]) &&
        !(takes_all && !strcmp(split, "all")))
        return clt_fail(CLT_INVALID_ARGUMENT, "data '%s': split '%s' is neither train nor test",
                        spec, split);
    if (options->classes < 0 || options->classes > INT32_MAX)
        return clt_fail(CLT_INVALID_ARGUMENT, "data '%s': %lld classes: must be 0 to %d", spec,
                        (long long)options->classes, INT32_MAX);
    if (options->sequence < 0 || options->sequence > INT32_MAX)
        return clt_fail(CLT_INVALID_ARGUMENT, "data '%s': samples of %lld tokens: must be 0 to %d",
                        spec, (long long)options->sequence, INT32_MAX);
    if (options->windows < CLT_WINDOWS_FIXED || options->windows > CLT_WINDOWS_CONTINUED)
        return clt_fail(CLT_INVALID_ARGUMENT, "data '%s': windows %d: a clt_windows is 0 to %d",
                        spec, (int)options->windows, (int)CLT_WINDOWS_CONTINUED);
    const bool continued = options->windows == CLT_WINDOWS_CONTINUED;
    const bool separate = continued && !options->rows && !strcmp(split, "all");
    if (options->rows < 0 || ((options->rows > 0) != continued && !separate))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data '%s': rows is %lld: give the batch size for continued windows, 0 for "
                        "others",
                        spec, (long long)options->rows);
    enum { MOST_SIZE = 1 << 14 };
    if (options->image_size > MOST_SIZE && !options->resize)
        return clt_fail(CLT_INVALID_ARGUMENT, "data '%s': images of %lld: at most %d", spec,
                        (long long)options->image_size, MOST_SIZE);
    if (options->image_size < 0 || options->image_size > MOST_SIZE || options->resize < 0 ||
        options->resize > MOST_SIZE ||
        (options->resize && options->resize < (options->image_size ? options->image_size : 224)))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data '%s': images of %lld, resized to %lld: at most %d, the first not "
                        "larger than the second",
                        spec, (long long)options->image_size, (long long)options->resize,
                        MOST_SIZE);
    const char *colon = strchr(spec, ':');
    return colon ? open_kind(spec, colon, options, out) : open_named(root, spec, options, out);
}

clt_status clt_dataset_open(const char *spec, const clt_dataset_options *options, clt_dataset **out)
{
    return clt_dataset_open_below("/usr/share/datasets", spec, options, out);
}
