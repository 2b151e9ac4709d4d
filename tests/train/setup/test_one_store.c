/* Several uses of one store: graphs with different losses, one trainer after another, files of
 * other types, and checkpoints after the guard stopped a run. */
#include "train/lab.h"
#include <cltrain/checkpoint.h>
#include <cltrain/fit.h>

#include "train/lab_scratch.h"
#include "train/core/trainer.h"
#include "train/planner/balance.h"

enum { IN = 5, HIDDEN = 19, CLASSES = 3, MOST = 37, WEIGHTS = HIDDEN * IN };

static float xs[MOST * IN];
static int32_t labels[MOST];
static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};

static void fails(clt_status status, clt_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(clt_error_message(), text))
        fail_msg("message '%s' does not have '%s'", clt_error_message(), text);
}

static clt_step_batch batch_of(int n_feeds)
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = MOST;
    batch.feeds = feeds;
    batch.n_feeds = n_feeds;
    return batch;
}

static void step(clt_trainer *trainer, int n_feeds)
{
    const clt_step_batch batch = batch_of(n_feeds);
    ok(clt_trainer_step(trainer, &batch, NULL));
}

static clt_trainer_options options_of(clt_optimizer optimizer)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = MOST;
    options.optimizer = optimizer;
    return options;
}

/* --- graphs of several losses ----------------------------------------------------------------- */

enum { LOSS_A = 1, LOSS_B = 2 };

/* Builds one hidden layer with two heads. `losses` selects the losses of the heads. */
static clt_graph *heads(int losses)
{
    const int64_t in[] = {CLT_BATCH, IN};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    clt_value *h = clt_relu(layer(graph, x, "h.weight", "h.bias", IN, HIDDEN));
    clt_value *a = layer(graph, h, "a.weight", "a.bias", HIDDEN, IN);
    clt_value *b = layer(graph, h, "b.weight", "b.bias", HIDDEN, IN);
    if (losses & LOSS_A) {
        clt_mse(a, x, &sum, &weight);
        clt_loss(graph, "a", sum, weight, 1);
    }
    if (losses & LOSS_B) {
        clt_mse(b, x, &sum, &weight);
        clt_loss(graph, "b", sum, weight, 1);
    }
    ok(clt_graph_status(graph));
    return graph;
}

/* A step of one loss must not change parameters that only the other loss depends on, whatever
 * gradients, momentum or averages the other loss left. Weight decay must not change them either, as
 * with PyTorch's grad None. */
static void losses_by_turns_on(const char *list, clt_dtype precision, int accumulate,
                               clt_optimizer optimizer)
{
    clt_trainer_options options = options_of(optimizer);
    float before[WEIGHTS], after[WEIGHTS], shared[WEIGHTS], moved[WEIGHTS];
    clt_graph *graphs[] = {heads(LOSS_A), heads(LOSS_B)};
    clt_trainer *trainers[2];
    lab l = lab_on_kept(clt_test_devices(list));
    options.precision = precision;
    options.accumulate = accumulate;
    options.lr = 0.01;
    options.weight_decay = 0.1;
    lab_store(&l, heads(LOSS_A | LOSS_B), 3);
    for (int k = 0; k < 2; k++)
        ok(clt_trainer_create(graphs[k], l.store, &options, &trainers[k]));
    for (int s = 0; s < 4; s++) {
        const int k = s % 2;
        const char *const own = k ? "b.weight" : "a.weight", *other = k ? "a.weight" : "b.weight";
        ok(clt_store_get(l.store, other, before, sizeof before));
        ok(clt_store_get(l.store, own, shared, sizeof shared));
        step(trainers[k], 1);
        ok(clt_store_get(l.store, other, after, sizeof after));
        ok(clt_store_get(l.store, own, moved, sizeof moved));
        assert_memory_equal(before, after, sizeof before);
        assert_memory_not_equal(shared, moved, sizeof shared);
    }
    for (int k = 0; k < 2; k++) {
        clt_trainer_destroy(trainers[k]);
        clt_graph_destroy(graphs[k]);
    }
    lab_close(&l);
}

static void losses_by_turns(void **state)
{
    (void)state;
    losses_by_turns_on("pocl", CLT_F32, 1, CLT_SGD);
    losses_by_turns_on("pocl", CLT_F32, 3, CLT_MOMENTUM);
    losses_by_turns_on("pocl", CLT_F32, 1, CLT_ADAMW);
    losses_by_turns_on("pocl/2", CLT_BF16, 1, CLT_ADAM);
}

