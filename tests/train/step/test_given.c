/*
 * Gradients that the caller sets. What was read and is set again changes no bit. Other gradients
 * give the step that they say, with its norm, clipping and guard, on one device and on several.
 */
#include "train/lab_scratch.h"
#include "train/step/given.h"

/* Reads all gradients of a device and sets them again, there or (-1) on all devices. */
static void read_and_set(lab *l, int device, int to)
{
    float g[MOST];
    for (int i = 0; i < TENSORS; i++) {
        ok(clt_trainer_gradient(l->trainer, device, names[i], g, bytes_of(i)));
        ok(clt_trainer_set_gradient(l->trainer, to, names[i], g, bytes_of(i)));
    }
}

static void same_parameters(lab *a, lab *b)
{
    float x[MOST], y[MOST];
    for (int i = 0; i < TENSORS; i++) {
        ok(clt_store_get(a->store, names[i], x, bytes_of(i)));
        ok(clt_store_get(b->store, names[i], y, bytes_of(i)));
        if (memcmp(x, y, bytes_of(i)))
            fail_msg("%s differs", names[i]);
    }
    ok(clt_store_check(b->store));
}

static void same_norm(double have, double want)
{
    if (!(fabs(have - want) <= 1e-6 * want))
        fail_msg("the norm is %.9g, not %.9g", have, want);
}

/* --- nothing changes ---------------------------------------------------------------------------
 */

typedef enum moment { BEFORE, AFTER, BOTH, MOMENTS } moment;

static void unchanged(const setting *s, moment when)
{
    lab plain = lab_of(s), l = lab_of(s);
    for (int k = 0; k < STEPS; k++) {
        backward(&plain, COUNT - k);
        backward(&l, COUNT - k);
        for (int d = 0; when != AFTER && d < l.n; d++)
            read_and_set(&l, d, d);
        ok(clt_trainer_reduce(l.trainer));
        if (when != BEFORE)
            read_and_set(&l, 0, -1);
        ok(clt_trainer_apply(l.trainer, NULL));
        const clt_step_result want = end(&plain), have = last(&l);
        assert_true(have.loss == want.loss && have.finite && have.loss_scale == want.loss_scale);
        same_norm(have.norm, want.norm);
        same_parameters(&plain, &l);
    }
    lab_close(&plain);
    lab_close(&l);
}

static void set_as_read(void **state)
{
    (void)state;
    const setting settings[] = {
        {"pocl", NULL, CLT_MOMENTUM, CLT_F32, 0, 0.125, 0.5, 0},
        {"pocl", NULL, CLT_ADAM, CLT_BF16, 0, 0.125, 0, 0},
        {"pocl", NULL, CLT_SGD, CLT_F16, 0, 0.125, 0, 0},
        {"pocl/2", NULL, CLT_MOMENTUM, CLT_F32, 0, 0, 0.5, 0},
        {"pocl/2", NULL, CLT_SGD, CLT_BF16, 0, 0, 0, 0},
        {"pocl/2", NULL, CLT_ADAMW, CLT_F16, 0, 0, 0, 0},
        {"pocl/2", NULL, CLT_ADAM, CLT_F32, 1, 0, 0, 0},
        {"pocl/2", NULL, CLT_ADAM, CLT_BF16, 1, 0, 0, 0},
        {"pocl/2", "tp=2", CLT_MOMENTUM, CLT_F32, 0, 0.125, 0, 0},
        {"pocl/2", "tp=2", CLT_ADAM, CLT_F16, 0, 0.125, 0, 0},
        {"pocl/2", NULL, CLT_ADAM, CLT_F32, 3, 0.125, 0, 0},
        {"pocl/2", NULL, CLT_ADAM, CLT_BF16, 3, 0.125, 0, 0},
        {"pocl/2", NULL, CLT_ADAM, CLT_F32, 0, 0.125, 0, .virtual_shards = 2},
    };
    const int count = clt_test_oclgrind() ? 3 : (int)(sizeof settings / sizeof *settings);
    for (int i = 0; i < count; i++)
        for (moment when = BEFORE; is_possible(&settings[i]) && when < MOMENTS; when++)
            unchanged(&settings[i], when);
}

