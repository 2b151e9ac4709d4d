/* `cltrain predict`: classes of image files, and all outputs of arrays. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/predict.h>
#include <cltrain/unstable.h>

#include "commands/prediction_options.h"
#include "options/commands.h"
#include "options/groups.h"
#include "datasets/data.h"
#include "job/job.h"
#include "text/message.h"
#include "output/npz_out.h"
#include "output/predictions.h"
#include "saved/saved.h"
#include "datasets/helper.h"
#include "saved/label_names.h"
#include "saved/same_use.h"

enum { MOST_OUTPUTS = 64, MOST_INPUTS = 16, BATCH = 64, GROUP = 256 };

typedef struct output {
    npz_array array; /* of all samples */
    int64_t bytes;   /* bytes of a sample; 0 if the output does not depend on the batch */
    int is_softmax;  /* probabilities instead of logits */
} output;

typedef struct prediction {
    job job;
    saved saved;
    const settings *settings;
    clt_predictor *predictor;
    int64_t batch;
    output outputs[MOST_OUTPUTS];
    int n_outputs;
    predictions_format format;
    int32_t *labels; /* of all samples, if classes are written of data with labels; else NULL */
    int bad;         /* number of files that could not be used */
    char text[24];   /* number of a class without a name */
} prediction;

/* --- the model ------------------------------------------------------------------------------- */

/* Checks options against the checkpoint, which describes the model's data. Options may repeat what
 * the checkpoint says, and may set how images are resized. */
static int check_use(const prediction *p)
{
    const settings *s = p->settings;
    const clt_model_field *image = use_field(&p->job, "image");
    int known = s->classes <= 0;
    for (int i = 0; i < p->job.input.n_fields; i++)
        known = known || p->job.fields[i].classes == s->classes;
    if (!known)
        return usage_error(
            "--classes %lld: the model of %s was trained for another number: leave the option out",
            (long long)s->classes, s->checkpoint);
    if (s->image_size > 0 && (!image || image->rank != 3 || image->dims[1] != s->image_size))
        return usage_error(
            "--image-size %lld: the model of %s was trained for another size: leave the option out",
            (long long)s->image_size, s->checkpoint);
    if (s->resize > 0 && (!use_resize(p->saved.use) || !image || s->resize < image->dims[1]))
        return usage_error("--resize %lld: needs a model that was trained on images:DIR, and at "
                           "least the size of its images",
                           (long long)s->resize);
    return 0;
}

/* Reads the fields that the model was built for, from the checkpoint or from --data. */
static int read_fields(prediction *p)
{
    const settings *s = p->settings;
    if (s->normalize)
        TRY(read_normalize(&p->job, s));
    if (p->saved.use) {
        const int code = use_read(&p->job, s, p->saved.use, p->saved.file);
        return code ? code : check_use(p);
    }
    if (!s->data)
        return usage_error("%s does not say what its model was trained on: give --data SPEC, and "
                           "--normalize, --image-size and --resize as for training",
                           s->checkpoint);
    return job_data(&p->job, s, DATA_TEST);
}

/* Returns whether the node of that name is a softmax. */
static int is_softmax(const clt_graph *graph, const char *name)
{
    clt_node_info node;
    for (int i = 0; i < clt_graph_node_count(graph); i++)
        if (clt_graph_node_describe(graph, i, &node) == CLT_OK && !strcmp(node.name, name))
            return node.schema == clt_operator_find("softmax");
    return 0;
}

static int list_outputs(prediction *p)
{
    p->n_outputs = clt_predictor_output_count(p->predictor);
    if (p->n_outputs > MOST_OUTPUTS)
        return failure("model %s has %d outputs; predict gives %d at most", p->saved.model,
                       p->n_outputs, MOST_OUTPUTS);
    for (int i = 0; i < p->n_outputs; i++) {
        output *o = &p->outputs[i];
        npz_array *a = &o->array;
        clt_predictor_output(p->predictor, i, &a->name, &a->dtype, &a->rank, a->dims);
        o->bytes = clt_dtype_size(a->dtype);
        o->is_softmax = is_softmax(p->job.graph, a->name);
        if (!a->rank || a->dims[0] != CLT_BATCH)
            return failure("output %s of model %s is not one of each sample", a->name,
                           p->saved.model);
        for (int d = 1; d < a->rank; d++)
            o->bytes *= a->dims[d];
    }
    return 0;
}

