#include "job/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/planner.h>
#include <cltrain/checkpoint.h>
#include <cltrain/unstable.h>

#include "datasets/data.h"
#include "job/global_batch.h"
#include "job/last_step.h"
#include "job/measure_later.h"
#include "job/sample_weights.h"
#include "job/policies.h"
#include "job/validation.h"
#include "devices/make_runtime.h"
#include "options/groups.h"
#include "text/message.h"
#include "job/device_split.h"
#include "datasets/synthetic.h"
#include "datasets/helper.h"

/* Default of --comm-timeout: how many seconds a rank may be late. */
static const double COMM_TIMEOUT = 60;

/* Steps between comparisons of replicas. */
enum { CHECK_EVERY = 100 };

/* Default of --tune: seconds for measuring kernels of new shapes before step 1 of a long run. */
static const double TUNE_SECONDS = 10;

int check_variants(const settings *s)
{
    return name_failure(clt_variants_check(s->variant));
}

/* Sets the path of this rank's file in the folder of --heartbeat. */
static int read_heartbeat(job *j, const settings *s)
{
    if (!s->heartbeat)
        return 0;
    const size_t room = strlen(s->heartbeat) + 32;
    j->heartbeat = malloc(room);
    TRY_MEMORY(j->heartbeat);
    snprintf(j->heartbeat, room, "%s/rank-%d", s->heartbeat, j->ranks.world.rank);
    j->options.heartbeat = j->heartbeat;
    return 0;
}

int read_merging(const char *text, clt_merging *merging)
{
    static const char *const names[] = {
        [CLT_MERGE_AUTO] = "auto", [CLT_MERGE_OFF] = "off", [CLT_MERGE_ON] = "on"};
    for (int i = 0; text && i < 3; i++)
        if (!strcmp(text, names[i])) {
            *merging = (clt_merging)i;
            return 0;
        }
    return text ? usage_error("--merge-launches %s: must be auto, on or off", text) : 0;
}

static int read_trainer(job *j, const settings *s)
{
    clt_trainer_options *o = &j->options;
    clt_trainer_options_init(o);
    TRY(read_optimizer(s, o));
    if (s->schedule)
        TRY(name_failure(schedule_read(s->schedule, 1, &o->schedule)));
    if (s->average)
        TRY(name_failure(clt_average_parse(s->average, &o->average)));
    if (!isnan(s->weight_decay))
        o->weight_decay = s->weight_decay;
    if (!isnan(s->clip_norm))
        o->clip_norm = s->clip_norm;
    if (s->batch > 0)
        o->batch = s->batch;
    o->zero = s->zero > 0 ? (int)s->zero : 0;
    if (job_owners(s) < 0)
        return usage_error("--offload %s: must be optimizer, or optimizer:K for the last K devices",
                           s->offload);
    if (s->accumulate > CLT_MOST_ACCUMULATE)
        return usage_error("--accumulate %lld: must be at most %d", (long long)s->accumulate,
                           CLT_MOST_ACCUMULATE);
    if (s->accumulate > 0)
        o->accumulate = (int)s->accumulate;
    if (s->in_flight > o->accumulate)
        return usage_error("--in-flight %lld: must be at most the %d micro-batches of --accumulate",
                           (long long)s->in_flight, o->accumulate);
    if (s->in_flight > 0)
        o->in_flight = (int)s->in_flight;
    if (s->seed >= 0)
        o->seed = (uint64_t)s->seed;
    o->guard = !s->no_guard;
    o->recompute = s->recompute > 0;
    if (j->ranks.world.ranks > 1)
        o->world = &j->ranks.world;
    o->check_every = s->check_every >= 0 ? s->check_every : CHECK_EVERY;
    o->comm_timeout = isnan(s->comm_timeout) ? COMM_TIMEOUT : s->comm_timeout;
    o->variants = s->variant;
    int code = read_memory(s->memory, &o->memory);
    NEXT(code, read_heartbeat(j, s));
    NEXT(code, read_types(s, o));
    NEXT(code, check_variants(s));
    o->merge_launches = CLT_MERGE_AUTO;
    NEXT(code, read_merging(s->merge_launches, &o->merge_launches));
    NEXT(code, read_tune(s->tune, TUNE_SECONDS, &j->options.tune_seconds));
    return code ? code : read_virtual_shards(j, s);
}

int job_read(job *j, const settings *s)
{
    TRY(check_global_batch(s));
    if (!s->model)
        return usage_error("--model is missing; `cltrain models` lists them");
    if (s->epochs >= 0 && s->steps >= 0)
        return usage_error("--epochs or --steps, not both");
    int code = check_mesh(s, 1);
    NEXT(code, read_normalize(j, s));
    NEXT(code, read_trainer(j, s));
    return code ? code : replicas_read(j, s);
}

