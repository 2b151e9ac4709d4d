/* Models of models/ with a golden of PyTorch: their inputs, initial parameters and runs. */
#ifndef TESTS_TRAIN_MODELS_GOLDEN_MODEL_H
#define TESTS_TRAIN_MODELS_GOLDEN_MODEL_H

#include "goldens/goldens.h"

#include <jansson.h>

#include "train/core/trainer.h"
#include "train/lab.h"
#include <cltrain/models.h>

enum { FIELDS = 2, MIN_STEPS = 20 };

typedef struct subject {
    clt_tensors *golden;
    const char *name, *parallel; /* parallel: the mesh; NULL: dp alone */
    int zero;                    /* 3: parameters are shards along dp */
    int accumulate;              /* micro-batches of a step */
    json_t *about;
    clt_model_field fields[FIELDS];
    clt_feed feeds[FIELDS];
    float *floats[FIELDS]; /* values of an f32 field */
    int64_t elements[FIELDS], batch;
} subject;

static inline double number(const subject *s, const char *key)
{
    return json_number_value(json_object_get(s->about, key));
}

static inline const json_t *entry(const subject *s, const char *key, int64_t index)
{
    return json_array_get(json_object_get(s->about, key), (size_t)index);
}

static inline void open_field(subject *s, int f)
{
    const json_t *row = entry(s, "fields", f), *shape = json_array_get(row, 2);
    clt_model_field *field = &s->fields[f];
    field->name = json_string_value(json_array_get(row, 0));
    field->classes = json_integer_value(json_array_get(row, 1));
    field->dtype = field->classes ? CLT_I32 : CLT_F32;
    field->rank = (int)json_array_size(shape);
    s->elements[f] = s->batch;
    for (int d = 0; d < field->rank; d++) {
        field->dims[d] = json_integer_value(json_array_get(shape, (size_t)d));
        s->elements[f] *= field->dims[d];
    }
    s->feeds[f] = (clt_feed){field->name, -1, {.whole = 1}};
    if (field->classes)
        return;
    s->floats[f] = malloc((size_t)s->elements[f] * sizeof **s->floats);
    assert_non_null(s->floats[f]);
    s->feeds[f].array.host = s->floats[f];
}

/* Opens KIND_NAME.safetensors. */
static inline subject subject_open(const char *kind, const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "%s_%s.safetensors", kind, name);
    subject s = {.golden = golden_open(file), .name = name, .accumulate = 1};
    const char *text = clt_tensors_metadata(s.golden, "about");
    s.about = text ? json_loads(text, 0, NULL) : NULL;
    assert_non_null(s.about);
    s.batch = (int64_t)number(&s, "batch");
    assert_int_equal(json_array_size(json_object_get(s.about, "fields")), FIELDS);
    for (int f = 0; f < FIELDS; f++)
        open_field(&s, f);
    return s;
}

static inline void subject_close(subject *s)
{
    for (int f = 0; f < FIELDS; f++)
        free(s->floats[f]);
    json_decref(s->about);
    clt_tensors_close(s->golden);
}

/* Builds the model, with the parameter groups of the golden, and its store by the subject's mesh.
 * `model` NULL stands for the model that the golden names. Close it with lab_close. */
static inline lab subject_lab(const subject *s, const char *model, const char *devices)
{
    const clt_model_input input = {.fields = s->fields, .n_fields = FIELDS, .ignore_index = -100};
    clt_store_options store;
    clt_graph *graph;
    lab l = lab_on_kept(devices);
    ok(clt_graph_create(&graph));
    ok(clt_model_build(model ? model : json_string_value(json_object_get(s->about, "model")),
                       &input, graph));
    const json_t *group;
    for (int64_t i = 0; (group = entry(s, "groups", i)); i++)
        ok(clt_param_group(graph, json_string_value(json_array_get(group, 0)),
                           json_number_value(json_array_get(group, 1)),
                           json_number_value(json_array_get(group, 2)), NULL));
    clt_store_options_init(&store);
    store.seed = 1;
    store.parallel = s->parallel;
    store.zero = s->zero == 3 ? 3 : 0;
    l.graph = graph;
    ok(clt_store_create_with(graph, l.devices, l.n, &store, &l.store));
    return l;
}

/* Returns make_models.py's `hashed`: a number in [-1, 1) with 16 bits. */
static inline double hashed(uint32_t salt, uint32_t index)
{
    uint32_t x = index + 0x9E3779B9u * (salt + 1);
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = (x ^ x >> 15) * 0x846CA68Bu;
    return (double)((x ^ x >> 16) >> 16) / 32768 - 1;
}