/* --- other gradients ---------------------------------------------------------------------------
 */

/* Twice the gradient gives the step of twice the rate, and a gradient of zero leaves a parameter.
 */
static void scaled(void **state)
{
    (void)state;
    const setting s = {"pocl/2", NULL, CLT_SGD, CLT_F32, 0, 0, 0, 0};
    float g[MOST], before[MOST], after[MOST];
    lab twice = lab_of(&s), l = lab_of(&s);
    ok(clt_trainer_set_lr(twice.trainer, 0.5));
    backward(&twice, COUNT);
    backward(&l, COUNT);
    for (int i = 0; i < TENSORS; i++)
        for (int d = 0; d < l.n; d++) {
            ok(clt_trainer_gradient(l.trainer, d, names[i], g, bytes_of(i)));
            for (int k = 0; k < sizes[i]; k++)
                g[k] *= 2;
            ok(clt_trainer_set_gradient(l.trainer, d, names[i], g, bytes_of(i)));
        }
    const double norm = end(&twice).norm;
    assert_true(end(&l).norm == 2 * norm);
    same_parameters(&twice, &l);

    for (int device = -1; device < l.n; device++) { /* -1: after reduce */
        memset(g, 0, sizeof g);
        ok(clt_store_get(l.store, "a.bias", before, bytes_of(1)));
        backward(&twice, COUNT);
        backward(&l, COUNT);
        if (device < 0)
            ok(clt_trainer_reduce(l.trainer));
        for (int d = device < 0 ? -1 : 0; d < (device < 0 ? 0 : l.n); d++)
            ok(clt_trainer_set_gradient(l.trainer, d, "a.bias", g, bytes_of(1)));
        if (device >= 0)
            ok(clt_trainer_reduce(l.trainer));
        ok(clt_trainer_apply(l.trainer, NULL));
        end(&twice);
        ok(clt_store_get(l.store, "a.bias", after, bytes_of(1)));
        assert_memory_equal(before, after, bytes_of(1));
        ok(clt_store_check(l.store));
    }
    lab_close(&twice);
    lab_close(&l);
}

/* --- reduced by the caller ---------------------------------------------------------------------
 */

/* Adds up the gradients of all devices in their order, as the library does, and sets the sums. */
static void reduce_by_hand(lab *l)
{
    float sum[MOST], g[MOST];
    for (int i = 0; i < TENSORS; i++) {
        memset(sum, 0, sizeof sum);
        for (int d = 0; d < l->n; d++) {
            ok(clt_trainer_gradient(l->trainer, d, names[i], g, bytes_of(i)));
            for (int k = 0; k < sizes[i]; k++)
                sum[k] += g[k];
        }
        ok(clt_trainer_set_gradient(l->trainer, -1, names[i], sum, bytes_of(i)));
    }
    ok(clt_trainer_reduced(l->trainer));
}

static void by_hand(const setting *s, int64_t count)
{
    if (!is_possible(s))
        return;
    lab plain = lab_of(s), l = lab_of(s);
    for (int k = 0; k < STEPS; k++) {
        backward(&plain, count);
        backward(&l, count);
        reduce_by_hand(&l);
        ok(clt_trainer_apply(l.trainer, NULL));
        const clt_step_result want = end(&plain), have = last(&l);
        assert_true(have.loss == want.loss && have.finite);
        same_norm(have.norm, want.norm);
        same_parameters(&plain, &l);
    }
    lab_close(&plain);
    lab_close(&l);
}

static void reduced(void **state)
{
    (void)state;
    by_hand(&(setting){"pocl", NULL, CLT_MOMENTUM, CLT_F32, 0, 0.125, 0, 0}, COUNT);
    if (clt_test_oclgrind())
        return;
    by_hand(&(setting){"pocl/2", NULL, CLT_MOMENTUM, CLT_F32, 0, 0, 0.5, 0}, COUNT);
    by_hand(&(setting){"pocl/2", NULL, CLT_MOMENTUM, CLT_F32, 0, 0, 0, 0}, 1);
    by_hand(&(setting){"pocl/2", NULL, CLT_ADAM, CLT_F32, 1, 0, 0, 0}, COUNT);
}

