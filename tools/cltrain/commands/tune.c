/* `cltrain tune`: measures kernels for the shapes of models and adds them to the devices' tuning
 * records. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cltrain/models.h>
#include <cltrain/unstable.h>
#include <jansson.h>

#include "options/commands.h"
#include "job/job.h"
#include "text/message.h"

static const double BUDGET = 60;

/* Adds the device's tuning record under the device's label. Leaves out the records that are
 * shipped. */
static int add_record(json_t *records, const clt_device *device)
{
    char *text = NULL;
    TRY(library_failure(clt_device_tuning(device, 1, &text)));
    json_object_set_new(records, clt_device_label(device), json_loads(text, 0, NULL));
    free(text);
    return 0;
}

static int check_one(const job *j)
{
    for (int i = 1; i < j->n_devices; i++)
        if (strcmp(clt_device_label(j->devices[i]), clt_device_label(j->devices[0])) != 0)
            return usage_error("--export writes the record of one device; --devices names %d",
                               j->n_devices);
    return 0;
}

static int tune_model(const settings *s, double seconds, json_t *records)
{
    job j = {0};
    int code = job_read(&j, s);
    j.options.tune_seconds = seconds;
    j.options.tune_anew = 1;
    NEXT(code, job_plan(&j, s));
    if (!code && s->export_file)
        code = check_one(&j);
    code = job_trainer(&j, s, code);
    for (int i = 0; !code && i < j.n_devices; i++) {
        if (!s->json)
            printf("%s: %s, batch %lld\n", s->model, clt_device_label(j.devices[i]),
                   (long long)j.options.batch);
        code = add_record(records, j.devices[i]);
    }
    return job_close(&j, code);
}

/* Prints each class of shapes once, with the times of the default variant and of the chosen
 * variant. */
static void print_table(json_t *records)
{
    size_t i;
    json_t *record, *e;
    const char *label;
    json_object_foreach(records, label, record)
    {
        printf("\n%s\n%-20s %-36s %10s %10s %6s  %s\n", label, "", "", "plain us", "chosen us",
               "gain", "variant");
        json_array_foreach(json_object_get(record, "entries"), i, e)
        {
            const double plain = json_number_value(json_object_get(e, "plain_seconds"));
            const double chosen = json_number_value(json_object_get(e, "seconds"));
            char shape[37];
            snprintf(shape, sizeof shape, "%s", json_string_value(json_object_get(e, "shape")));
            shape[strcspn(shape, "#")] = '\0';
            printf("%-20s %-36s %10.1f %10.1f %6.2f  %s %s\n",
                   json_string_value(json_object_get(e, "op")), shape, 1e6 * plain, 1e6 * chosen,
                   plain / chosen, json_string_value(json_object_get(e, "variant")),
                   json_string_value(json_object_get(e, "options")));
        }
    }
}

/* Opens a temporary file beside `path`, which stays unchanged until a whole record replaces it. */
static FILE *open_beside(const char *path, char beside[PATH_MAX])
{
    const int length = snprintf(beside, PATH_MAX, "%s.new-XXXXXX", path);
    if (length >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    const int file = mkstemp(beside);
    return file >= 0 ? fdopen(file, "w") : NULL;
}

/* Checks that --export can be written, before time is spent on measuring. */
static int check_export(const char *path)
{
    char beside[PATH_MAX];
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return failure("--export %s: is not a file", path);
    FILE *file = open_beside(path, beside);
    if (!file)
        return failure("--export %s: cannot be written: %s", path, strerror(errno));
    fclose(file);
    remove(beside);
    return 0;
}

/* Writes the only record: tune_model has checked that all devices are of one kind. */
static int export_record(const char *path, json_t *records)
{
    char beside[PATH_MAX];
    json_t *only = json_object_iter_value(json_object_iter(records));
    /* mkstemp makes a private file. The record gets the permissions that the umask allows. */
    const mode_t mask = umask(0);
    umask(mask);
    FILE *file = open_beside(path, beside);
    int failed =
        !file || json_dumpf(only, file, JSON_INDENT(1)) || fchmod(fileno(file), 0666 & ~mask) != 0;
    failed = (file && fclose(file)) || failed || rename(beside, path) != 0;
    if (!failed)
        return EXIT_DONE;
    const int code = failure("--export %s: cannot be written: %s", path, strerror(errno));
    if (file)
        remove(beside);
    return code;
}

static int tune_models(const settings *s, json_t *records)
{
    const double budget = isnan(s->budget) ? BUDGET : s->budget;
    if (s->model)
        return tune_model(s, budget, records);
    int code = 0, count = 0;
    for (int i = 0; i < clt_model_count(); i++)
        count += (clt_model_takes(i) & CLT_MODEL_IMAGES) != 0;
    for (int i = 0; !code && i < clt_model_count(); i++) {
        settings own = *s;
        if (!(clt_model_takes(i) & CLT_MODEL_IMAGES))
            continue;
        own.model = (char *)clt_model_name(i);
        code = tune_model(&own, budget / count, records);
    }
    return code;
}

int run_tune(const settings *s)
{
    if (s->budget == 0)
        return usage_error("--budget 0: nothing would be measured; must be above 0 seconds");
    TRY(s->export_file ? check_export(s->export_file) : 0);
    json_t *records = json_object();
    show_progress();
    int code = tune_models(s, records);
    if (!code && s->export_file)
        code = export_record(s->export_file, records);
    if (!code && s->json)
        return print_object(records, JSON_INDENT(1));
    if (!code)
        print_table(records);
    json_decref(records);
    return code;
}