static int make_model(prediction *p)
{
    const settings *s = p->settings;
    settings named = *s;
    named.model = p->saved.model;
    saved_settings(&p->saved, &named);
    TRY(job_graph(&p->job, &named));
    clt_predictor_options options;
    clt_predictor_options_init(&options);
    options.batch = p->batch = s->batch > 0 ? s->batch : BATCH;
    options.variants = s->variant;
    TRY(refuse_measured(s));
    TRY(read_groups(p->job.graph, s));
    TRY(job_store(&p->job, s));
    TRY(library_failure(saved_load(&p->saved, p->job.store)));
    TRY(mesh_failure(s, clt_predictor_create(p->job.graph, p->job.store, &options, &p->predictor)));
    return list_outputs(p);
}

/* --- samples --------------------------------------------------------------------------------- */

static void dims_text(int rank, const int64_t *dims, char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "[");
    for (int i = 0; i < rank && used < room; i++)
        used +=
            (size_t)snprintf(text + used, room - used, "%s%lld", i ? "," : "", (long long)dims[i]);
    if (used < room)
        snprintf(text + used, room - used, "]");
}

/* Checks that the data have the field that an input of the graph needs, with the same type and
 * shape. */
static int check_input(const prediction *p, const clt_dataset *data, int index, int *field)
{
    const char *name;
    clt_dtype dtype, has;
    int rank, own;
    int64_t dims[CLT_MAX_RANK], shape[CLT_DATA_MAX_RANK];
    char a[160], b[160];
    clt_predictor_input(p->predictor, index, &name, &dtype, &rank, dims);
    clt_status status = clt_dataset_find_field(data, name, field);
    char split[160];
    snprintf(split, sizeof split, "%s_test", name);
    if (status != CLT_OK && clt_dataset_find_field(data, split, field) == CLT_OK)
        return failure("%s has arrays by split, as %s: give --data %s instead, which predicts its "
                       "test samples",
                       clt_dataset_name(data), split, p->settings->names[0]);
    if (status != CLT_OK && clt_dataset_find_field(data, name, field) != CLT_OK)
        return failure("%s: model %s needs the array %s: %s", clt_dataset_name(data),
                       p->saved.model, name, clt_error_message());
    status = clt_dataset_field_info(data, *field, NULL, &has, &own, shape, NULL);
    if (status != CLT_OK)
        return library_failure(status);
    const int fits = rank && dims[0] == CLT_BATCH && own == rank - 1 &&
                     !memcmp(shape, dims + 1, (size_t)own * sizeof *dims);
    dims_text(own, shape, a, sizeof a);
    dims_text(rank ? rank - 1 : 0, dims + 1, b, sizeof b);
    if (!fits)
        return failure("%s: array %s: a sample is %s %s, but model %s takes %s",
                       clt_dataset_name(data), name, clt_dtype_name(has), a, p->saved.model, b);
    if (has != dtype && has != CLT_U8)
        return failure("%s: array %s is %s, but model %s takes %s%s", clt_dataset_name(data), name,
                       clt_dtype_name(has), p->saved.model, clt_dtype_name(dtype),
                       dtype == CLT_F32 ? ", or u8, which is divided by 255" : " or u8");
    return 0;
}

/* Makes a loader that preprocesses samples exactly as evaluation does: bytes are divided by 255,
 * and f32 inputs are normalised. */