/* The gradient that a device without samples is given counts. */
static void without_samples(void **state)
{
    (void)state;
    const setting s = {"pocl/2", NULL, CLT_SGD, CLT_F32, 0, 0, 0, 0};
    float g[MOST], before[MOST], after[MOST];
    lab l = lab_of(&s);
    if (l.n == 2) {
        for (int k = 0; k < MOST; k++)
            g[k] = 0.5f * (float)(k % 5);
        ok(clt_store_get(l.store, "a.weight", before, bytes_of(0)));
        backward(&l, 0);
        ok(clt_trainer_set_gradient(l.trainer, 1, "a.weight", g, bytes_of(0)));
        assert_true(end(&l).finite);
        ok(clt_store_get(l.store, "a.weight", after, bytes_of(0)));
        for (int k = 0; k < sizes[0]; k++)
            assert_true(after[k] == before[k] - 0.25f * g[k]);
    }
    lab_close(&l);
}

/* --- norm, clipping, guard, loss scale ---------------------------------------------------------
 */

static void set_all(lab *l, float value)
{
    float g[MOST];
    for (int k = 0; k < MOST; k++)
        g[k] = value;
    for (int i = 0; i < TENSORS; i++)
        ok(clt_trainer_set_gradient(l->trainer, -1, names[i], g, bytes_of(i)));
}

static int elements(void)
{
    int count = 0;
    for (int i = 0; i < TENSORS; i++)
        count += sizes[i];
    return count;
}

static void clipped_on(const setting *s)
{
    float before[MOST], after[MOST];
    if (!is_possible(s))
        return;
    lab l = lab_of(s);
    ok(clt_store_get(l.store, "a.bias", before, bytes_of(1)));
    backward(&l, COUNT);
    set_all(&l, 3);
    ok(clt_trainer_reduced(l.trainer));
    ok(clt_trainer_apply(l.trainer, NULL));
    const double norm = 3 * sqrt(elements());
    assert_true(fabs(last(&l).norm - norm) <= 1e-6 * norm);
    ok(clt_store_get(l.store, "a.bias", after, bytes_of(1)));
    for (int k = 0; k < sizes[1]; k++) { /* the rate of its group is half of 0.25 */
        const double want = before[k] - 0.125 * 3 * s->clip_norm / (norm + 1e-6);
        assert_true(fabs(after[k] - want) <= 1e-6 * (1 + fabs(want)));
    }
    ok(clt_store_check(l.store));

    /* An infinite gradient changes nothing, and the guard stops. */
    backward(&l, COUNT);
    ok(clt_trainer_reduce(l.trainer));
    set_all(&l, INFINITY);
    ok(clt_trainer_apply(l.trainer, NULL));
    clt_step_result result;
    clt_step_result_init(&result);
    assert_int_equal(clt_trainer_result(l.trainer, 1, &result), CLT_NONFINITE);
    ok(clt_store_get(l.store, "a.bias", before, bytes_of(1)));
    assert_memory_equal(before, after, bytes_of(1));
    lab_close(&l);
}

static void clipped(void **state)
{
    (void)state;
    clipped_on(&(setting){"pocl", NULL, CLT_SGD, CLT_F32, 0, 0.5, 0, 0});
    if (clt_test_oclgrind())
        return;
    clipped_on(&(setting){"pocl/2", NULL, CLT_SGD, CLT_F32, 0, 0.5, 0, 0});
    clipped_on(&(setting){"pocl/2", NULL, CLT_SGD, CLT_F32, 1, 0.5, 0, 0});
    clipped_on(&(setting){"pocl/2", "tp=2", CLT_SGD, CLT_F32, 0, 0.5, 0, 0});
    clipped_on(&(setting){"pocl/2", NULL, CLT_SGD, CLT_F32, 3, 0.5, 0, 0});
}

/* In f16 an infinite gradient halves the scale. Halves are rounded to nearest, ties to even, after
 * they were multiplied by the scale, a power of two. */
