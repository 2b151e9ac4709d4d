/*
 * The hooks of clt_fit, and clt_trainer_gradients for loops of one's own: hooks that change nothing
 * leave the bits, changed gradients and rates have the effect that they should, and a hook can end
 * the run, but not replace the step under way. On one device, on several, and on ranks.
 */
#include "train/world.h"
#include "train/core/trainer.h"

enum { IN = 6, HIDDEN = 10, CLASSES = 3, COUNT = 50, BATCH = 16, STEPS = 8, MOST = HIDDEN * IN };

static float xs[COUNT * IN];
static int32_t labels[COUNT];
static const char *const names[] = {"a.weight", "a.bias", "b.weight", "b.bias"};
static const int sizes[] = {HIDDEN * IN, HIDDEN, CLASSES *HIDDEN, CLASSES};

typedef struct setting {
    const char *devices;
    clt_optimizer optimizer;
    clt_dtype precision;
    int accumulate, zero;
    int64_t virtual_shards;
    double clip_norm;
    const clt_world *world;
} setting;

static clt_trainer_options options_of(const setting *s)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.precision = s->precision;
    o.accumulate = s->accumulate ? s->accumulate : 1;
    o.zero = s->zero;
    o.virtual_shards = s->virtual_shards;
    o.clip_norm = s->clip_norm;
    o.lr = 0.25;
    o.batch = BATCH;
    o.world = s->world;
    o.poison = 1;
    return o;
}

static lab lab_of(const setting *s)
{
    const clt_trainer_options o = options_of(s);
    make_samples(xs, labels, COUNT, IN, CLASSES);
    lab l = lab_on_kept(clt_test_devices(s->devices));
    lab_store(&l, classifier(IN, HIDDEN, CLASSES), 3);
    lab_trainer(&l, &o);
    return l;
}

/* --- hooks -------------------------------------------------------------------------------------
 */

typedef struct host {
    int begun, seen;
    int64_t step, stop; /* on_gradients ends the run at this step; 0: never */
    double factor;      /* of gradients; 0: they are left alone */
    double lr;          /* rate at the first step; it halves each step. 0: it is left alone */
    bool calls;         /* makes calls that are refused */
    int64_t spoil;      /* on_gradients sets an infinite gradient at this step; 0: never */
    float before[MOST], after[MOST]; /* a.weight when that step and the next one begin */
    int64_t skipped;                 /* steps that clt_fit reported as skipped */
    double losses[STEPS + 1];
    clt_status failed;
    char message[300];
} host;

static void note(host *h, clt_status status, clt_status want)
{
    if (status != want && h->failed == CLT_OK) {
        h->failed = status == CLT_OK ? CLT_INTERNAL : status;
        snprintf(h->message, sizeof h->message, "step %lld: %s", (long long)h->step,
                 status == CLT_OK ? "a call was not refused" : clt_error_message());
    }
}

static int on_step_begin(void *user, clt_trainer *t, const clt_progress *p)
{
    host *h = user;
    h->begun++;
    h->step = p->step;
    if (p->step != clt_trainer_steps(t) + 1 || p->samples <= 0 || !isnan(p->loss) || p->lr <= 0)
        note(h, CLT_OK, CLT_INTERNAL);
    if (h->lr > 0)
        note(h, clt_trainer_set_lr(t, h->lr * pow(0.5, (double)p->step - 1)), CLT_OK);
    if (h->spoil && (p->step == h->spoil || p->step == h->spoil + 1))
        note(h,
             clt_store_get(t->store, "a.weight", p->step == h->spoil ? h->before : h->after,
                           sizeof h->before),
             CLT_OK);
    return 0;
}

