/* The models of models/, compared with PyTorch's goldens (tests/goldens/README.md).
 * - Names and shapes of parameters and states.
 * - At snapshots of a run: losses of training and evaluation, gradients and running statistics.
 * - Whole runs with the optimizers and parameter groups that are usual for the models. */
#include "train/models/golden_model.h"

enum { SNAPSHOTS = 5 };

/* --- parameters and states ------------------------------------------------------------------- */

static bool is_parameter(const subject *s, const char *name)
{
    const json_t *list = json_object_get(s->about, "parameters");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!strcmp(json_string_value(json_array_get(list, i)), name))
            return true;
    return false;
}

/* Checks that the store's entry of this name is as in PyTorch. */
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

/* All names are different. So the sets are the same if every name is found and the numbers are
 * equal. */
static void check_entries(const subject *s, clt_store *store)
{
    const json_t *rows = json_object_get(s->about, "tensors");
    const int count = (int)json_array_size(rows);
    for (int k = 0; k < count; k++)
        check_entry(s, store, json_array_get(rows, (size_t)k));
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

static void check_gradients(const subject *s, lab *l, int nth, const char *prefix, double *worst)
{
    const json_t *list = json_object_get(s->about, "parameters"),
                 *rows = json_object_get(s->about, "tensors");
    const int64_t count = (int64_t)json_array_size(list);
    const float *want = golden_f32(s->golden, prefix, "grad", -1), *first = want;
    const double *torch_error =
        golden_f64(s->golden, NULL, "grad_error", SNAPSHOTS * count) + nth * count;
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
    assert_int_equal(want - first, golden_count(golden_find(s->golden, prefix, "grad")));
}

/* Checks running means and variances, and the number of batches, after a step. */
static void check_states(const subject *s, lab *l, const char *prefix, double *worst)
{
    const json_t *rows = json_object_get(s->about, "tensors");
    if (!golden_try(s->golden, prefix, "states"))
        return;
    const float *want = golden_f32(s->golden, prefix, "states", -1), *first = want;
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
    assert_int_equal(want - first, golden_count(golden_find(s->golden, prefix, "states")));
}

/* --- the models ------------------------------------------------------------------------------ */

enum { LOSS, GRADIENT, STATISTIC, RUN, KINDS };

static void check_loss(const subject *s, int k, int outside, double have, double *worst)
{
    const double want = golden_f64(s->golden, NULL, "losses", 2 * SNAPSHOTS)[2 * k + outside];
    const double error = fabs(have / want - 1);
    *worst = fmax(*worst, error / 1e-5);
    if (!(error <= 1e-5))
        fail_msg("%s, snapshot %d: loss %.9g%s, PyTorch's is %.9g", s->name, k, have,
                 outside ? " in evaluation" : "", want);
}

static double evaluate(lab *l, const clt_step_batch *batch)
{
    double sums[8] = {0}, weights[8] = {0}, loss = 0;
    assert_true(clt_graph_loss_count(l->graph) + clt_graph_metric_count(l->graph) <= 8);
    ok(clt_trainer_evaluate(l->trainer, batch, sums, weights));
    for (int i = 0; i < clt_graph_loss_count(l->graph); i++)
        loss += clt_graph_loss_coefficient(l->graph, i) * sums[i] / weights[i];
    return loss;
}

static void check_snapshots(subject *s, lab *l, double *worst)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = s->batch;
    options.lr = 0;
    options.zero = s->zero;
    options.poison = 1;
    lab_trainer(l, &options);
    for (int k = 0; k < SNAPSHOTS; k++) {
        char prefix[16];
        const int64_t at = json_integer_value(entry(s, "snapshots", k));
        snprintf(prefix, sizeof prefix, "%lld", (long long)at);
        load(s, l->store, at);
        const clt_step_batch batch = batch_of(s, (int64_t)number(s, "batches") + k);
        check_loss(s, k, 1, evaluate(l, &batch), &worst[LOSS]);
        check_loss(s, k, 0, step(l, &batch), &worst[LOSS]);
        if (!s->parallel) /* a device has gradients of its own parts only */
            check_gradients(s, l, k, prefix, &worst[GRADIENT]);
        check_states(s, l, prefix, &worst[STATISTIC]);
    }
    clt_trainer_destroy(l->trainer);
    l->trainer = NULL;
}

