/* Loss scaling of f16: skipped steps, the scale, checkpoints. */
#include "train/whole_numbers.h"

#include <cltrain/fit.h>

/* --- optimizers ------------------------------------------------------------------------------- */

/* Skipped steps change neither slots nor Adam's bias correction. So the first applied step moves
 * each weight by lr, as Adam's first step does. Clipping uses the gradient without the scale, so
 * momentum's first step is as long as the clipped gradient. */
static void optimizers_on(const char *list)
{
    make_data(1);
    clt_trainer_options o = options_for(CLT_F16, 1);
    o.optimizer = CLT_ADAM;
    o.lr = 0.125;
    lab l = open_lab(list, &o);
    float w[WEIGHTS], slot[WEIGHTS];
    while (!run_step(&l).finite) {
        ok(clt_trainer_slot_get(l.trainer, 0, "w", slot, sizeof slot));
        for (int i = 0; i < WEIGHTS; i++)
            assert_true(slot[i] == 0);
    }
    ok(clt_store_get(l.store, "w", w, sizeof w));
    for (int i = 0; i < WEIGHTS; i++)
        if (fabs(exact(i, 0, BATCH)) > 0.01)
            assert_true(fabs(w[i] + copysign(o.lr, exact(i, 0, BATCH))) <= 1e-4 * o.lr);
    lab_close(&l);

    o.optimizer = CLT_MOMENTUM;
    o.clip_norm = 0.25;
    l = open_lab(list, &o);
    while (!run_step(&l).finite)
        continue;
    ok(clt_trainer_slot_get(l.trainer, 0, "w", slot, sizeof slot));
    ok(clt_trainer_gradient(l.trainer, 0, "w", w, sizeof w));
    const double norm = expected_norm(CLT_F16, l.n, 1, 1);
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(fabs(slot[i] - w[i] * o.clip_norm / norm) <= 1e-3 * fabs(slot[i]));
    lab_close(&l);
}

static void skipped_steps_change_nothing(void **state)
{
    (void)state;
    optimizers_on(clt_test_devices("pocl"));
    as_gpu = true;
    optimizers_on(clt_test_devices("pocl"));
    as_gpu = false;
    optimizers_on(clt_test_devices("pocl/2"));
}

/* The optimizers, with options that use all that they keep. */
static const struct {
    clt_optimizer optimizer;
    int centered;
    double lr, momentum, weight_decay;
} kinds[] = {{CLT_SGD, 0, 1e-5, 0, 0.1},       {CLT_NESTEROV, 0, 1e-5, 0.5, 0},
             {CLT_ADAMW, 0, 1e-4, 0, 0.1},     {CLT_RMSPROP, 0, 1e-4, 0, 0},
             {CLT_RMSPROP, 1, 1e-4, 0.5, 0.1}, {CLT_ADAGRAD, 0, 1e-3, 0, 0.1},
             {CLT_LION, 0, 1e-4, 0, 0.1},      {CLT_MUON, 0, 1e-3, 0.5, 0.1}};
enum { KINDS = sizeof kinds / sizeof *kinds, KEPT_MOST = 3, GOOD_STEPS = 3 };

static clt_trainer_options options_of_kind(int kind)
{
    clt_trainer_options o = options_for(CLT_F16, 1);
    ok(clt_optimizer_defaults(kinds[kind].optimizer, &o));
    o.lr = kinds[kind].lr;
    o.momentum = kinds[kind].momentum;
    o.weight_decay = kinds[kind].weight_decay;
    o.centered = kinds[kind].centered;
    o.lr_decay = o.optimizer == CLT_ADAGRAD ? 0.25 : 0;
    o.initial_accumulator = o.optimizer == CLT_ADAGRAD ? 0.5 : 0;
    if (o.optimizer == CLT_MUON)
        o.muon_adamw = "b"; /* so that w is a matrix, although it is the last */
    return o;
}

/* The parameters, and what the optimizer keeps of them. */
typedef struct kept {
    float w[1 + KEPT_MOST][WEIGHTS], b[1 + KEPT_MOST][OUT];
} kept;

