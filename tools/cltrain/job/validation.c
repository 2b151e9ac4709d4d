#include "job/validation.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "datasets/data.h"
#include "datasets/divide.h"
#include "datasets/helper.h"
#include "text/message.h"

static int read_every(const settings *s, int64_t *every)
{
    char *end;
    *every = 0;
    if (!s->val_every || !strcmp(s->val_every, "epoch"))
        return 0;
    errno = 0;
    *every = strtoll(s->val_every, &end, 10);
    return errno || *end || *every < 1
               ? usage_error("--val-every %s: must be a number of steps of at least 1, or epoch",
                             s->val_every)
               : 0;
}

/* Whether two names of data are of the same kind and lead to the same file or folder. Options of a
 * table do not matter. */
static int same_files(const char *a, const char *b)
{
    char *real[2] = {NULL, NULL};
    const char *const texts[] = {a, b}, *const colon = strchr(a, ':');
    if (!colon || strncmp(a, b, (size_t)(colon - a) + 1))
        return !strcmp(a, b);
    const int table = !strncmp(a, "csv:", 4);
    for (int i = 0; i < 2; i++) {
        char *path = strdup(texts[i] + (colon - a) + 1);
        if (path && table)
            path[strcspn(path, "?")] = '\0';
        real[i] = path ? realpath(path, NULL) : NULL;
        free(path);
    }
    const int same = !strcmp(a, b) || (real[0] && real[1] && !strcmp(real[0], real[1]));
    free(real[0]);
    free(real[1]);
    return same;
}

int check_validation(const settings *s)
{
    double fraction;
    int64_t every;
    TRY(read_every(s, &every));
    if (!s->val)
        return s->val_every ? usage_error("--val-every %s: needs --val, the samples to evaluate",
                                          s->val_every)
                            : 0;
    if (val_is_number(s->val, &fraction) && !(fraction > 0 && fraction < 1))
        return usage_error("--val %s: a fraction of the training samples must be between 0 and 1",
                           s->val);
    if (!*s->val)
        return usage_error("--val: give a fraction as 0.1, a field that marks samples, or a data "
                           "set");
    if (s->data && same_files(s->val, s->data))
        return usage_error("--val %s: those are the data of --data, whose test samples stay for "
                           "the test; give a fraction of the training samples, as 0.1",
                           s->val);
    return 0;
}

int job_validation_seed(job *j, const settings *s)
{
    const clt_world *world = &j->ranks.world;
    clt_checkpoint *checkpoint = NULL;
    double fraction;
    j->val_seed = s->seed >= 0 ? s->seed : 0;
    if (!s->val || !val_is_number(s->val, &fraction) || s->seed >= 0 || !job_resumes(s))
        return 0;
    /* clt_fit reports a checkpoint that cannot be read. */
    if (!world->rank && j->resumed && clt_checkpoint_open(j->resumed, &checkpoint) == CLT_OK) {
        j->val_seed = clt_checkpoint_run(checkpoint)->seed;
        clt_checkpoint_close(checkpoint);
    }
    if (world->ranks < 2)
        return 0;
    int64_t *all = calloc((size_t)world->ranks, sizeof *all);
    TRY_MEMORY(all);
    const clt_status status = world->gather(world->user, &j->val_seed, sizeof j->val_seed, all);
    j->val_seed = all[0];
    free(all);
    return library_failure(status);
}

/* Opens other files: all of their samples, or where the kind has only two splits, those for tests.
 */
static clt_status open_other(job *j, const settings *s)
{
    clt_dataset_options options;
    clt_status status = data_options(s, &options);
    options.classes = job_classes(j->train);
    options.description = job_description(j, s->val);
    options.background = 1;
    options.split = "all";
    /* With 0 rows no window continues: validation begins without states. */
    if (s->windows && !strcmp(s->windows, "continued"))
        options.windows = CLT_WINDOWS_CONTINUED;
    NEXT(status, open_dataset(s->val, &options, &j->validation));
    if (status != CLT_INVALID_ARGUMENT)
        return status;
    options.split = "test";
    options.rows = options.windows == CLT_WINDOWS_CONTINUED ? j->options.batch : 0;
    return open_dataset(s->val, &options, &j->validation);
}

int job_validation(job *j, const settings *s)
{
    if (!s->val)
        return 0;
    if (!divides_training(s)) {
        const clt_status status = open_other(j, s);
        return status == CLT_NOT_FOUND && strchr(s->val, ':') ? library_failure(status)
                                                              : name_failure(status);
    }
    clt_dataset *rest = NULL;
    TRY(name_failure(divide_training(s, j->val_seed, j->train, &rest, &j->validation)));
    j->whole = j->train;
    j->train = rest;
    return library_failure(job_describe_columns(j, rest)); /* means are those of the rest now */
}

/* Labels may be numbered by the names of the classes. */
static clt_status same_classes(const job *j, const char *name)
{
    int in_train, in_val;
    char text[768];
    clt_status status = clt_dataset_find_field(j->train, name, &in_train);
    NEXT(status, clt_dataset_find_field(j->validation, name, &in_val));
    const int64_t classes = status == CLT_OK ? clt_dataset_classes(j->train, in_train) : 0;
    for (int64_t c = 0; c < classes; c++) {
        const char *a = clt_dataset_class_name(j->train, in_train, c);
        const char *b = clt_dataset_class_name(j->validation, in_val, c);
        if (!a || (b && !strcmp(a, b)))
            continue;
        snprintf(text, sizeof text,
                 "%.300s: class %lld is '%.100s', but '%.100s' in the training samples: both need "
                 "the same names",
                 clt_dataset_name(j->validation), (long long)c, b ? b : "", a);
        return clt_error_set(CLT_MISMATCH, text);
    }
    return status;
}

clt_status same_validation_field(const job *j, const char *name)
{
    clt_status status = j->validation ? same_field(j->train, j->validation, name) : CLT_OK;
    /* With a description its names have numbered the labels. */
    if (j->validation && !j->whole && !clt_dataset_description(j->validation))
        NEXT(status, same_classes(j, name));
    return status;
}

int fit_validation(const job *j, const settings *s, clt_fit_options *fit)
{
    fit->validation = j->validation;
    return read_every(s, &fit->validate_every);
}
