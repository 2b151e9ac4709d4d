/* The models of models/ against PyTorch's goldens (tests/goldens/README.md): names and shapes of
 * what they have, losses of training and evaluation, gradients, running statistics and three steps.
 */
#include "goldens/goldens.h"

#include <jansson.h>

#include "train/lab.h"
#include <cltrain/models.h>

enum { MOST_FIELDS = 2, STEPS = 3, LOSSES = STEPS + 2 /* the last one: of evaluation */ };

typedef struct subject {
    clt_tensors *golden;
    const char *name;
    json_t *about;
    clt_model_field fields[MOST_FIELDS];
    clt_feed feeds[MOST_FIELDS];
    int n_fields;
    int64_t batch;
} subject;

static subject subject_open(const char *name)
{
    subject s = {.golden = golden_open("models.safetensors"), .name = name};
    const char *text = clt_tensors_metadata(s.golden, name);
    s.about = text ? json_loads(text, 0, NULL) : NULL;
    assert_non_null(s.about);
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(s.about, "fields"), i, row)
    {
        assert_true(i < MOST_FIELDS);
        const char *field = json_string_value(json_array_get(row, 0));
        const clt_tensor *t = golden_find(s.golden, name, field);
        clt_model_field *f = &s.fields[s.n_fields];
        *f = (clt_model_field){.name = field,
                               .dtype = t->dtype == CLT_FILE_F32 ? CLT_F32 : CLT_I32,
                               .rank = t->rank - 1,
                               .classes = json_integer_value(json_array_get(row, 1))};
        memcpy(f->dims, t->dims + 1, (size_t)f->rank * sizeof *f->dims);
        s.feeds[s.n_fields++] = (clt_feed){field, -1, t->data, NULL, 0};
        s.batch = t->dims[0];
    }
    assert_int_equal(s.n_fields, MOST_FIELDS);
    return s;
}

static void subject_close(subject *s)
{
    json_decref(s->about);
    clt_tensors_close(s->golden);
}

/* --- parameters and states ------------------------------------------------------------------- */

/* What make_models.py calls hashed: a number in [-1, 1) with 16 bits. */
static double hashed(uint32_t salt, uint32_t index)
{
    uint32_t x = index + 0x9E3779B9u * (salt + 1);
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = (x ^ x >> 15) * 0x846CA68Bu;
    return (double)((x ^ x >> 16) >> 16) / 32768 - 1;
}

static int64_t shape_of(const json_t *row, int64_t *dims)
{
    const json_t *shape = json_array_get(row, 2);
    int64_t count = 1;
    for (size_t d = 0; d < json_array_size(shape); d++)
        count *= dims[d] = json_integer_value(json_array_get(shape, d));
    return count;
}

static bool is_parameter(const subject *s, const char *name)
{
    const json_t *list = json_object_get(s->about, "parameters");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!strcmp(json_string_value(json_array_get(list, i)), name))
            return true;
    return false;
}

/* The store's entry of that name is as PyTorch's. */
static void check_entry(const subject *s, clt_store *store, const json_t *row)
{
    const char *name = json_string_value(json_array_get(row, 0)), *own;
    int64_t want[CLT_MAX_RANK], dims[CLT_MAX_RANK];
    clt_dtype dtype;
    int rank, is_state;
    shape_of(row, want);
    for (int i = 0; i < clt_store_count(store); i++) {
        ok(clt_store_describe(store, i, &own, &dtype, &rank, dims, &is_state));
        if (strcmp(own, name))
            continue;
        if (rank != (int)json_array_size(json_array_get(row, 2)) ||
            memcmp(dims, want, (size_t)rank * sizeof *dims) || is_state == is_parameter(s, name) ||
            strcmp(clt_dtype_name(dtype), json_string_value(json_array_get(row, 1))))
            fail_msg("%s: %s has another shape, type or kind than PyTorch's", s->name, name);
        return;
    }
    fail_msg("%s: the model has no %s, which PyTorch's has", s->name, name);
}