static kept kept_of(const lab *l)
{
    kept k = {0};
    ok(clt_store_get(l->store, "w", k.w[0], sizeof *k.w));
    ok(clt_store_get(l->store, "b", k.b[0], sizeof *k.b));
    for (int s = 0; clt_trainer_slot_name(l->trainer, s); s++) {
        assert_true(s < KEPT_MOST);
        ok(clt_trainer_slot_get(l->trainer, s, "w", k.w[1 + s], sizeof *k.w));
        ok(clt_trainer_slot_get(l->trainer, s, "b", k.b[1 + s], sizeof *k.b));
    }
    return k;
}

/* Runs good steps. Skipped steps before them change no bit. Returns the scale of the last step. */
static float run_good_steps(lab *l, int32_t *skipped)
{
    clt_step_result r;
    const int32_t before = *skipped;
    for (int good = 0; good < GOOD_STEPS; good += r.finite) {
        const kept was = kept_of(l);
        r = run_step(l);
        const kept is = kept_of(l);
        assert_int_equal(!memcmp(&was, &is, sizeof is), !r.finite);
        *skipped = (int32_t)r.skipped;
        assert_true(*skipped < before + SKIPS_MOST);
    }
    return (float)r.loss_scale;
}

/* A run with skipped steps, at its begin and in its middle, gives the bits of a run that has the
 * right scales from the start. */
static void each_optimizer_on(const char *list)
{
    make_data(0x1p-4F);
    for (int k = 0; k < KINDS; k++) {
        const clt_trainer_options o = options_of_kind(k);
        const float high = 0x1p24F;
        float scales[2];
        int32_t skipped = 0, none = 0;
        lab l = open_lab(list, &o);
        scales[0] = run_good_steps(&l, &skipped);
        const int32_t first = skipped;
        ok(clt_trainer_set_scaling(l.trainer, &(clt_scaling){.scale = high, .skipped = skipped}));
        scales[1] = run_good_steps(&l, &skipped);
        assert_true(first > 0 && skipped > first);
        const kept want = kept_of(&l);
        lab_close(&l);
        l = open_lab(list, &o);
        for (int part = 0; part < 2; part++) {
            ok(clt_trainer_set_scaling(l.trainer, &(clt_scaling){.scale = scales[part]}));
            assert_true(run_good_steps(&l, &none) == scales[part]);
        }
        assert_int_equal(none, 0);
        const kept have = kept_of(&l);
        if (memcmp(&want, &have, sizeof have))
            fail_msg("%s on %s: skipped steps changed the run", clt_optimizer_name(o.optimizer),
                     list);
        if (l.n > 1)
            ok(clt_store_check(l.store));
        lab_close(&l);
    }
}

static void skipped_steps_of_each_optimizer(void **state)
{
    (void)state;
    each_optimizer_on(clt_test_devices("pocl"));
    as_gpu = true;
    each_optimizer_on(clt_test_devices("pocl"));
    as_gpu = false;
    each_optimizer_on(clt_test_devices("pocl/2"));
}

/* --- the scale -------------------------------------------------------------------------------- */

/* The scale doubles after 2000 good steps. A run that no scale helps stops at the smallest one. */
static void scale_on(const char *list)
{
    make_data(0x1p-20F);
    const clt_trainer_options o = options_for(CLT_F16, 1);
    lab l = open_lab(list, &o);
    ok(clt_trainer_set_scaling(l.trainer,
                               &(clt_scaling){.scale = 512, .good = 1998, .skipped = 3}));
    assert_true(run_step(&l).loss_scale == 512);
    assert_true(run_step(&l).loss_scale == 512);
    const clt_step_result r = run_step(&l);
    assert_true(r.finite && r.loss_scale == 1024 && r.skipped == 3);
    lab_close(&l);

    make_data(1e30F);
    l = open_lab(list, &o);
    ok(clt_trainer_set_scaling(l.trainer, &(clt_scaling){.scale = 0x1p-13F, .skipped = 7}));
    assert_true(!run_step(&l).finite);
    const clt_step_batch batch = whole_batch();
    clt_step_result result;
    clt_step_result_init(&result);
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    assert_int_equal(clt_trainer_result(l.trainer, 1, &result), CLT_NONFINITE);
    assert_non_null(strstr(clt_error_message(), "step 2: "));
    assert_non_null(strstr(clt_error_message(), "2^-14"));
    expect_zero_weights(&l);
    /* Each device has the scaling from before the stopped step, whatever was queued after it. */
    ok(clt_trainer_wait(l.trainer));
    for (int d = 0; d < l.n; d++) {
        clt_scaling now;
        ok(clt_update_scaling(l.trainer->devices[d].update, &now));
        assert_true(now.scale == 0x1p-14F && now.skipped == 8);
    }
    lab_close(&l);
}