static void halves(void **state)
{
    (void)state;
    const setting s = {"pocl", NULL, CLT_SGD, CLT_F16, 0, 0, 0, 0};
    const float given[] = {0.1f, 0x1.002p0f / 16, 0x1.006p0f / 16, -0x1.fp-20f, 0};
    const float want[] = {0x1.998p-4f, 0x1p-4f, 0x1.008p-4f, -0x1.fp-20f, 0};
    float got[CLASSES];
    lab l = lab_of(&s);
    backward(&l, COUNT);
    ok(clt_trainer_reduced(l.trainer));
    set_all(&l, 0.5); /* 0.5 * 65536 fits, 1 does not */
    ok(clt_trainer_set_gradient(l.trainer, -1, "b.bias", given, sizeof given));
    ok(clt_trainer_gradient(l.trainer, 0, "b.bias", got, sizeof got));
    assert_memory_equal(got, want, sizeof want);
    assert_true(apply(&l).finite && last(&l).skipped == 0);
    backward(&l, COUNT);
    set_all(&l, 1);
    ok(clt_trainer_reduced(l.trainer));
    assert_true(!apply(&l).finite && last(&l).skipped == 1 && last(&l).loss_scale == 65536);
    backward(&l, COUNT);
    ok(clt_trainer_reduced(l.trainer));
    set_all(&l, 1);
    assert_true(apply(&l).finite && last(&l).skipped == 1 && last(&l).loss_scale == 32768);
    lab_close(&l);
}

/* --- parameters that no loss depends on --------------------------------------------------------
 */

/* A server's trainer: parameters alone, which are updated in the steps that set their gradients. */
static void without_loss(void **state)
{
    (void)state;
    const int64_t dims[] = {7};
    const float g[7] = {1, 2, 3, 4, 5, 6, 7};
    float p[7], q[7], before[7];
    clt_trainer_options o;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_parameter(graph, "p", 1, dims, (clt_init){CLT_INIT_NORMAL, 1, 0});
    clt_parameter(graph, "q", 1, dims, (clt_init){CLT_INIT_NORMAL, 1, 0});
    clt_trainer_options_init(&o);
    o.optimizer = CLT_MOMENTUM;
    o.lr = 0.5;
    o.momentum = 0.5;
    o.batch = 1;
    o.weight_decay = 0.25;
    lab l = lab_on_kept(clt_test_devices("pocl/2"));
    lab_store(&l, graph, 1);
    lab_trainer(&l, &o);
    double velocity = 0;
    ok(clt_store_get(l.store, "p", p, sizeof p));
    ok(clt_store_get(l.store, "q", before, sizeof before));
    double want = p[3];
    for (int step = 0; step < 4; step++) {
        const clt_step_batch batch = {.struct_size = sizeof batch};
        ok(clt_trainer_forward(l.trainer, &batch));
        ok(clt_trainer_backward(l.trainer));
        if (step != 2) {
            ok(clt_trainer_set_gradient(l.trainer, -1, "p", g, sizeof g));
            velocity = 0.5 * velocity + 4 + 0.25 * want;
            want -= 0.5 * velocity;
        }
        ok(clt_trainer_reduced(l.trainer));
        ok(clt_trainer_apply(l.trainer, NULL));
        ok(clt_store_get(l.store, "p", p, sizeof p));
        ok(clt_store_get(l.store, "q", q, sizeof q));
        assert_true(fabs(p[3] - want) <= 1e-6 * fabs(want));
        assert_memory_equal(q, before, sizeof q);
        assert_true(fabs(last(&l).norm - (step == 2 ? 0 : sqrt(140))) < 1e-5);
    }
    ok(clt_store_check(l.store));
    lab_close(&l);
}