/* --- devices and data ------------------------------------------------------------------------ */

int job_ranks(job *j, const settings *s)
{
    return ranks_begin(&j->ranks, s);
}

/* Closes the devices that belong to other ranks of the node. */
static void keep_own_devices(job *j)
{
    const int first = j->ranks.first, end = first + j->ranks.count;
    int kept = 0;
    for (int i = 0; i < j->n_devices; i++)
        if (!j->ranks.count || (i >= first && i < end))
            j->devices[kept++] = j->devices[i];
        else
            clt_device_close(j->devices[i]);
    j->n_devices = kept;
}

int job_devices(job *j, const settings *s)
{
    TRY(library_failure(make_runtime(s->cache_dir, &j->runtime)));
    clt_device_options options;
    clt_device_options_init(&options);
    options.profiling = s->profile != NULL || s->by_node;
    options.share_context = s->share_context;
    /* The planner may choose among all devices. With several ranks, each has its part of the list
     * already. */
    const int chooses = j->splits && !s->devices && !job_is_meshed(s) &&
                        j->options.virtual_shards == 0 && j->ranks.world.ranks < 2;
    const char *list = chooses ? "all" : s->devices;
    TRY(name_failure(clt_devices_open(j->runtime, list, &options, &j->devices, &j->n_devices)));
    keep_own_devices(j);
    return 0;
}

/* Reads --windows, for text. The default shifts the windows each epoch. With --shuffle off they are
 * fixed, since that option asks for the same samples in each epoch. */