/* --- one trainer after another ---------------------------------------------------------------- */

/* The second trainer's optimizer starts from zero, and its checkpoints have only its own
 * tensors. */
static void another_optimizer(void **state)
{
    clt_trainer_options options = options_of(CLT_ADAM);
    float before[WEIGHTS], after[WEIGHTS], gradient[WEIGHTS];
    clt_trainer *none;
    clt_position position = {0, 0};
    int64_t seed;
    (void)state;
    lab l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, classifier(IN, HIDDEN, CLASSES), 3);
    lab_trainer(&l, &options);
    for (int s = 0; s < 3; s++)
        step(l.trainer, 2);
    options.optimizer = CLT_MOMENTUM;
    fails(
        clt_trainer_create(l.graph, l.store, &options, &none), CLT_UNSUPPORTED,
        "keeps exp_avg, exp_avg_sq for each parameter, where momentum would keep momentum_buffer");
    options.optimizer = CLT_SGD; /* has no state */
    ok(clt_trainer_create(l.graph, l.store, &options, &none));
    char dir[300];
    snprintf(dir, sizeof dir, "%s/sgd", scratch);
    ok(clt_trainer_save(none, dir, position, MOST, 0, 1, "test"));
    ok(clt_trainer_restore(none, dir, &position, &seed));
    clt_trainer_destroy(l.trainer);

    options.optimizer = CLT_MOMENTUM;
    lab_trainer(&l, &options);
    clt_trainer_destroy(none);
    ok(clt_store_get(l.store, "a.weight", before, sizeof before));
    step(l.trainer, 2);
    ok(clt_store_get(l.store, "a.weight", after, sizeof after));
    ok(clt_trainer_gradient(l.trainer, 0, "a.weight", gradient, sizeof gradient));
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(fabsf(after[i] - (before[i] - 0.1f * gradient[i])) <= 1e-7f);
    snprintf(dir, sizeof dir, "%s/momentum", scratch);
    ok(clt_trainer_save(l.trainer, dir, position, MOST, 0, 1, "test"));
    lab_close(&l);

    l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, classifier(IN, HIDDEN, CLASSES), 3);
    lab_trainer(&l, &options);
    ok(clt_trainer_restore(l.trainer, dir, &position, &seed));
    lab_close(&l);
}

/* --- restoring after the guard ---------------------------------------------------------------- */

static void restored_on(const char *list, clt_dtype precision)
{
    clt_trainer_options options = options_of(CLT_SGD);
    clt_position position = {0, 0};
    clt_step_result result;
    clt_step_result_init(&result);
    int64_t seed;
    char dir[300];
    options.precision = precision;
    lab l = lab_on_kept(clt_test_devices(list));
    lab_store(&l, classifier(IN, HIDDEN, CLASSES), 3);
    lab_trainer(&l, &options);
    step(l.trainer, 2);
    snprintf(dir, sizeof dir, "%s/stopped-%s-%d", scratch, clt_dtype_name(precision), l.n);
    ok(clt_trainer_save(l.trainer, dir, position, MOST, 0, 1, "test"));
    const float kept = xs[0];
    const clt_step_batch batch = batch_of(2);
    clt_status status = CLT_OK;
    xs[0] = NAN;
    for (int s = 0; s < 4 && status == CLT_OK; s++)
        status = clt_trainer_step(l.trainer, &batch, NULL);
    assert_int_equal(status, CLT_NONFINITE);
    ok(clt_trainer_wait(l.trainer));
    xs[0] = kept;
    ok(clt_trainer_restore(l.trainer, dir, &position, &seed));
    for (int s = 1; s < 4; s++) {
        step(l.trainer, 2);
        ok(clt_trainer_result(l.trainer, s, &result));
        assert_int_equal(result.finite, 1);
    }
    ok(clt_store_check(l.store));
    lab_close(&l);
}

static void restored_after_the_guard(void **state)
{
    (void)state;
    restored_on("pocl", CLT_F32);
    restored_on("pocl/2", CLT_F32);
    restored_on("pocl", CLT_BF16);
}