/* A gradient that one device has is a term of the sum, so all replicas are updated. */
static void without_loss_on_one_device(void **state)
{
    const int64_t dims[] = {7};
    const float g[7] = {1, 2, 3, 4, 5, 6, 7};
    float p[2][7];
    clt_trainer_options o;
    clt_graph *graph;
    (void)state;
    ok(clt_graph_create(&graph));
    clt_parameter(graph, "p", 1, dims, (clt_init){CLT_INIT_NORMAL, 1, 0});
    clt_trainer_options_init(&o);
    o.optimizer = CLT_MOMENTUM;
    o.batch = 1;
    lab l = lab_on_kept(clt_test_devices("pocl/2"));
    lab_store(&l, graph, 1);
    lab_trainer(&l, &o);
    for (int copies = 0; copies < 2; copies++) {
        const clt_step_batch batch = {.struct_size = sizeof batch};
        clt_tensor_copy copy;
        clt_tensor_copy_init(&copy);
        copy.name = "p";
        copy.of = CLT_COPY_GRADIENT;
        copy.array = (clt_array)CLT_HOST(g);
        ok(clt_store_get(l.store, "p", p[0], sizeof p[0]));
        ok(clt_trainer_forward(l.trainer, &batch));
        ok(clt_trainer_backward(l.trainer));
        ok(copies ? clt_trainer_copy_in(l.trainer, &copy, NULL)
                  : clt_trainer_set_gradient(l.trainer, 0, "p", g, sizeof g));
        ok(clt_trainer_reduce(l.trainer));
        ok(clt_trainer_apply(l.trainer, NULL));
        ok(clt_store_check(l.store));
        ok(clt_store_get(l.store, "p", p[1], sizeof p[1]));
        assert_memory_not_equal(p[0], p[1], sizeof p[0]);
    }
    lab_close(&l);
}

/* Gradients that differ are refused, also if their norms are equal. */
static void unlike_on_devices(void **state)
{
    const int64_t dims[] = {7};
    const float g[][7] = {
        {1, 2, 3, 4, 5, 6, 7}, {-1, -2, -3, -4, -5, -6, -7}, {2, 1, 3, 4, 5, 6, 7}};
    float before[7], after[7];
    (void)state;
    for (int i = 0; i < 6; i++) {
        const clt_step_batch batch = {.struct_size = sizeof batch};
        clt_trainer_options o;
        clt_graph *graph;
        ok(clt_graph_create(&graph));
        clt_parameter(graph, "p", 1, dims, (clt_init){CLT_INIT_NORMAL, 1, 0});
        clt_trainer_options_init(&o);
        o.batch = 1;
        o.precision = i < 3 ? CLT_F32 : CLT_BF16;
        lab l = lab_on_kept(clt_test_devices("pocl/2"));
        lab_store(&l, graph, 1);
        lab_trainer(&l, &o);
        ok(clt_store_get(l.store, "p", before, sizeof before));
        ok(clt_trainer_forward(l.trainer, &batch));
        ok(clt_trainer_backward(l.trainer));
        for (int d = 0; d < l.n; d++)
            ok(clt_trainer_set_gradient(l.trainer, d, "p", g[d ? i % 3 : 0], sizeof g[0]));
        ok(clt_trainer_reduced(l.trainer));
        const clt_status status = clt_trainer_apply(l.trainer, NULL);
        if (l.n > 1 && l.trainer->store->replicas[0].shards == 1)
            assert_int_equal(status, i % 3 ? CLT_MISMATCH : CLT_OK);
        ok(clt_store_get(l.store, "p", after, sizeof after));
        if (status != CLT_OK)
            assert_memory_equal(before, after, sizeof after);
        lab_close(&l);
    }
}

/* --- mistakes ----------------------------------------------------------------------------------
 */

static void fails(clt_status status, clt_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(clt_error_message(), text))
        fail_msg("'%s' is not in: %s", text, clt_error_message());
}