/* `model` NULL stands for the model that the golden names. `parallel`: the mesh; NULL: dp alone. */
static void check_shared(const char *name, const char *model, const char *devices,
                         const char *parallel, int zero)
{
    subject s = subject_open("models", name);
    double worst[KINDS] = {0};
    s.parallel = parallel;
    s.zero = zero;
    assert_int_equal(json_array_size(json_object_get(s.about, "snapshots")), SNAPSHOTS);
    lab l = subject_lab(&s, model, devices);
    check_entries(&s, l.store);
    check_snapshots(&s, &l, worst);
    check_run(&s, &l, &worst[RUN]);
    printf("    %s on %s %s%s: worst loss %.2f, gradient %.2f, statistic %.2f, run %.2f of the "
           "limit\n",
           name, devices, parallel ? parallel : "", zero ? "zero 3" : "", worst[LOSS],
           worst[GRADIENT], worst[STATISTIC], worst[RUN]);
    lab_close(&l);
    subject_close(&s);
}

static void check_mesh(const char *name, const char *model, const char *devices,
                       const char *parallel)
{
    check_shared(name, model, devices, parallel, 0);
}

static void check_model(const char *name, const char *model, const char *devices)
{
    check_mesh(name, model, devices, NULL);
}

/* Checks the model on one device, on two, and on two that have shards. `synchronised` is the model
 * for two devices if batch norm needs the whole batch; NULL stands for the same model. */
static void check_on_all(const char *name, const char *synchronised)
{
    check_model(name, NULL, clt_test_devices("pocl@1"));
    if (getenv("CLT_TEST_DEVICES"))
        return;
    check_model(name, synchronised, "pocl/2");
    check_shared(name, synchronised, "pocl/2", NULL, 3);
}

/* Checks the model with its parameters split over two devices, and over two of four. */
static void check_tensor(const char *name, const char *synchronised)
{
    if (getenv("CLT_TEST_DEVICES"))
        return;
    check_mesh(name, NULL, "pocl@1,pocl@1", "tp=2");
    check_mesh(name, synchronised, "pocl@1,pocl@1,pocl@1,pocl@1", "dp=2,tp=2");
}

/* Checks the model with its images split over two devices, and over two of four. */
static void check_space(const char *name, const char *model)
{
    if (getenv("CLT_TEST_DEVICES"))
        return;
    check_mesh(name, model, "pocl@1,pocl@1", "space=2");
    check_mesh(name, model, "pocl@1,pocl@1,pocl@1,pocl@1", "dp=2,space=2");
}

static void residual_networks(void **state)
{
    (void)state;
    check_tensor("resnet18", "resnet18:width=2,sync");
    check_tensor("bottleneck", "resnet50:width=2,blocks=1,sync");
    check_space("resnet18", "resnet18:width=2,sync");
    check_space("bottleneck", "resnet50:width=2,blocks=1,sync");
    check_on_all("resnet18", "resnet18:width=2,sync");
    check_on_all("bottleneck", "resnet50:width=2,blocks=1,sync");
}

static void unet(void **state)
{
    (void)state;
    check_on_all("unet", "unet:levels=2,width=4,sync");
    check_tensor("unet", "unet:levels=2,width=4,sync");
    check_space("unet", "unet:levels=2,width=4,sync");
}

static void vit(void **state)
{
    (void)state;
    check_on_all("vit", NULL);
    check_tensor("vit", NULL);
}

/* Checks the model with its sequences split over two devices, and over two of four, of which the
 * others have other samples or other parts of layers. */
static void check_time(const char *name)
{
    if (getenv("CLT_TEST_DEVICES"))
        return;
    check_mesh(name, NULL, "pocl@1,pocl@1", "time=2");
    check_mesh(name, NULL, "pocl@1,pocl@1,pocl@1,pocl@1", "dp=2,time=2");
    check_mesh(name, NULL, "pocl@1,pocl@1,pocl@1,pocl@1", "tp=2,time=2");
}

static void gpt2(void **state)
{
    (void)state;
    check_on_all("gpt2", NULL);
    check_tensor("gpt2", NULL);
    if (!getenv("CLT_TEST_DEVICES"))
        check_mesh("gpt2", NULL, "pocl@1,pocl@1", "tp=2:sequence");
    check_time("gpt2");
}

static void lstm(void **state)
{
    (void)state;
    check_on_all("lstm-text", NULL);
    check_tensor("lstm-text", NULL);
    check_time("lstm-text");
    check_model("lstm-rows", NULL, clt_test_devices("pocl@1"));
    check_model("lstm-last", NULL, clt_test_devices("pocl@1"));
    check_model("lstm-each", NULL, clt_test_devices("pocl@1"));
}

static void two_branch(void **state)
{
    (void)state;
    check_on_all("two-branch", NULL);
    check_tensor("two-branch", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residual_networks),
        cmocka_unit_test(unet),
        cmocka_unit_test(vit),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(lstm),
        cmocka_unit_test(two_branch),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