/* Returns batch `index`: first the batches of the run, then one for each snapshot. */
static inline clt_step_batch batch_of(subject *s, int64_t index)
{
    const uint32_t seed = (uint32_t)json_integer_value(entry(s, "seeds", index));
    clt_step_batch batch;
    for (uint32_t f = 0; f < FIELDS; f++) {
        if (s->fields[f].classes)
            s->feeds[f].array = (clt_array)CLT_HOST(
                golden_i32(s->golden, NULL, s->fields[f].name, -1) + index * s->elements[f]);
        for (int64_t i = 0; s->floats[f] && i < s->elements[f]; i++)
            s->floats[f][i] = (float)(2 * hashed(1000 + 10 * seed + f, (uint32_t)i));
    }
    clt_step_batch_init(&batch);
    batch.count = s->batch;
    batch.feeds = s->feeds;
    batch.n_feeds = FIELDS;
    return batch;
}

static inline int64_t shape_of(const json_t *row, int64_t *dims)
{
    const json_t *shape = json_array_get(row, 2);
    int64_t count = 1;
    for (size_t d = 0; d < json_array_size(shape); d++)
        count *= dims[d] = json_integer_value(json_array_get(shape, d));
    return count;
}

/* Converts a number of half precision. No golden has infinities. */
static inline double from_half(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits >> 15 ? -size : size;
}

/* Loads the parameters and states of a snapshot. Step 0 has the initial ones, which are not
 * stored. */
static inline void load(const subject *s, clt_store *store, int64_t step)
{
    const json_t *rows = json_object_get(s->about, "tensors");
    const uint16_t *half = NULL;
    char prefix[16];
    int64_t stored = 0, at = 0;
    snprintf(prefix, sizeof prefix, "%lld", (long long)step);
    if (step) {
        const clt_tensor *t = golden_find(s->golden, prefix, "values");
        assert_int_equal(t->dtype, CLT_FILE_F16);
        half = t->data;
        stored = clt_tensor_bytes(t) / 2;
    }
    for (size_t k = 0; k < json_array_size(rows); k++) {
        const json_t *row = json_array_get(rows, k);
        int64_t dims[CLT_MAX_RANK];
        const int64_t elements = shape_of(row, dims);
        const double middle = json_number_value(json_array_get(row, 3));
        const double scale = json_number_value(json_array_get(row, 4));
        const bool whole = !strcmp(json_string_value(json_array_get(row, 1)), "i32");
        float *values = malloc((size_t)elements * sizeof *values);
        assert_non_null(values);
        assert_true(!half || at + elements <= stored);
        for (int64_t i = 0; i < elements; i++)
            values[i] = (float)(half ? from_half(half[at + i])
                                     : middle + scale * hashed((uint32_t)k, (uint32_t)i));
        const int32_t count = (int32_t)values[0];
        ok(clt_store_set(store, json_string_value(json_array_get(row, 0)),
                         whole ? (const void *)&count : values, (size_t)elements * sizeof *values));
        free(values);
        at += elements;
    }
    assert_true(!half || at == stored);
}

static inline double step(lab *l, const clt_step_batch *batch)
{
    clt_step_result result;
    clt_step_result_init(&result);
    ok(clt_trainer_step(l->trainer, batch, NULL));
    ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
    return result.loss;
}

/* Trains as the golden's run, and compares each loss with PyTorch's in f64: as far off as PyTorch's
 * own f32 runs, times 4. */
static inline void check_run(subject *s, lab *l, double *worst)
{
    const int64_t steps = golden_count(golden_find(s->golden, NULL, "loss"));
    const int64_t batches = (int64_t)number(s, "batches");
    const double *want = golden_f64(s->golden, NULL, "loss", steps);
    const double *envelope = golden_f64(s->golden, NULL, "kernel_envelope", steps);
    const char *optimizer = json_string_value(json_object_get(s->about, "optimizer"));
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    ok(clt_optimizer_parse(optimizer, &options.optimizer));
    options.batch = s->batch;
    options.lr = number(s, "lr");
    options.zero = s->zero;
    options.accumulate = s->accumulate;
    options.momentum = number(s, "momentum");
    options.weight_decay = number(s, "weight_decay");
    assert_true(steps >= MIN_STEPS);
    lab_trainer(l, &options);
    /* With a sequence, the gradient of a slice of the positions' embedding is gathered. */
    const int gathers = s->parallel && strstr(s->parallel, "sequence") ? 1 : 0;
    assert_true(l->trainer->training->devices[0].plan->partition.gathers <= gathers);
    assert_true(l->trainer->evaluation->devices[0].plan->partition.gathers <= gathers);
    load(s, l->store, 0);
    for (int64_t i = 0; i < steps; i++) {
        const clt_step_batch batch = batch_of(s, i % batches);
        const double have = step(l, &batch), limit = 1e-5 + 4 * envelope[i];
        *worst = fmax(*worst, fabs(have - want[i]) / limit);
        if (!(fabs(have - want[i]) <= limit))
            fail_msg("%s, step %lld of %s: loss %.9g, PyTorch's is %.9g, at most %.3g off", s->name,
                     (long long)i, optimizer, have, want[i], limit);
    }
    ok(clt_store_check(l->store));
}

#endif