static int open_loader(const prediction *p, clt_dataset *data, clt_loader **out, int *places,
                       int *label)
{
    clt_loader_desc desc;
    clt_loader *loader = NULL;
    clt_loader_desc_init(&desc);
    desc.dataset = data;
    desc.batch = p->batch;
    desc.shuffle = 0;
    desc.end_epoch = 1;
    clt_status status = clt_loader_create(&desc, &loader);
    for (int i = 0; status == CLT_OK && i < clt_predictor_input_count(p->predictor); i++) {
        const char *name;
        clt_dtype dtype, has;
        int field;
        const int code = check_input(p, data, i, &field);
        if (code) {
            clt_loader_free(loader);
            return code;
        }
        clt_predictor_input(p->predictor, i, &name, &dtype, NULL, NULL);
        clt_dataset_field_info(data, field, NULL, &has, NULL, NULL, NULL);
        status = clt_loader_add_output(loader, name, dtype, &places[i]);
        if (status == CLT_OK && p->job.channels && dtype == CLT_F32)
            status = clt_loader_normalize(loader, places[i], has == CLT_U8 ? 255 : 1,
                                          p->job.channels, p->job.mean, p->job.std);
    }
    if (status == CLT_OK && p->labels)
        status = clt_loader_add_output(loader, "label", CLT_I32, label);
    NEXT(status, clt_loader_start(loader));
    if (status != CLT_OK) {
        clt_loader_free(loader);
        return library_failure(status);
    }
    *out = loader;
    return 0;
}

static clt_status run_batch(const prediction *p, const clt_loader *loader, const int *places,
                            const clt_batch *now)
{
    clt_feed feeds[MOST_INPUTS];
    clt_fetch fetches[MOST_OUTPUTS];
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = now->count;
    batch.first = now->offset;
    batch.feeds = feeds;
    batch.fetches = fetches;
    for (int i = 0; i < clt_predictor_input_count(p->predictor); i++) {
        const char *name;
        clt_predictor_input(p->predictor, i, &name, NULL, NULL, NULL);
        feeds[batch.n_feeds++] =
            (clt_feed){name, -1, CLT_HOST(clt_loader_memory(loader, now->slot, 0, places[i]))};
    }
    for (int i = 0; i < p->n_outputs; i++) {
        const output *o = &p->outputs[i];
        char *to = (char *)o->array.data + now->offset * o->bytes;
        fetches[batch.n_fetches++] = (clt_fetch){o->array.name, -1, CLT_HOST(to)};
    }
    clt_status status = clt_predictor_run(p->predictor, &batch, NULL);
    return status == CLT_OK ? clt_predictor_wait(p->predictor) : status;
}

/* Returns the number of classes of the labels that the model was trained with, or 0. */
static int64_t label_classes(const job *j)
{
    const clt_model_field *label = use_field(j, "label");
    return label ? label->classes : 0;
}

/* Makes memory for the labels of the samples if they are to be written. */
static int find_labels(prediction *p, const clt_dataset *data)
{
    int field;
    free(p->labels);
    p->labels = NULL;
    if (p->format == PREDICTIONS_ARRAYS || !label_classes(&p->job) ||
        clt_dataset_find_field(data, "label", &field) != CLT_OK)
        return 0;
    p->labels = calloc((size_t)clt_dataset_count(data), sizeof *p->labels);
    return p->labels ? 0 : failure("memory does not suffice");
}