/* All names are different, so equally many that are all found are the same set. */
static void load(const subject *s, clt_store *store)
{
    const json_t *rows = json_object_get(s->about, "tensors");
    const int count = (int)json_array_size(rows);
    for (int k = 0; k < count; k++) {
        const json_t *row = json_array_get(rows, (size_t)k);
        const char *name = json_string_value(json_array_get(row, 0));
        int64_t dims[CLT_MAX_RANK];
        check_entry(s, store, row);
        const int64_t elements = shape_of(row, dims);
        const double middle = json_number_value(json_array_get(row, 3));
        const double scale = json_number_value(json_array_get(row, 4));
        const bool whole = !strcmp(json_string_value(json_array_get(row, 1)), "i32");
        float *values = malloc((size_t)elements * sizeof *values);
        const int32_t number = (int32_t)middle;
        assert_non_null(values);
        for (int64_t i = 0; i < elements; i++)
            values[i] = (float)(middle + scale * hashed((uint32_t)k, (uint32_t)i));
        ok(clt_store_set(store, name, whole ? (const void *)&number : values,
                         (size_t)elements * sizeof *values));
        free(values);
    }
    if (clt_store_count(store) != count)
        fail_msg("%s: the model has %d parameters and states, PyTorch's has %d", s->name,
                 clt_store_count(store), count);
}

/* --- comparison ------------------------------------------------------------------------------ */

static void compare(const subject *s, const char *name, const float *have, const float *want,
                    int64_t count, double limit, double *worst)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)have[i] - (double)want[i], 2);
        size += pow((double)want[i], 2);
    }
    const double error = sqrt(difference / size);
    *worst = fmax(*worst, error / limit);
    if (!(error <= limit))
        fail_msg("%s: %s is off by %.3g of its size, at most %.3g allowed", s->name, name, error,
                 limit);
}

static void check_gradients(const subject *s, lab *l, double *worst)
{
    const json_t *list = json_object_get(s->about, "parameters"),
                 *rows = json_object_get(s->about, "tensors");
    const int64_t count = (int64_t)json_array_size(list);
    const float *want = golden_f32(s->golden, s->name, "grad", -1), *first = want;
    const double *torch_error = golden_f64(s->golden, s->name, "grad_error", count);
    for (int64_t p = 0, k = 0; p < count; k++) {
        const json_t *row = json_array_get(rows, (size_t)k);
        const char *name = json_string_value(json_array_get(row, 0));
        int64_t dims[CLT_MAX_RANK];
        if (strcmp(name, json_string_value(json_array_get(list, (size_t)p))))
            continue;
        const int64_t elements = shape_of(row, dims);
        float *have = malloc((size_t)elements * sizeof *have);
        assert_non_null(have);
        ok(clt_trainer_gradient(l->trainer, 0, name, have, (size_t)elements * sizeof *have));
        compare(s, name, have, want, elements, fmax(1e-5, 4 * torch_error[p++]), worst);
        want += elements;
        free(have);
    }
    assert_int_equal(want - first, golden_count(golden_find(s->golden, s->name, "grad")));
}

/* Running means and variances, and the number of batches, after the first step. */
static void check_states(const subject *s, lab *l, double *worst)
{
    const json_t *rows = json_object_get(s->about, "tensors");
    if (!golden_try(s->golden, s->name, "states"))
        return;
    const float *want = golden_f32(s->golden, s->name, "states", -1), *first = want;
    for (size_t k = 0; k < json_array_size(rows); k++) {
        const json_t *row = json_array_get(rows, k);
        const char *name = json_string_value(json_array_get(row, 0));
        int64_t dims[CLT_MAX_RANK];
        const int64_t elements = shape_of(row, dims);
        float *have;
        if (is_parameter(s, name))
            continue;
        have = malloc((size_t)elements * sizeof *have);
        assert_non_null(have);
        ok(clt_store_get(l->store, name, have, (size_t)elements * sizeof *have));
        if (!strcmp(json_string_value(json_array_get(row, 1)), "i32")) {
            int32_t number;
            memcpy(&number, have, sizeof number);
            assert_int_equal(number, (int)*want);
        } else {
            compare(s, name, have, want, elements, 1e-5, worst);
        }
        want += elements;
        free(have);
    }
    assert_int_equal(want - first, golden_count(golden_find(s->golden, s->name, "states")));
}

