/* clt_local_fit in one process: which batches replicas of two devices take, and losses that are not
 * finite. */
#include "train/world.h"

#include <math.h>

#include <cltrain/local.h>

enum { REPLICAS = 2, EACH = 2, SAMPLES = 60, IN = 12, CLASSES = 4 };

static float xs[SAMPLES * IN];
static int32_t labels[SAMPLES];

/* What a run reported. */
typedef struct reported {
    int64_t syncs, samples, largest; /* largest: samples of one synchronisation */
    int64_t finite;                  /* samples of replicas whose loss was finite */
    double loss, epoch_loss;         /* loss: the sum over these */
    int epochs;
} reported;

static void on_step(void *user, const clt_progress *step)
{
    reported *r = user;
    r->syncs++;
    r->samples += step->samples;
    r->largest = step->samples > r->largest ? step->samples : r->largest;
    for (int i = 0; i < step->sync->replicas; i++)
        if (isfinite(step->sync->losses[i])) {
            r->loss += step->sync->losses[i] * (double)step->sync->samples[i];
            r->finite += step->sync->samples[i];
        }
}

static void on_epoch(void *user, const clt_progress *epoch)
{
    reported *r = user;
    r->epoch_loss = epoch->loss;
    r->epochs++;
}

/* Trains an epoch, synchronised after every step. */
static clt_status fit(int64_t trainer_batch, int64_t batch, clt_dtype precision, reported *r)
{
    clt_store *stores[REPLICAS];
    clt_trainer *trainers[REPLICAS];
    clt_local *local;
    clt_dataset *data;
    clt_trainer_options o;
    clt_local_options options;
    clt_fit_options f;
    lab l = {.graph = classifier(IN, 8, CLASSES)};
    clt_trainer_options_init(&o);
    clt_local_options_init(&options);
    clt_fit_options_init(&f);
    ok(clt_devices_open(runtime, "pocl@1,pocl@1,pocl@1,pocl@1", NULL, &l.devices, &l.n));
    o.batch = trainer_batch;
    o.precision = precision;
    for (int i = 0; i < REPLICAS; i++) {
        ok(clt_store_create(l.graph, l.devices + i * EACH, EACH, 1, &stores[i]));
        ok(clt_trainer_create(l.graph, stores[i], &o, &trainers[i]));
    }
    ok(clt_local_create(trainers, REPLICAS, &options, &local));
    ok(lab_samples(SAMPLES, IN, xs, labels, CLASSES, &data));
    *r = (reported){.syncs = 0};
    f.batch = batch;
    f.epochs = 1;
    f.on_step = on_step;
    f.on_epoch = on_epoch;
    f.user = r;
    const clt_status status = clt_local_fit(local, data, NULL, &f);
    clt_dataset_free(data);
    clt_local_destroy(local);
    for (int i = 0; i < REPLICAS; i++) {
        clt_trainer_destroy(trainers[i]);
        clt_store_destroy(stores[i]);
    }
    lab_close(&l);
    return status;
}

/* Trainers for odd batches on two devices: by default all devices have equally many samples. A
 * batch of one sample more still fits, since the first device takes the sample. */
static void trainers_take_the_batches_they_were_made_for(void **state)
{
    reported r;
    (void)state;
    ok(fit(5, 0, CLT_F32, &r));
    assert_int_equal(r.largest, 8);
    assert_int_equal(r.samples, SAMPLES);
    ok(fit(5, 9, CLT_F32, &r));
    assert_int_equal(r.largest, 9);
    assert_int_equal(fit(5, 10, CLT_F32, &r), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(),
                           "batch 10; the trainers of the 2 replicas were made for 1 to 9"));
    ok(fit(6, 0, CLT_F32, &r));
    assert_int_equal(r.largest, 12);
}

/* A step of one replica is not finite, and in 16 bits it is skipped. Means are over all other
 * samples. */
static void a_loss_that_is_not_finite_is_left_out(void **state)
{
    reported r;
    const float before = xs[0];
    (void)state;
    xs[0] = NAN;
    ok(fit(4, 8, CLT_F16, &r));
    xs[0] = before;
    assert_int_equal(r.samples, SAMPLES);
    assert_true(r.finite < SAMPLES && r.finite >= SAMPLES - 4);
    assert_int_equal(r.epochs, 1);
    assert_true(fabs(r.epoch_loss - r.loss / (double)r.finite) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trainers_take_the_batches_they_were_made_for),
        cmocka_unit_test(a_loss_that_is_not_finite_is_left_out),
    };
    make_samples(xs, labels, SAMPLES, IN, CLASSES);
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