static clt_status read_windows(const settings *s, clt_windows *windows)
{
    static const char *const names[] = {"fixed", "shifted", "random", "continued"};
    enum { WAYS = sizeof names / sizeof *names };
    *windows = s->shuffle && !strcmp(s->shuffle, "off") ? CLT_WINDOWS_FIXED : CLT_WINDOWS_SHIFTED;
    if (!s->windows)
        return CLT_OK;
    if (strncmp(s->data, "tokens:", 7) != 0 && strncmp(s->data, "text:", 5) != 0)
        return clt_error_set(CLT_INVALID_ARGUMENT, "--windows is for tokens:PATH and text:PATH");
    for (int i = CLT_WINDOWS_FIXED; i < WAYS; i++)
        if (!strcmp(s->windows, names[i])) {
            *windows = (clt_windows)i;
            return CLT_OK;
        }
    char text[160];
    const char *near = clt_nearest(s->windows, names, WAYS);
    snprintf(text, sizeof text,
             "--windows %.60s: must be shifted, random, fixed or continued%s%s%s", s->windows,
             near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    return clt_error_set(CLT_INVALID_ARGUMENT, text);
}

static clt_status open_split(const job *j, const settings *s, const char *split, int64_t classes,
                             clt_dataset **out)
{
    clt_dataset_options options;
    clt_status status = data_options(s, &options);
    NEXT(status, read_windows(s, &options.windows));
    if (status != CLT_OK)
        return status;
    options.split = split;
    options.classes = classes;
    options.description = job_description(j, s->data);
    options.background = 1;
    options.rows = options.windows == CLT_WINDOWS_CONTINUED ? j->options.batch : 0;
    return open_dataset(s->data, &options, out);
}

const char *job_description(const job *j, const char *spec)
{
    return !strncmp(spec, "csv:", 4)      ? j->description
           : !strncmp(spec, "images:", 7) ? j->classes
                                          : NULL;
}

int64_t job_classes(const clt_dataset *dataset)
{
    int64_t classes = 0;
    for (int i = 0; !classes && i < clt_dataset_field_count(dataset); i++)
        classes = clt_dataset_classes(dataset, i);
    return classes;
}

/* Describes the fields of the data to the model builder. */
static clt_status describe(job *j, const clt_dataset *dataset)
{
    const int count = clt_dataset_field_count(dataset);
    for (int i = 0; i < count; i++) {
        clt_model_field *f = &j->fields[i];
        const clt_status status =
            clt_dataset_field_info(dataset, i, &f->name, &f->dtype, &f->rank, f->dims, NULL);
        if (status != CLT_OK)
            return status;
        f->classes = clt_dataset_classes(dataset, i);
    }
    j->input = (clt_model_input){.fields = j->fields,
                                 .n_fields = count,
                                 .ignore_index = IGNORED_LABEL,
                                 .batch = j->options.batch,
                                 .class_weights = j->class_weights};
    return CLT_OK;
}

clt_status job_describe_columns(job *j, const clt_dataset *train)
{
    const char *description = clt_dataset_description(train);
    char **place = strncmp(clt_dataset_name(train), "images:", 7) ? &j->description : &j->classes;
    char *copy = description ? strdup(description) : NULL;
    if (description && !copy)
        return clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice");
    if (description) {
        free(*place);
        *place = copy;
    }
    return CLT_OK;
}

/* Opens the training samples, which determine the number of classes and the columns of all splits.
 */
static clt_status open_train(job *j, const settings *s, int which, int64_t *classes)
{
    clt_dataset *train = NULL;
    *classes = s->classes > 0 ? s->classes : 0;
    clt_status status = open_split(j, s, "train", *classes, &train);
    if (status == CLT_OK) {
        *classes = job_classes(train);
        status = job_describe_columns(j, train);
    } else if (status == CLT_NOT_FOUND && !(which & DATA_TRAIN)) {
        status = CLT_OK;
    }
    if (which & DATA_TRAIN)
        j->train = train;
    else
        clt_dataset_free(train);
    return status;
}

/* Applies --augment, and checks that --augment and --normalize have a field of images. */
static clt_status change_images(job *j, const settings *s)
{
    const clt_dataset *data = j->train ? j->train : j->test;
    clt_augment augment;
    clt_status status = s->augment ? clt_augment_parse(s->augment, &augment) : CLT_OK;
    int images = 0;
    for (int i = 0; status == CLT_OK && i < j->input.n_fields; i++) {
        const int image = clt_dataset_is_image(data, i);
        images += image;
        if (image && s->augment && j->train)
            status = clt_dataset_augment(j->train, j->fields[i].name, &augment);
    }
    if (status == CLT_OK && !images && (s->augment || s->normalize)) {
        char text[512];
        snprintf(text, sizeof text, "--%s is for images, but data '%.300s' has no field of them",
                 s->augment ? "augment" : "normalize", clt_dataset_name(data));
        status = clt_error_set(CLT_INVALID_ARGUMENT, text);
    }
    return status;
}

/* Returns the kinds of data that a built-in model takes, 0 for other models. */
static int model_takes(const char *model)
{
    const size_t length = model ? strcspn(model, ":") : 0;
    for (int i = 0; i < clt_model_count(); i++)
        if (strlen(clt_model_name(i)) == length && !strncmp(clt_model_name(i), model, length))
            return clt_model_takes(i);
    return 0;
}

/* Opens random images. Opens random tokens of GPT-2's vocabulary instead if the model takes only
 * text. */
static clt_status open_random(job *j, const settings *s)
{
    const int text = model_takes(s->model) == CLT_MODEL_TEXT && !(s->data && strchr(s->data, ':'));
    const char *other = s->windows                ? "--windows"
                        : s->image_size > 0       ? "--image-size"
                        : s->resize > 0           ? "--resize"
                        : s->seq_len > 0 && !text ? "--seq-len"
                                                  : NULL;
    char said[160];
    if (!other && text)
        return open_synthetic_text(s->seq_len > 0 ? s->seq_len : 1024,
                                   s->classes > 0 ? s->classes : 50257, &j->train);
    if (!other)
        return open_synthetic(s->data, s->classes > 0 ? s->classes : 10, &j->train);
    snprintf(said, sizeof said, "%s: %s", other,
             s->windows ? "is for tokens:PATH and text:PATH, not for random samples"
             : text     ? "is for images:DIR; random text has --seq-len and --classes"
                        : "random images are of the size of --data synthetic:CxHxW");
    return clt_error_set(CLT_INVALID_ARGUMENT, said);
}

int job_data(job *j, const settings *s, int which)
{
    const int may = which & DATA_SYNTHETIC;
    if (!s->data && (!may || model_takes(s->model) == CLT_MODEL_ARRAYS))
        return usage_error("--data is missing: %s",
                           may ? "npz:PATH or hdf5:FILE, with arrays x and y"
                               : "fashion-mnist, or KIND:PATH as in idx:DIR");
    const int random = may && (!s->data || is_synthetic(s->data));
    int64_t classes = 0;
    clt_status status = random ? open_random(j, s) : open_train(j, s, which, &classes);
    if (status == CLT_OK && j->train && which & DATA_TEST)
        TRY(job_validation(j, s));
    if (!random && which & DATA_TEST)
        NEXT(status, open_split(j, s, "test", classes, &j->test));
    NEXT(status, describe(j, j->train ? j->train : j->test));
    NEXT(status, change_images(j, s));
    /* A missing path is a failure, as it may exist later. An unknown name is a usage error. */
    if (status != CLT_OK)
        return s->data && strchr(s->data, ':') && status == CLT_NOT_FOUND ? library_failure(status)
                                                                          : name_failure(status);
    TRY(set_weights(j, s));
    return j->train ? count_steps(j, s) : 0;
}

/* --- model, trainer -------------------------------------------------------------------------- */

/* A faulty model file is a failure and not a usage error. */
int job_graph(job *j, const settings *s)
{
    clt_status status = clt_graph_create(&j->graph);
    NEXT(status, clt_model_build(s->model, &j->input, j->graph));
    for (int i = 0; status == CLT_OK && j->train && j->test && i < j->input.n_fields; i++)
        if (clt_graph_find(j->graph, j->fields[i].name)) {
            /* Otherwise only the evaluation after the first epoch would find a difference. */
            status = same_field(j->train, j->test, j->fields[i].name);
            NEXT(status, same_validation_field(j, j->fields[i].name));
            if (status != CLT_OK)
                return library_failure(status);
        }
    if (status != CLT_OK)
        return clt_model_is_file(s->model) ? library_failure(status) : name_failure(status);
    return read_lora(j->graph, s);
}

/* Chooses the cuts of a pipeline for training. Evaluation takes those that balance the arithmetic.
 */
static int choose_stages(job *j, const settings *s)
{
    char *text = NULL;
    if (!s->parallel || !j->train || j->replicas.total)
        return 0;
    const clt_status status = clt_stages_choose(j->graph, j->devices, j->n_devices, s->parallel,
                                                &j->options, measures_stages(s), &text);
    if (text && !j->silent)
        fputs(text, stdout);
    free(text);
    return name_failure(status);
}

int job_model(job *j, const settings *s)
{
    int code = job_graph(j, s);
    NEXT(code, read_groups(j->graph, s));
    if (j->splits) /* job_split is collective */
        code = ranks_agree(&j->ranks, code);
    if (!code && j->splits)
        code = job_split(j, s, j->silent);
    NEXT(code, choose_stages(j, s));
    return code ? code : job_store(j, s);
}

int job_store(job *j, const settings *s)
{
    clt_store_options options;
    clt_store_options_init(&options);
    options.seed = s->seed >= 0 ? (uint64_t)s->seed : 0;
    options.bucket_bytes = j->bucket_bytes;
    options.parallel = s->parallel;
    options.zero = s->zero == 3 ? 3 : 0;
    options.offload = job_owners(s);
    options.world = j->ranks.world.ranks > 1 ? &j->ranks.world : NULL;
    if (j->replicas.total)
        return replicas_stores(j, s, &options);
    clt_store_destroy(j->store);
    j->store = NULL;
    const clt_status status =
        clt_store_create_with(j->graph, j->devices, j->n_devices, &options, &j->store);
    return mesh_failure(s, status);
}

clt_status job_schedule(job *j, const settings *s)
{
    const int64_t steps = j->scaled.batch ? j->schedule_steps : j->steps;
    const clt_status status =
        s->schedule ? schedule_read(s->schedule, steps, &j->options.schedule) : CLT_OK;
    if (j->scaled.batch)
        j->options.schedule.minimum *= j->rate_factor;
    return status;
}

/* Finds the newest intact checkpoint. Warns once if a newer checkpoint is damaged. With --resume
 * alone, clt_fit reports the damage and refuses to go on. */
static clt_status find_intact(const job *j, const settings *s, char found[4096])
{
    clt_status status = clt_checkpoint_find_intact(s->checkpoint_dir, 4096, found);
    if (status == CLT_OK && ranks_prints(&j->ranks) &&
        clt_checkpoint_find(s->checkpoint_dir, 4096, found) != CLT_OK) {
        say("warning: %s; --resume-intact does so", clt_error_message());
        status = clt_checkpoint_find_intact(s->checkpoint_dir, 4096, found);
    }
    return status;
}

int job_resumes(const settings *s)
{
    return s->resume || s->resume_intact;
}

int job_resume(job *j, const settings *s)
{
    char found[4096];
    if (!s->checkpoint_dir || !job_resumes(s))
        return 0;
    snprintf(found, sizeof found, "%s", s->checkpoint_dir);
    if (s->resume_intact) {
        const clt_status status = find_intact(j, s, found);
        if (status == CLT_NOT_FOUND)
            return 0;
        if (status != CLT_OK)
            return library_failure(status);
    }
    j->resumed = strdup(found);
    return j->resumed ? 0 : failure("memory does not suffice");
}

/* Takes the chosen kernels from the checkpoint of a resumed run, so that results repeat. */
static clt_status read_frozen(job *j, const settings *s)
{
    clt_checkpoint *checkpoint = NULL;
    if (!j->resumed)
        return CLT_OK;
    /* clt_fit reports a checkpoint that cannot be read. A run without a checkpoint starts from the
     * beginning. */
    if (clt_checkpoint_open(j->resumed, &checkpoint) != CLT_OK)
        return CLT_OK;
    find_end(j, s, checkpoint);
    if (!j->began.batch)
        j->began = scaled_begin(checkpoint);
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_FROZEN);
    j->frozen = section ? strdup(section->text) : NULL;
    clt_checkpoint_close(checkpoint);
    if (section && !j->frozen)
        return clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice");
    j->options.frozen = j->frozen;
    return CLT_OK;
}