static void check_loss(const subject *s, int which, double have, double *worst)
{
    const double want = golden_f64(s->golden, s->name, "losses", LOSSES)[which];
    const double torch_error = golden_f64(s->golden, s->name, "loss_error", LOSSES)[which];
    const double limit = fmax(1e-5, which && which <= STEPS ? 4 * torch_error : 0);
    const double error = fabs(have / want - 1);
    *worst = fmax(*worst, error / limit);
    if (!(error <= limit))
        fail_msg("%s: loss %d is %.9g, PyTorch's is %.9g", s->name, which, have, want);
}

/* --- the models ------------------------------------------------------------------------------ */

static double evaluate(lab *l, const clt_step_batch *batch)
{
    double sums[8] = {0}, weights[8] = {0}, loss = 0;
    assert_true(clt_graph_loss_count(l->graph) + clt_graph_metric_count(l->graph) <= 8);
    ok(clt_trainer_evaluate(l->trainer, batch, sums, weights));
    for (int i = 0; i < clt_graph_loss_count(l->graph); i++)
        loss += clt_graph_loss_coefficient(l->graph, i) * sums[i] / weights[i];
    return loss;
}

static void check_model(const char *name, const char *model, const char *devices)
{
    subject s = subject_open(name);
    const clt_model_input input = {s.fields, s.n_fields, -100};
    double worst[3] = {0};
    clt_trainer_options options;
    clt_graph *graph;
    lab l = lab_on(devices, NULL);
    ok(clt_graph_create(&graph));
    ok(clt_model_build(model ? model : json_string_value(json_object_get(s.about, "model")), &input,
                       graph));
    lab_store(&l, graph, 1);
    load(&s, l.store);
    clt_trainer_options_init(&options);
    options.batch = s.batch;
    options.lr = json_number_value(json_object_get(s.about, "lr"));
    options.poison = 1;
    lab_trainer(&l, &options);
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = s.batch;
    batch.feeds = s.feeds;
    batch.n_feeds = s.n_fields;
    check_loss(&s, STEPS + 1, evaluate(&l, &batch), &worst[0]);
    for (int step = 0; step <= STEPS; step++) {
        clt_step_result result;
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_result(l.trainer, step, &result));
        check_loss(&s, step, result.loss, &worst[0]);
        if (!step) {
            check_gradients(&s, &l, &worst[1]);
            check_states(&s, &l, &worst[2]);
        }
    }
    ok(clt_store_check(l.store));
    printf("    %s on %s: worst loss %.2f, gradient %.2f, statistic %.2f of the limit\n", name,
           devices, worst[0], worst[1], worst[2]);
    lab_close(&l);
    subject_close(&s);
}

/* `synchronised`: the model where batch norm has to see the whole batch; NULL: the same. */
static void check_on_all(const char *name, const char *synchronised)
{
    check_model(name, NULL, clt_test_devices("pocl@1"));
    if (!getenv("CLT_TEST_DEVICES"))
        check_model(name, synchronised, "pocl/2");
}

static void resnet(void **state)
{
    (void)state;
    check_on_all("resnet18", "resnet18:width=3,sync");
}

static void gpt2(void **state)
{
    (void)state;
    check_on_all("gpt2", NULL);
}

static void lstm(void **state)
{
    (void)state;
    check_on_all("lstm.text", NULL);
    check_model("lstm.rows", NULL, clt_test_devices("pocl@1"));
    check_model("lstm.last", NULL, clt_test_devices("pocl@1"));
    check_model("lstm.each", NULL, clt_test_devices("pocl@1"));
}

static void two_branch(void **state)
{
    (void)state;
    check_on_all("two-branch", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(lstm),
        cmocka_unit_test(two_branch),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