/* Calls that would replace the step. */
static void refused(host *h, clt_trainer *t)
{
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    const clt_step_batch batch = lab_batch(feeds, BATCH);
    double sums[2] = {0}, weights[2] = {0};
    int redo;
    note(h, clt_trainer_step(t, &batch, NULL), CLT_STATE);
    note(h, clt_trainer_gradients(t, &batch), CLT_STATE);
    note(h, clt_trainer_forward(t, &batch), CLT_STATE);
    note(h, clt_trainer_backward(t), CLT_STATE);
    note(h, clt_trainer_reduce(t), CLT_STATE);
    note(h, clt_trainer_apply(t, NULL), CLT_STATE);
    note(h, clt_trainer_recover(t, &redo), CLT_STATE);
    note(h, clt_trainer_restore_state(t, "nowhere"), CLT_STATE);
    note(h, clt_trainer_evaluate(t, &batch, sums, weights), CLT_STATE);
    note(h, clt_trainer_predict(t, &batch, NULL), CLT_STATE);
    if (!strstr(clt_error_message(), "on_gradients"))
        note(h, CLT_OK, CLT_STATE);
}

static int on_gradients(void *user, clt_trainer *t, const clt_progress *p)
{
    host *h = user;
    float g[MOST];
    clt_step_result result;
    clt_step_result_init(&result);
    h->seen++;
    note(h, clt_trainer_result(t, p->step - 1, &result), CLT_OK);
    h->losses[p->step] = result.loss;
    for (int i = 0; h->factor > 0 && i < 4; i++) {
        const size_t bytes = (size_t)sizes[i] * sizeof *g;
        note(h, clt_trainer_gradient(t, 0, names[i], g, bytes), CLT_OK);
        for (int k = 0; k < sizes[i]; k++)
            g[k] *= (float)h->factor;
        note(h, clt_trainer_set_gradient(t, -1, names[i], g, bytes), CLT_OK);
    }
    if (p->step == h->spoil) {
        note(h, clt_trainer_gradient(t, 0, "a.weight", g, sizeof g), CLT_OK);
        g[1] = INFINITY;
        note(h, clt_trainer_set_gradient(t, -1, "a.weight", g, sizeof g), CLT_OK);
    }
    if (h->calls)
        refused(h, t);
    return h->stop == p->step;
}

/* --- runs --------------------------------------------------------------------------------------
 */

static double reported[STEPS + 1];

static void on_step(void *user, const clt_progress *p)
{
    host *h = user;
    h->skipped = p->skipped;
    if (p->step <= STEPS)
        reported[p->step] = p->loss;
}

static clt_status fit(lab *l, host *h, bool hooks)
{
    clt_fit_options o;
    clt_dataset *set;
    clt_fit_options_init(&o);
    o.steps = STEPS;
    o.user = h;
    o.on_step = on_step;
    if (hooks) {
        o.on_step_begin = on_step_begin;
        o.on_gradients = on_gradients;
    }
    ok(lab_samples(COUNT, IN, xs, labels, 0, &set));
    const clt_status status = clt_fit(l->trainer, set, NULL, &o);
    clt_dataset_free(set);
    if (h->failed != CLT_OK)
        fail_msg("%s", h->message);
    return status;
}

static void same(lab *a, lab *b)
{
    float x[MOST], y[MOST];
    for (int i = 0; i < 4; i++) {
        const size_t bytes = (size_t)sizes[i] * sizeof *x;
        ok(clt_store_get(a->store, names[i], x, bytes));
        ok(clt_store_get(b->store, names[i], y, bytes));
        if (memcmp(x, y, bytes))
            fail_msg("%s differs", names[i]);
    }
    ok(clt_store_check(b->store));
}

/* Hooks see each step and its loss, and change no bit: not by being there, and not by setting the
 * gradients that they read. */
static void nothing_changes(void **state)
{
    (void)state;
    static const setting settings[] = {
        {"pocl", CLT_ADAM, CLT_F32, .accumulate = 1},
        {"pocl", CLT_SGD, CLT_F16, .accumulate = 1},
        {"pocl", CLT_SGD, CLT_F32, .accumulate = 3, .clip_norm = 0.5},
        {"pocl", CLT_MOMENTUM, CLT_BF16, .accumulate = 2},
        {"pocl/2", CLT_ADAM, CLT_F32, .clip_norm = 0.5},
        {"pocl/2", CLT_ADAM, CLT_F32, .accumulate = 2, .zero = 1},
        {"pocl/2", CLT_SGD, CLT_BF16, .accumulate = 2},
        {"pocl/2", CLT_SGD, CLT_F32, .virtual_shards = 8},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const setting *s = &settings[i];
        if (s->zero && getenv("CLT_TEST_DEVICES"))
            continue; /* one device has no state to divide */
        lab plain = lab_of(s), hooked = lab_of(s);
        host none = {0}, h = {.factor = i % 2 && s->clip_norm == 0 ? 1 : 0, .calls = true};
        ok(fit(&plain, &none, false));
        ok(fit(&hooked, &h, true));
        assert_int_equal(h.begun, STEPS);
        assert_int_equal(h.seen, STEPS);
        for (int k = 1; k <= STEPS; k++)
            assert_true(h.losses[k] == reported[k]);
        same(&plain, &hooked);
        lab_close(&plain);
        lab_close(&hooked);
    }
}