static void the_scale_follows(void **state)
{
    (void)state;
    scale_on(clt_test_devices("pocl"));
    scale_on(clt_test_devices("pocl/2"));
}

/* Without the guard, steps are skipped too, but nothing ends the run. */
static void without_guard(void **state)
{
    (void)state;
    make_data(1e30F);
    clt_trainer_options o = options_for(CLT_F16, 1);
    o.guard = 0;
    lab l = open_lab(clt_test_devices("pocl/2"), &o);
    ok(clt_trainer_set_scaling(l.trainer, &(clt_scaling){.scale = 0x1p-13F}));
    for (int s = 1; s < 5; s++) {
        const clt_step_result r = run_step(&l);
        assert_true(!r.finite && r.skipped == s);
    }
    expect_zero_weights(&l);
    lab_close(&l);
}

/* --- checkpoints ------------------------------------------------------------------------------ */

static void run_steps(lab *l, int steps, clt_step_result *last)
{
    for (int s = 0; s < steps; s++)
        *last = run_step(l);
}

/* A resumed run is bit by bit the uninterrupted one, including the scale. In another precision it
 * begins with the first scale. */
static void resumed_on(const char *list)
{
    char dir[] = "/tmp/cltrain-half-XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    make_data(1);
    clt_trainer_options o = options_for(CLT_F16, 1);
    o.optimizer = CLT_ADAMW;
    o.lr = 0.01;
    clt_step_result whole, part;
    float want[WEIGHTS], got[WEIGHTS];
    clt_position position = {0, 0};
    int64_t seed = 0;
    lab a = open_lab(list, &o), b = open_lab(list, &o), c = {0};
    run_steps(&a, 20, &whole);
    run_steps(&b, 9, &part);
    ok(clt_trainer_save(b.trainer, dir, position, BATCH, 0, 0, "test"));
    lab_close(&b);
    b = open_lab(list, &o);
    ok(clt_trainer_restore(b.trainer, dir, &position, &seed));
    run_steps(&b, 11, &part);
    assert_true(part.loss_scale == whole.loss_scale && part.skipped == whole.skipped &&
                whole.skipped > 2 && part.loss == whole.loss);
    ok(clt_store_get(a.store, "w", want, sizeof want));
    ok(clt_store_get(b.store, "w", got, sizeof got));
    assert_memory_equal(want, got, sizeof want);
    o.precision = CLT_BF16;
    c = open_lab(list, &o);
    ok(clt_trainer_restore(c.trainer, dir, &position, &seed));
    assert_int_equal(clt_trainer_steps(c.trainer), 9);
    run_steps(&c, 1, &part);
    assert_true(part.finite && part.loss_scale == 1 && part.skipped == 0);
    lab_close(&a);
    lab_close(&b);
    lab_close(&c);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void resumed(void **state)
{
    (void)state;
    resumed_on(clt_test_devices("pocl"));
    resumed_on(clt_test_devices("pocl/2"));
}

/* Gradients from the caller are refused, since no loss of theirs can be scaled. */
static void given_gradients_in_f16(void **state)
{
    (void)state;
    clt_trainer_options o = options_for(CLT_F16, 1);
    lab l = lab_on_kept(clt_test_devices("pocl"));
    clt_graph *graph;
    const int64_t dims[] = {4};
    ok(clt_graph_create(&graph));
    clt_value *p = clt_parameter(graph, "p", 1, dims, (clt_init){0});
    clt_output_gradient(clt_output(clt_copy(p), "y"), "dy");
    lab_store(&l, graph, 1);
    assert_int_equal(clt_trainer_create(graph, l.store, &o, &l.trainer), CLT_UNSUPPORTED);
    assert_non_null(strstr(clt_error_message(), "clt_output_gradient"));
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(skipped_steps_change_nothing),
        cmocka_unit_test(skipped_steps_of_each_optimizer),
        cmocka_unit_test(the_scale_follows),
        cmocka_unit_test(without_guard),
        cmocka_unit_test(resumed),
        cmocka_unit_test(given_gradients_in_f16),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