/* Prints which variants of --variant were not used. Only rank 0 prints, although other ranks may
 * have other devices. */
static clt_status say_declined(const job *j, const settings *s)
{
    char *text = NULL;
    if (!s->variant || s->quiet || !ranks_prints(&j->ranks))
        return CLT_OK;
    const clt_status status = clt_trainer_declined(j->trainer, s->variant, &text);
    say_lines(text);
    return status;
}

int job_trainer(job *j, const settings *s, int code)
{
    NEXT(code, count_steps_of_replicas(j, s));
    if (!code) {
        clt_status status = read_frozen(j, s);
        NEXT(status, job_schedule(j, s));
        code = name_failure(status);
    }
    code = ranks_agree(&j->ranks, code);
    if (!code) {
        ranks_stage("the trainer to be made, its kernels measured and compiled");
        measure_before_long_runs(j, s);
        if (!s->merge_launches && !j->benchmark)
            j->options.merge_steps = j->steps > 0 ? j->steps : 1;
        clt_status status = j->replicas.total
                                ? replicas_trainers(j)
                                : clt_trainer_create(j->graph, j->store, &j->options, &j->trainer);
        NEXT(status, say_declined(j, s));
        /* --variant may name an unknown operator. */
        code = name_failure(status);
        code = ranks_agree(&j->ranks, code);
    }
    ranks_stage("training, evaluation or a checkpoint to go on");
    hold_usage(0);
    return code;
}