static void mistakes(void **state)
{
    (void)state;
    const setting s = {"pocl/2", NULL, CLT_SGD, CLT_F32, 0, 0, 0, 0};
    float g[MOST] = {0}, before[MOST], after[MOST];
    lab l = lab_of(&s);
    const clt_step_batch batch = batch_of(COUNT);
    fails(clt_trainer_set_gradient(l.trainer, 0, "a.bias", g, bytes_of(1)), CLT_STATE,
          "backward has not run");
    fails(clt_trainer_reduced(l.trainer), CLT_STATE, "clt_trainer_reduced needs");
    ok(clt_trainer_forward(l.trainer, &batch));
    fails(clt_trainer_set_gradient(l.trainer, 0, "a.bias", g, bytes_of(1)), CLT_STATE,
          "backward has not run");
    ok(clt_trainer_backward(l.trainer));
    fails(clt_trainer_set_gradient(l.trainer, 0, "a.bia", g, bytes_of(1)), CLT_NOT_FOUND,
          "did you mean a.bias");
    fails(clt_trainer_set_gradient(l.trainer, 0, "a.bias", g, bytes_of(1) - 4),
          CLT_INVALID_ARGUMENT, "no gradient a.bias of 40 bytes");
    fails(clt_trainer_set_gradient(l.trainer, l.n, "a.bias", g, bytes_of(1)), CLT_INVALID_ARGUMENT,
          "no gradient");
    fails(clt_trainer_set_gradient(l.trainer, -2, "a.bias", g, bytes_of(1)), CLT_INVALID_ARGUMENT,
          "no gradient");
    ok(clt_trainer_reduced(l.trainer));
    fails(clt_trainer_reduce(l.trainer), CLT_STATE, "reduced already");
    fails(clt_trainer_reduced(l.trainer), CLT_STATE, "reduced already");
    /* Devices that nobody has reduced for differ. */
    ok(clt_store_get(l.store, "a.weight", before, bytes_of(0)));
    if (l.n == 2 && !l.trainer->sharded)
        fails(clt_trainer_apply(l.trainer, NULL), CLT_MISMATCH,
              "set the same reduced gradients on all");
    ok(clt_store_get(l.store, "a.weight", after, bytes_of(0)));
    assert_memory_equal(before, after, bytes_of(0));
    lab_close(&l);
}

/* Zeros, or gradients of another batch, would look like gradients of this one. */
static void reading_before_backward(void **state)
{
    (void)state;
    const setting s = {"pocl/2", NULL, CLT_SGD, CLT_F32, 0, 0, 0, 0};
    char dir[300];
    float g[MOST] = {0};
    lab l = lab_of(&s);
    clt_tensor_copy copy;
    clt_array array = CLT_HOST(g);
    const clt_step_batch batch = batch_of(COUNT);
    clt_tensor_copy_init(&copy);
    copy.of = CLT_COPY_GRADIENT;
    copy.name = "a.bias";
    copy.array = array;
    snprintf(dir, sizeof dir, "%s/run", scratch);
    for (int round = 0; round < 2; round++) {
        fails(clt_trainer_gradient(l.trainer, 0, "a.bias", g, bytes_of(1)), CLT_STATE,
              "gradient of a.bias: no backward has run yet");
        fails(clt_trainer_gradient_array(l.trainer, 0, "a.bias", &array), CLT_STATE,
              "no backward has run yet");
        fails(clt_trainer_copy_out(l.trainer, &copy, NULL), CLT_STATE, "no backward has run yet");
        ok(clt_trainer_forward(l.trainer, &batch));
        fails(clt_trainer_gradient(l.trainer, 0, "a.bias", g, bytes_of(1)), CLT_STATE,
              "gradient of a.bias: backward has not run since clt_trainer_forward");
        ok(clt_trainer_backward(l.trainer));
        ok(clt_trainer_gradient(l.trainer, 0, "a.bias", g, bytes_of(1)));
        end(&l);
        ok(clt_trainer_gradient(l.trainer, 0, "a.bias", g, bytes_of(1)));
        if (l.trainer->sharded) /* devices of several kinds: each updates a part */
            fails(clt_trainer_copy_out(l.trainer, &copy, NULL), CLT_UNSUPPORTED,
                  "does not have all");
        else
            ok(clt_trainer_copy_out(l.trainer, &copy, NULL));
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_forward(l.trainer, &batch)); /* the step's gradients are of other values */
        fails(clt_trainer_copy_out(l.trainer, &copy, NULL), CLT_STATE, "backward has not run");
        ok(clt_trainer_gradients(l.trainer, &batch));
        ok(clt_trainer_gradient_array(l.trainer, 0, "a.bias", &array));
        if (!round) {
            ok(clt_trainer_apply(l.trainer, NULL));
            ok(clt_trainer_save_state(l.trainer, dir, 1));
            ok(clt_trainer_restore_state(l.trainer, dir));
        }
    }
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_as_read),
        cmocka_unit_test(scaled),
        cmocka_unit_test(reduced),
        cmocka_unit_test(without_samples),
        cmocka_unit_test(clipped),
        cmocka_unit_test(halves),
        cmocka_unit_test(without_loss),
        cmocka_unit_test(without_loss_on_one_device),
        cmocka_unit_test(unlike_on_devices),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(reading_before_backward),
    };
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
