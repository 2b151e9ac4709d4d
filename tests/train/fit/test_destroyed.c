/*
 * Callbacks of a run that destroy what the run uses: the run goes on to its end with the numbers of
 * an untouched run, and then everything is freed. AddressSanitizer tells whether memory is used too
 * late, or never freed.
 */
#include "train/world.h"

enum { IN = 6, HIDDEN = 10, CLASSES = 3, COUNT = 50, BATCH = 16 };

typedef enum { NOTHING, ON_STEP, ON_EPOCH, ON_BEGIN, ON_GRADIENTS, SHOULD_STOP } place;

typedef struct host {
    clt_trainer *trainer;
    clt_dataset *sets[3]; /* training, test and validation */
    clt_local *local;
    place when;
    int times, epochs;
    double loss;
} host;

static float xs[COUNT * IN];
static int32_t labels[COUNT];

/* Destroys everything that the run uses, each time again. */
static void destroy(host *h, place where)
{
    if (h->when != where)
        return;
    h->times++;
    clt_local_destroy(h->local);
    clt_trainer_destroy(h->trainer);
    for (int i = 0; i < 3; i++)
        clt_dataset_free(h->sets[i]);
}

static void on_step(void *user, const clt_progress *p)
{
    (void)p;
    destroy(user, ON_STEP);
}

static void on_epoch(void *user, const clt_progress *p)
{
    host *h = user;
    h->epochs++;
    h->loss = p->loss + p->test_loss;
    destroy(h, ON_EPOCH);
}

static int on_step_begin(void *user, clt_trainer *t, const clt_progress *p)
{
    (void)t, (void)p;
    destroy(user, ON_BEGIN);
    return 0;
}

static int on_gradients(void *user, clt_trainer *t, const clt_progress *p)
{
    (void)t, (void)p;
    destroy(user, ON_GRADIENTS);
    return 0;
}

static int should_stop(void *user)
{
    destroy(user, SHOULD_STOP);
    return 0;
}

static lab make(host *h)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.lr = 0.25;
    o.batch = BATCH;
    make_samples(xs, labels, COUNT, IN, CLASSES);
    lab l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, classifier(IN, HIDDEN, CLASSES), 3);
    lab_trainer(&l, &o);
    h->trainer = l.trainer;
    for (int i = 0; i < 3; i++)
        ok(lab_samples(COUNT, IN, xs, labels, 0, &h->sets[i]));
    return l;
}

static clt_fit_options options_of(host *h)
{
    clt_fit_options o;
    clt_fit_options_init(&o);
    o.epochs = 3;
    o.user = h;
    o.on_step = on_step;
    o.on_epoch = on_epoch;
    return o;
}

static double fit(place when)
{
    host h = {.when = when};
    lab l = make(&h);
    clt_fit_options o = options_of(&h);
    o.validation = h.sets[2];
    o.should_stop = should_stop;
    if (when == ON_BEGIN || when == ON_GRADIENTS) {
        o.on_step_begin = on_step_begin;
        o.on_gradients = on_gradients;
    }
    ok(clt_fit(h.trainer, h.sets[0], h.sets[1], &o));
    assert_int_equal(h.epochs, 3);
    if (when == NOTHING) {
        clt_trainer_destroy(h.trainer);
        for (int i = 0; i < 3; i++)
            clt_dataset_free(h.sets[i]);
    } else {
        assert_true(h.times >= 3);
    }
    l.trainer = NULL;
    lab_close(&l);
    return h.loss;
}

static void runs(void **state)
{
    (void)state;
    const double untouched = fit(NOTHING);
    for (place when = ON_STEP; when <= SHOULD_STOP; when++)
        assert_true(fit(when) == untouched);
}

/* The whole of a part is freed after the part. */
static void parts(void **state)
{
    (void)state;
    host h = {.when = ON_EPOCH};
    lab l = make(&h);
    clt_dataset *whole = h.sets[0], *rest, *held;
    ok(clt_dataset_split(whole, 0.2, 1, &rest, &held));
    clt_dataset_free(h.sets[1]);
    h.sets[0] = rest;
    h.sets[1] = held;
    clt_dataset_free(h.sets[2]);
    h.sets[2] = whole;
    clt_fit_options o = options_of(&h);
    ok(clt_fit(h.trainer, rest, held, &o));
    assert_int_equal(h.epochs, 3);
    l.trainer = NULL;
    lab_close(&l);
}

/* Replicas that are synchronised. A failed run frees likewise, and keeps its message. */
static void replicas(void **state)
{
    (void)state;
    host h = {.when = ON_STEP};
    lab l = make(&h);
    clt_local_options local;
    clt_local_options_init(&local);
    local.every_steps = 2;
    clt_dataset_free(h.sets[2]);
    h.sets[2] = NULL;
    ok(clt_local_create(&h.trainer, 1, &local, &h.local));
    const clt_fit_options o = options_of(&h);
    ok(clt_local_fit(h.local, h.sets[0], h.sets[1], &o));
    assert_int_equal(h.epochs, 3);
    l.trainer = NULL;
    lab_close(&l);
}

static clt_status fails(void *user, const int64_t *indices, int64_t count, void *const *fields)
{
    (void)indices, (void)count, (void)fields;
    destroy(user, ON_STEP);
    return clt_error_set(CLT_IO, "the disk is gone");
}

static void failures(void **state)
{
    (void)state;
    host h = {.when = ON_STEP};
    lab l = make(&h);
    const int64_t width = IN;
    for (int i = 0; i < 3; i++) {
        clt_dataset_free(h.sets[i]);
        h.sets[i] = NULL;
    }
    ok(clt_dataset_create_callback("gone", COUNT, fails, &h, 1, &h.sets[0]));
    ok(clt_dataset_add_field(h.sets[0], "x", CLT_F32, 1, &width, NULL, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(h.sets[0], "label", CLT_I32, 0, NULL, NULL, CLT_DATA_BORROW, NULL));
    const clt_fit_options o = options_of(&h);
    assert_int_equal(clt_fit(h.trainer, h.sets[0], NULL, &o), CLT_IO);
    assert_non_null(strstr(clt_error_message(), "the disk is gone"));
    assert_true(h.times > 0);
    l.trainer = NULL;
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs), cmocka_unit_test(parts),
                                       cmocka_unit_test(replicas), cmocka_unit_test(failures)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