/* Twice the gradient is twice the rate, and rates set by the hook are those of a schedule. */
static void changes(void **state)
{
    (void)state;
    for (int devices = 1; devices <= 2; devices++) {
        const setting s = {devices == 1 ? "pocl" : "pocl/2", CLT_SGD, CLT_F32, .accumulate = 2};
        lab twice = lab_of(&s), hooked = lab_of(&s);
        host none = {0}, doubles = {.factor = 2}, halves = {.lr = 0.5};
        ok(clt_trainer_set_lr(twice.trainer, 0.5));
        ok(fit(&twice, &none, false));
        ok(fit(&hooked, &doubles, true));
        same(&twice, &hooked);
        lab_close(&twice);
        lab_close(&hooked);

        clt_trainer_options o = options_of(&s);
        o.lr = 0.5;
        ok(clt_schedule_parse("step:1:0.5", STEPS, &o.schedule));
        lab scheduled = lab_on_kept(clt_test_devices(s.devices));
        lab_store(&scheduled, classifier(IN, HIDDEN, CLASSES), 3);
        lab_trainer(&scheduled, &o);
        hooked = lab_of(&s);
        ok(fit(&scheduled, &none, false));
        ok(fit(&hooked, &halves, true));
        same(&scheduled, &hooked);
        lab_close(&scheduled);
        lab_close(&hooked);
    }
}

/* Steps that loss scaling skips call the hooks as others do. An infinite gradient that a hook sets
 * skips its step, which changes nothing, and the run goes on. */
static void skipped_steps(void **state)
{
    (void)state;
    static const char *const lists[] = {"pocl", "pocl/2"};
    for (int i = 0; i < 2; i++) {
        const setting s = {lists[i], CLT_ADAM, CLT_F16, .accumulate = 1 + i};
        lab plain = lab_of(&s), hooked = lab_of(&s), spoilt = lab_of(&s);
        host none = {0}, h = {.factor = 1}, spoils = {.spoil = 3};
        for (int k = 0; k < COUNT * IN; k++)
            xs[k] *= 100; /* gradients that the first scale makes infinite */
        ok(fit(&plain, &none, false));
        ok(fit(&hooked, &h, true));
        assert_true(none.skipped > 0 && none.skipped < STEPS);
        assert_int_equal(h.skipped, none.skipped);
        assert_int_equal(h.seen, STEPS);
        same(&plain, &hooked);

        make_samples(xs, labels, COUNT, IN, CLASSES);
        ok(fit(&spoilt, &spoils, true));
        assert_int_equal(spoils.skipped, 1);
        assert_int_equal(spoils.seen, STEPS);
        assert_memory_equal(spoils.before, spoils.after, sizeof spoils.before);
        lab_close(&plain);
        lab_close(&hooked);
        lab_close(&spoilt);
    }
}

static void stops(void **state)
{
    (void)state;
    const setting s = {"pocl/2", CLT_SGD, CLT_F32, .accumulate = 1};
    lab l = lab_of(&s);
    host h = {.stop = 3};
    assert_int_equal(fit(&l, &h, true), CLT_STOPPED);
    assert_int_equal(clt_trainer_steps(l.trainer), 3);
    assert_int_equal(h.seen, 3);
    lab_close(&l);
}

/* --- ranks -------------------------------------------------------------------------------------
 */

typedef struct ranked {
    host h;
    bool hooks;
    int64_t steps;
    clt_status status;
    float values[4][MOST];
} ranked;