/* Computes all outputs of all samples into p->outputs. */
static int run_all(prediction *p, clt_dataset *data)
{
    const int64_t count = clt_dataset_count(data);
    int places[MOST_INPUTS] = {0}, label = 0;
    clt_loader *loader = NULL;
    clt_batch now = {.struct_size = sizeof now};
    if (clt_predictor_input_count(p->predictor) > MOST_INPUTS)
        return failure("model %s has more than %d inputs", p->saved.model, MOST_INPUTS);
    for (int i = 0; i < p->n_outputs; i++) {
        output *o = &p->outputs[i];
        free((void *)o->array.data);
        o->array.dims[0] = count;
        o->array.data = malloc((size_t)(count * o->bytes));
        if (!o->array.data)
            return failure("memory does not suffice for %lld samples of output %s",
                           (long long)count, o->array.name);
    }
    TRY(find_labels(p, data));
    TRY(open_loader(p, data, &loader, places, &label));
    clt_status status = CLT_OK;
    while (status == CLT_OK) {
        status = clt_loader_next(loader, &now);
        if (status != CLT_OK || now.slot < 0)
            break;
        status = run_batch(p, loader, places, &now);
        if (status == CLT_OK && p->labels)
            memcpy(p->labels + now.offset, clt_loader_memory(loader, now.slot, 0, label),
                   (size_t)now.count * sizeof *p->labels);
        NEXT(status, clt_loader_release(loader, now.slot));
    }
    clt_loader_free(loader);
    return library_failure(status);
}

/* Warns about values that are not finite. They are written unchanged, and the file does not show
 * them. */
static void warn_not_finite(const npz_array *a)
{
    int64_t size = 1, samples = 0;
    for (int d = 1; d < a->rank; d++)
        size *= a->dims[d];
    for (int64_t i = 0; a->dtype == CLT_F32 && i < a->dims[0]; i++) {
        const float *sample = (const float *)a->data + i * size;
        int64_t k = 0;
        while (k < size && isfinite(sample[k]))
            k++;
        samples += k < size;
    }
    if (samples)
        say("warning: output %s is not finite for %lld of %lld samples", a->name,
            (long long)samples, (long long)a->dims[0]);
}

static int save_outputs(const prediction *p, const char *path)
{
    npz_array arrays[MOST_OUTPUTS];
    for (int i = 0; i < p->n_outputs; i++) {
        arrays[i] = p->outputs[i].array;
        warn_not_finite(&arrays[i]);
    }
    const int code = npz_write(path, arrays, p->n_outputs);
    if (!code)
        show("%s: %d output%s of %lld samples\n", path, p->n_outputs, p->n_outputs == 1 ? "" : "s",
             (long long)arrays[0].dims[0]);
    return code;
}

/* Returns the size of the vocabulary of text, or 0. A token outside the vocabulary has no
 * embedding. */
static int64_t token_classes(const job *j)
{
    const clt_model_field *tokens = use_field(j, "tokens");
    return tokens ? tokens->classes : 0;
}

/* --- classes --------------------------------------------------------------------------------- */

/* Finds the output whose largest number is the class: the logits, or else their softmax. */
static const output *find_logits(const prediction *p, int64_t *classes)
{
    const output *found = NULL;
    *classes = label_classes(&p->job);
    for (int i = 0; i < p->n_outputs; i++) {
        const npz_array *a = &p->outputs[i].array;
        if (a->dtype == CLT_F32 && a->rank == 2 && a->dims[1] == *classes &&
            (!found || (found->is_softmax && !p->outputs[i].is_softmax)))
            found = &p->outputs[i];
    }
    return found;
}

static const char *class_name(void *user, int64_t number)
{
    prediction *p = user;
    const char *name = use_class_name(p->saved.use, number);
    int field;
    if (!name && p->job.test && clt_dataset_find_field(p->job.test, "label", &field) == CLT_OK)
        name = clt_dataset_class_name(p->job.test, field, number);
    snprintf(p->text, sizeof p->text, "%lld", (long long)number);
    return name ? name : p->text;
}