/* An invalid division is found before anything changes. */
static void damaged_divisions(void **state)
{
    clt_trainer_options options = options_of(CLT_SGD);
    clt_position position = {0, 0};
    float before[WEIGHTS], after[WEIGHTS];
    const double one = 1;
    int64_t seed;
    char dir[300];
    (void)state;
    lab l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, classifier(IN, HIDDEN, CLASSES), 3);
    lab_trainer(&l, &options);
    snprintf(dir, sizeof dir, "%s/damaged", scratch);
    ok(clt_split_history_add(&l.trainer->history, 1, -5, &one, 1));
    ok(clt_trainer_save(l.trainer, dir, position, MOST, 0, 1, "test"));
    step(l.trainer, 2);
    ok(clt_store_get(l.store, "a.weight", before, sizeof before));
    fails(clt_trainer_restore(l.trainer, dir, &position, &seed), CLT_FORMAT, "\"split\"");
    ok(clt_store_get(l.store, "a.weight", after, sizeof after));
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(clt_trainer_steps(l.trainer), 1);
    lab_close(&l);
}

/* --- files of other types --------------------------------------------------------------------- */

/* Only types that become f32 or i32 are converted. */
static void types_of_states(void **state)
{
    enum { COUNT = 4 };
    const int64_t in[] = {CLT_BATCH, IN}, dims[] = {COUNT}, weight_dims[] = {IN, IN}, one[] = {IN};
    static const float weights[IN * IN], values[COUNT] = {1, 2, 3, 4};
    static const double wide[COUNT] = {5, 6, 7, 8};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    double got[COUNT];
    char path[300];
    (void)state;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    clt_mse(layer(graph, x, "a.weight", "a.bias", IN, IN), x, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    clt_state(graph, "s", CLT_F64, 1, dims, (clt_init){0});
    lab l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, graph, 3);
    for (int same = 0; same < 2; same++) {
        clt_tensor tensors[3];
        clt_tensors_desc desc;
        ok(clt_tensor_init(&tensors[0], "a.weight", CLT_FILE_F32, 2, weight_dims, weights));
        ok(clt_tensor_init(&tensors[1], "a.bias", CLT_FILE_F32, 1, one, weights));
        ok(clt_tensor_init(&tensors[2], "s", same ? CLT_FILE_F64 : CLT_FILE_F32, 1, dims,
                           same ? (const void *)wide : values));
        clt_tensors_desc_init(&desc);
        desc.tensors = tensors;
        desc.count = 3;
        snprintf(path, sizeof path, "%s/%d.safetensors", scratch, same);
        ok(clt_tensors_save(path, &desc));
        if (!same)
            fails(clt_store_load(l.store, path), CLT_MISMATCH,
                  "tensor s is F32 in the file and F64 in the model");
        else
            ok(clt_store_load(l.store, path));
        ok(clt_store_get(l.store, "s", got, sizeof got));
        for (int i = 0; i < COUNT; i++)
            assert_true(got[i] == (same ? wide[i] : 0));
    }
    lab_close(&l);
}

/* Steps assign words of 4 bytes, so other sizes are refused when the trainer is made. */
static void sizes_of_states(void **state)
{
    const int64_t in[] = {CLT_BATCH, IN}, dims[] = {3};
    const clt_trainer_options options = options_of(CLT_SGD);
    clt_value *sum = NULL, *weight = NULL;
    clt_trainer *trainer;
    clt_graph *graph;
    (void)state;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    clt_mse(layer(graph, x, "a.weight", "a.bias", IN, IN), x, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    ok(clt_assign(graph, clt_state(graph, "bytes", CLT_U8, 1, dims, (clt_init){0}),
                  clt_state(graph, "others", CLT_U8, 1, dims, (clt_init){0})));
    lab l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, graph, 3);
    fails(clt_trainer_create(l.graph, l.store, &options, &trainer), CLT_UNSUPPORTED,
          "state bytes has 3 bytes");
    lab_close(&l);
}

static int set_up(void **state)
{
    make_samples(xs, labels, MOST, IN, CLASSES);
    return open_runtime_and_scratch(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_by_turns),          cmocka_unit_test(another_optimizer),
        cmocka_unit_test(restored_after_the_guard), cmocka_unit_test(damaged_divisions),
        cmocka_unit_test(types_of_states),          cmocka_unit_test(sizes_of_states),
    };
    return cmocka_run_group_tests(tests, set_up, close_runtime_and_scratch);
}