int job_plan(job *j, const settings *s)
{
    int code = job_devices(j, s);
    NEXT(code, job_data(j, s, DATA_TRAIN | DATA_SYNTHETIC));
    return code ? code : job_model(j, s);
}

int job_close(job *j, int code)
{
    /* The trainer finishes only if all ranks come to the same end. A rank that failed has reported
     * this itself. */
    const int ends_well = !code || code > 128 || code == EXIT_AGAIN;
    if (j->trainer && ends_well && !j->replicas.total)
        clt_trainer_finish(j->trainer);
    replicas_close(j, ends_well);
    const int64_t samples = j->measure_later > 0 ? clt_trainer_run_samples(j->trainer) : 0;
    clt_trainer_destroy(j->trainer);
    if (!code && j->measure_later > 0)
        measure_later(j, samples);
    clt_store_destroy(j->store);
    clt_graph_destroy(j->graph);
    clt_devices_close(j->devices, j->n_devices);
    clt_runtime_destroy(j->runtime);
    job_policies_close(j);
    clt_dataset_free(j->train);
    clt_dataset_free(j->test);
    clt_dataset_free(j->validation);
    clt_dataset_free(j->whole);
    free(j->description);
    free(j->classes);
    free(j->class_weights);
    free(j->resumed);
    free(j->stages);
    free(j->frozen);
    free(j->weights);
    free(j->changes.list);
    free(j->changes.numbers);
    free(j->heartbeat);
    return ranks_end(&j->ranks, code);
}

void job_fit(const job *j, const settings *s, clt_fit_options *fit)
{
    clt_fit_options_init(fit);
    fit->epochs = s->epochs >= 0 ? s->epochs : 1;
    fit->steps = s->steps > 0 ? s->steps : 0;
    fit->batch = j->options.batch;
    fit->schedule_batch = j->scaled.batch;
    fit->seed = s->seed;
    fit->drop_last = s->drop_last;
    fit->ignore_index = IGNORED_LABEL;
    fit->queued_steps = 8; /* no report evaluates */
    fit->model = s->model;
    if (j->channels) {
        fit->channels = j->channels;
        fit->mean = j->mean;
        fit->std = j->std;
    }
}