/* Describes the rows that are written: of classes, or of the numbers of output "prediction". */
static int describe_rows(prediction *p, const clt_dataset *data, const output **from,
                         predictions *rows)
{
    const settings *s = p->settings;
    int64_t classes;
    const output *found = find_logits(p, &classes);
    for (int i = 0; !classes && i < p->n_outputs; i++)
        if (!strcmp(p->outputs[i].array.name, "prediction") && p->outputs[i].array.dtype == CLT_F32)
            found = &p->outputs[i];
    if (!found && !classes)
        return failure(
            "-o %s: model %s predicts neither classes of samples nor numbers: -o OUT.npz "
            "gives all its outputs%s",
            s->output ? s->output : "-", p->saved.model,
            use_field(&p->job, "tokens") ? ", and `cltrain sample` writes text" : "");
    if (!found)
        return failure("model %s has no output of %lld classes, and none called prediction; -o "
                       "OUT.npz gives all its outputs",
                       p->saved.model, (long long)classes);
    *from = found;
    *rows = (predictions){.format = p->format,
                          .path = s->output,
                          .classes = classes,
                          .top = s->top,
                          .numbers = found->bytes / (int64_t)sizeof(float),
                          .is_softmax = found->is_softmax,
                          .scale = 1,
                          .name = class_name,
                          .user = p};
    if (data)
        use_target_scale(clt_dataset_description(data), &rows->shift, &rows->scale);
    return !classes && s->top > 0
               ? usage_error("--top %lld: the model predicts numbers, not classes",
                             (long long)s->top)
               : 0;
}

/* Writes a row for each sample of a data set. */
static int write_all(prediction *p, const clt_dataset *data)
{
    predictions rows;
    const output *from;
    TRY(describe_rows(p, data, &from, &rows));
    rows.files = clt_dataset_sample_file(data, 0) != NULL;
    rows.targets = p->labels != NULL;
    int code = predictions_open(&rows);
    for (int64_t i = 0; !code && i < clt_dataset_count(data); i++) {
        const predicted sample = {clt_dataset_sample_file(data, i), i,
                                  (const float *)((const char *)from->array.data + i * from->bytes),
                                  p->labels ? p->labels[i] : 0};
        code = predictions_add(&rows, &sample);
    }
    code = predictions_close(&rows, code);
    if (!code)
        show("%s: predictions of %lld samples\n", p->settings->output,
             (long long)clt_dataset_count(data));
    return code;
}

/* Predicts all samples of npz:FILE, or the test samples of --data. */
static int predict_arrays(prediction *p)
{
    const settings *s = p->settings;
    clt_dataset_options options;
    clt_dataset *data = NULL;
    clt_status status = data_options(s, &options);
    options.split = s->n_names ? "all" : "test";
    options.classes = label_classes(&p->job);
    if (!options.classes && !s->n_names)
        options.classes = token_classes(&p->job);
    if (!s->n_names && p->saved.use && use_resize(p->saved.use)) {
        options.image_size = p->job.fields[0].dims[1];
        options.resize = s->resize > 0 ? s->resize : use_resize(p->saved.use);
    }
    if (!s->n_names && s->seq_len <= 0)
        options.sequence = use_sequence(&p->job);
    options.description = job_description(&p->job, s->n_names ? s->names[0] : s->data);
    NEXT(status, open_dataset(s->n_names ? s->names[0] : s->data, &options, &data));
    if (status != CLT_OK)
        return library_failure(status);
    int code = use_same_classes(p->saved.use, data);
    NEXT(code, run_all(p, data));
    NEXT(code, p->format == PREDICTIONS_ARRAYS ? save_outputs(p, s->output) : write_all(p, data));
    clt_dataset_free(data);
    return code;
}

/* --- image files ------------------------------------------------------------------------------ */

/* Reads up to GROUP images. Skips files that cannot be read, and adds their number to p->bad. */
static int64_t read_images(prediction *p, const char *const *files, int count,
                           const clt_image_form *form, unsigned char *bytes, const char **read)
{
    int64_t n = 0;
    const size_t size = (size_t)(form->channels * form->height * form->width);
    for (int i = 0; i < count; i++) {
        if (clt_image_read(files[i], form, bytes + (size_t)n * size) == CLT_OK) {
            read[n++] = files[i];
            continue;
        }
        failure("%s", clt_error_message());
        p->bad++;
    }
    return n;
}