/* Each rank has one device, and takes its part of each batch. */
static void train_rank(rank *self)
{
    ranked *r = self->argument;
    const setting s = {"0", CLT_ADAM, CLT_F32, .accumulate = 2, .world = &self->world};
    const clt_trainer_options o = options_of(&s);
    clt_fit_options fit_options;
    clt_dataset *set = NULL;
    lab l = {0};
    clt_fit_options_init(&fit_options);
    fit_options.steps = STEPS;
    fit_options.user = &r->h;
    if (r->hooks) {
        fit_options.on_step_begin = on_step_begin;
        fit_options.on_gradients = on_gradients;
    }
    if (HOLDS(self, lab_of_rank(&l, clt_test_devices("pocl@1"), classifier(IN, HIDDEN, CLASSES),
                                &o) == CLT_OK) &&
        HOLDS(self, lab_samples(COUNT, IN, xs, labels, 0, &set) == CLT_OK)) {
        r->status = clt_fit(l.trainer, set, NULL, &fit_options);
        r->steps = clt_trainer_steps(l.trainer);
        for (int i = 0; i < 4; i++)
            HOLDS(self, clt_store_get(l.store, names[i], r->values[i],
                                      (size_t)sizes[i] * sizeof(float)) == CLT_OK);
    }
    clt_dataset_free(set);
    lab_close(&l);
}

static void run_two(ranked of[2], bool hooks, double factor, int64_t stop)
{
    rank ranks[2];
    for (int r = 0; r < 2; r++) {
        memset(&of[r], 0, sizeof of[r]);
        of[r].hooks = hooks;
        of[r].h.factor = factor;
    }
    of[1].h.stop = stop; /* only one rank wants to stop */
    make_samples(xs, labels, COUNT, IN, CLASSES);
    run_ranks(ranks, 2, train_rank, of, sizeof *of);
    for (int r = 0; r < 2; r++)
        if (of[r].h.failed != CLT_OK)
            fail_msg("rank %d: %s", r, of[r].h.message);
}

static void on_ranks(void **state)
{
    (void)state;
    static ranked plain[2], hooked[2];
    if (clt_test_oclgrind())
        skip(); /* its devices cannot be used by two threads at once */
    run_two(plain, false, 0, 0);
    run_two(hooked, true, 1, 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(plain[r].status, CLT_OK);
        assert_int_equal(hooked[r].status, CLT_OK);
        assert_int_equal(hooked[r].h.seen, STEPS);
        assert_memory_equal(hooked[r].values, plain[0].values, sizeof plain[0].values);
    }
    run_two(hooked, true, 0, 3);
    for (int r = 0; r < 2; r++)
        assert_int_equal(hooked[r].status, CLT_STOPPED);
    assert_true(hooked[0].steps == hooked[1].steps);
    assert_true(hooked[0].steps >= 3 && hooked[0].steps <= 4);
}

/* --- loops of one's own ------------------------------------------------------------------------
 */

/* clt_trainer_gradients and apply are a step, with micro-batches too. */
static void own_loop(void **state)
{
    (void)state;
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    for (int accumulate = 1; accumulate <= 3; accumulate += 2)
        for (int devices = 1; devices <= 2; devices++) {
            const setting s = {devices == 1 ? "pocl" : "pocl/2", CLT_MOMENTUM, CLT_F32,
                               .accumulate = accumulate};
            lab plain = lab_of(&s), l = lab_of(&s);
            for (int k = 0; k < 3; k++) {
                const clt_step_batch batch = lab_batch(feeds, BATCH - k);
                ok(clt_trainer_step(plain.trainer, &batch, NULL));
                ok(clt_trainer_gradients(l.trainer, &batch)); /* given up by the next one */
                ok(clt_trainer_gradients(l.trainer, &batch));
                ok(clt_trainer_apply(l.trainer, NULL));
            }
            same(&plain, &l);
            assert_int_equal(clt_trainer_apply(l.trainer, NULL), CLT_STATE);
            lab_close(&plain);
            lab_close(&l);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_changes), cmocka_unit_test(changes),  cmocka_unit_test(stops),
        cmocka_unit_test(skipped_steps),   cmocka_unit_test(on_ranks), cmocka_unit_test(own_loop),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