static int predict_group(prediction *p, const char *const *files, int count,
                         const clt_image_form *form, unsigned char *bytes, predictions *rows,
                         const output *from)
{
    const char *read[GROUP];
    const int64_t shape[] = {form->channels, form->height, form->width};
    clt_dataset *data = NULL;
    const int64_t n = read_images(p, files, count, form, bytes, read);
    if (!n)
        return 0;
    clt_status status = clt_dataset_create_arrays("image files", n, &data);
    NEXT(status,
         clt_dataset_add_field(data, "image", CLT_U8, 3, shape, bytes, CLT_DATA_BORROW, NULL));
    int code = status == CLT_OK ? run_all(p, data) : library_failure(status);
    for (int64_t i = 0; !code && i < n; i++) {
        const float *scores = (const float *)((const char *)from->array.data + i * from->bytes);
        const predicted sample = {read[i], i, scores, 0};
        code = predictions_add(rows, &sample);
    }
    clt_dataset_free(data);
    return code;
}

/* Finds the form in which the model's field "image" was read from files. */
static int find_form(const prediction *p, clt_image_form *form)
{
    const settings *s = p->settings;
    const clt_model_field *image = NULL;
    int64_t classes;
    for (int i = 0; i < p->job.input.n_fields; i++)
        if (!strcmp(p->job.fields[i].name, "image"))
            image = &p->job.fields[i];
    int takes = 0;
    for (int i = 0; i < clt_predictor_input_count(p->predictor); i++) {
        const char *name;
        clt_predictor_input(p->predictor, i, &name, NULL, NULL, NULL);
        takes = takes || !strcmp(name, "image");
    }
    if (!image || !takes || image->rank != 3 || (image->dims[0] != 1 && image->dims[0] != 3))
        return failure("model %s takes no images of 1 or 3 channels; arrays are given as "
                       "npz:IN.npz -o OUT.npz",
                       p->saved.model);
    if (!find_logits(p, &classes))
        return failure("model %s has no output of %lld classes; npz:IN.npz -o OUT.npz gives all "
                       "its outputs",
                       p->saved.model, (long long)classes);
    clt_image_form_init(form);
    form->channels = image->dims[0];
    form->height = image->dims[1];
    form->width = image->dims[2];
    if (p->saved.use)
        form->resize = s->resize > 0 ? s->resize : use_resize(p->saved.use);
    else if (s->data && !strncmp(s->data, "images:", 7))
        form->resize = s->resize > 0 ? s->resize : form->height * 8 / 7;
    return 0;
}

static int predict_files(prediction *p)
{
    const settings *s = p->settings;
    clt_image_form form;
    predictions rows;
    const output *from;
    TRY(find_form(p, &form));
    TRY(describe_rows(p, NULL, &from, &rows));
    rows.files = 1;
    unsigned char *bytes = malloc(GROUP * (size_t)(form.channels * form.height * form.width));
    int code = bytes ? 0 : failure("memory does not suffice");
    NEXT(code, predictions_open(&rows));
    for (int i = 0; !code && i < s->n_names; i += GROUP)
        code = predict_group(p, s->names + i, s->n_names - i < GROUP ? s->n_names - i : GROUP,
                             &form, bytes, &rows, from);
    free(bytes);
    code = predictions_close(&rows, code);
    return code ? code : p->bad ? EXIT_FAILED : 0;
}

int run_predict(const settings *s)
{
    prediction p = {.settings = s, .format = predictions_format_of(s->output, s->json)};
    int code = prediction_check(s);
    NEXT(code, saved_open(&p.saved, s));
    NEXT(code, job_devices(&p.job, s));
    NEXT(code, read_fields(&p));
    NEXT(code, make_model(&p));
    NEXT(code, prediction_is_array(s) || !s->n_names ? predict_arrays(&p) : predict_files(&p));
    clt_predictor_destroy(p.predictor);
    for (int i = 0; i < p.n_outputs; i++)
        free((void *)p.outputs[i].array.data);
    free(p.labels);
    const int closed = job_close(&p.job, code);
    saved_close(&p.saved);
    return closed;
}
