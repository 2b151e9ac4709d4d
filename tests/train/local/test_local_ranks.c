/*
 * clt_local_fit over two ranks (threads) with two replicas each: the bytes that communicators
 * count, each sample once an epoch whatever the replicas' speed, and failures that all ranks
 * report.
 */
#include "train/world.h"

#include <stdatomic.h>

#include "base/error.h"
#include "exec/testing/slow.h"
#include "train/core/trainer.h"
#include <cltrain/local.h>

enum { RANKS = 2, EACH = 2, REPLICAS = RANKS * EACH, SAMPLES = 203, IN = 12, CLASSES = 4 };
enum { BATCH = 16, COMMS = 16, MOST_SYNCS = 64 };

/* How ranks train, and what one saw. */
typedef struct plan {
    bool synchronous; /* one trainer for all, as dp */
    int64_t every_steps, steps, epochs;
    double every_seconds;
    clt_dtype wire; /* of synchronisations */
    clt_comm *comms[COMMS];
    int n_comms;
    int64_t reduced, parameters, results; /* bytes; results: of a step's losses and metrics */
    int64_t samples[REPLICAS], syncs, sync_bytes;
} plan;

static plan plans[RANKS];
static float xs[SAMPLES * IN];
static int32_t labels[SAMPLES];
static atomic_int seen[SAMPLES];
static atomic_int_fast64_t fails_at = -1;

static clt_status fill(void *user, const int64_t *indices, int64_t count, void *const *fields)
{
    for (int64_t i = 0; i < count; i++) {
        if (indices[i] == atomic_load(&fails_at) && *(const int *)user == 1)
            return clt_error_set(CLT_IO, "this sample cannot be read");
        if (fields[0])
            memcpy((float *)fields[0] + i * IN, xs + indices[i] * IN, IN * sizeof *xs);
        if (fields[1])
            ((int32_t *)fields[1])[i] = labels[indices[i]];
        atomic_fetch_add(&seen[indices[i]], 1);
    }
    return CLT_OK;
}

/* Samples in memory: each rank counts the labels of whole batches, so ranks need not exchange the
 * weights of losses before a step. */
static clt_status open_arrays(clt_dataset **set)
{
    return lab_samples(SAMPLES, IN, xs, labels, CLASSES, set);
}

static clt_status open_counted(int *number, clt_dataset **set)
{
    const int64_t shape[] = {IN};
    int label;
    CLT_TRY(clt_dataset_create_callback("made up", SAMPLES, fill, number, 0, set));
    CLT_TRY(clt_dataset_add_field(*set, "x", CLT_F32, 1, shape, NULL, CLT_DATA_BORROW, NULL));
    return clt_dataset_add_field(*set, "label", CLT_I32, 0, NULL, NULL, CLT_DATA_BORROW, &label);
}

static clt_status connect_and_keep(void *user, int color, const clt_comm_device *devices, int count,
                                   const clt_comm_options *options, clt_comm **comm)
{
    plan *own = ((rank *)user)->argument;
    const clt_status status = rank_connect(user, color, devices, count, options, comm);
    if (status == CLT_OK && *comm && own->n_comms < COMMS)
        own->comms[own->n_comms++] = *comm;
    return status;
}

/* Returns the bytes of all all-reduces between the ranks. */
static int64_t reduced(const plan *own)
{
    int64_t bytes = 0;
    for (int i = 0; i < own->n_comms; i++) {
        clt_comm_count c;
        clt_comm_count_init(&c);
        if (clt_comm_counts(own->comms[i], CLT_COMM_ALL_REDUCE, CLT_COMM_SHARED_MEMORY, &c) ==
            CLT_OK)
            bytes += c.payload;
    }
    return bytes;
}

static void on_step(void *user, const clt_progress *step)
{
    plan *own = user;
    for (int r = 0; step->sync && r < step->sync->replicas; r++)
        own->samples[r] += step->sync->samples[r];
    own->syncs += step->sync != NULL;
}

typedef struct team {
    lab l;
    clt_store *stores[EACH];
    clt_trainer *trainers[EACH];
    int n;
    clt_local *local;
} team;

static clt_status open_team(rank *self, team *t)
{
    plan *own = self->argument;
    clt_store_options so;
    clt_trainer_options o;
    clt_local_options options;
    clt_store_options_init(&so);
    clt_trainer_options_init(&o);
    clt_local_options_init(&options);
    so.bucket_bytes = 512;
    o.comm_timeout = options.comm_timeout = 60;
    t->l.graph = classifier(IN, 8, CLASSES);
    CLT_TRY(clt_devices_open(runtime, "pocl@1,pocl@1", NULL, &t->l.devices, &t->l.n));
    t->n = own->synchronous ? 1 : EACH;
    for (int i = 0; i < t->n; i++) {
        o.batch = own->synchronous ? BATCH : BATCH / REPLICAS;
        o.world = own->synchronous ? &self->world : NULL;
        so.seed = (uint64_t)(7 * self->number + i); /* replica 0's parameters become all's */
        if (own->synchronous)
            so.seed = 0;
        CLT_TRY(clt_store_create_with(t->l.graph, t->l.devices + i, own->synchronous ? EACH : 1,
                                      &so, &t->stores[i]));
        CLT_TRY(clt_trainer_create(t->l.graph, t->stores[i], &o, &t->trainers[i]));
    }
    for (int b = 0; b < t->stores[0]->layout.n_buckets; b++)
        own->parameters += t->stores[0]->layout.buckets[b].bytes;
    const clt_session *training = t->trainers[0]->training;
    own->results = training->max_micro_batches * training->n_means * 2 * (int64_t)sizeof(float);
    if (own->synchronous)
        return CLT_OK;
    options.world = &self->world;
    options.every_steps = own->every_steps;
    options.every_seconds = own->every_seconds;
    options.wire = own->wire;
    return clt_local_create(t->trainers, t->n, &options, &t->local);
}

static void close_team(team *t)
{
    clt_local_destroy(t->local);
    for (int i = 0; i < t->n; i++) {
        clt_trainer_destroy(t->trainers[i]);
        clt_store_destroy(t->stores[i]);
    }
    lab_close(&t->l);
}

/* A rank fits; the caller looks at the status. */
static void fit(rank *self)
{
    plan *own = self->argument;
    clt_dataset *data = NULL;
    clt_fit_options o;
    team t = {.n = 0};
    self->world.connect = connect_and_keep;
    clt_fit_options_init(&o);
    o.batch = BATCH;
    o.steps = own->steps;
    o.epochs = own->epochs;
    o.on_step = on_step;
    o.user = own;
    if (HOLDS(self, open_team(self, &t) == CLT_OK) &&
        HOLDS(self, (own->synchronous ? open_arrays(&data) : open_counted(&self->number, &data)) ==
                        CLT_OK)) {
        own->reduced = -reduced(own);
        self->status = own->synchronous ? clt_fit(t.trainers[0], data, NULL, &o)
                                        : clt_local_fit(t.local, data, NULL, &o);
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
        own->reduced += reduced(own);
        own->sync_bytes = own->synchronous ? 0 : clt_local_sync_bytes(t.local);
        if (self->status == CLT_OK)
            HOLDS(self, (own->synchronous ? clt_trainer_finish(t.trainers[0])
                                          : clt_local_finish(t.local)) == CLT_OK);
    }
    close_team(&t);
    clt_dataset_free(data);
}

static void run(rank *ranks, plan p)
{
    for (int r = 0; r < RANKS; r++)
        plans[r] = p;
    for (int i = 0; i < SAMPLES; i++)
        atomic_store(&seen[i], 0);
    run_ranks(ranks, RANKS, fit, plans, sizeof *plans);
}

/* 16 steps, synchronised every 8: an eighth of the bytes of parameters that 16 steps of dp reduce.
 * These also reduce the sums and weights of losses and metrics. The first step of dp compares
 * checksums, so runs of 4 and 20 steps are compared. */
static void an_eighth_of_the_bytes_is_reduced(void **state)
{
    rank ranks[RANKS];
    int64_t dp[RANKS];
    (void)state;
    run(ranks, (plan){.synchronous = true, .steps = 4});
    for (int r = 0; r < RANKS; r++)
        dp[r] = -plans[r].reduced;
    run(ranks, (plan){.synchronous = true, .steps = 20});
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, CLT_OK);
        dp[r] += plans[r].reduced - 16 * plans[r].results;
        assert_int_equal(dp[r], 16 * plans[r].parameters);
    }
    run(ranks, (plan){.every_steps = 8, .steps = 16});
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, CLT_OK);
        assert_int_equal(8 * plans[r].reduced, dp[r]);
        assert_int_equal(2 * plans[r].sync_bytes, plans[r].reduced);
        assert_int_equal(plans[r].syncs, 2);
        /* The last batch of the epoch has 11 samples, which four replicas share as 3, 3, 3 and 2.
         */
        for (int k = 0; k < REPLICAS; k++)
            assert_int_equal(plans[r].samples[k], 15 * BATCH / REPLICAS + (k == 3 ? 2 : 3));
    }
}

/* In 16 bits, exactly half of the bytes that f32 takes. */
static void half_of_the_bytes_is_reduced(void **state)
{
    static const clt_dtype wires[] = {CLT_F32, CLT_BF16, CLT_F16};
    int64_t bytes[3];
    rank ranks[RANKS];
    (void)state;
    for (int i = 0; i < 3; i++) {
        run(ranks, (plan){.every_steps = 4, .steps = 12, .wire = wires[i]});
        assert_int_equal(ranks[0].status, CLT_OK);
        bytes[i] = plans[0].reduced;
        assert_int_equal(plans[1].reduced, bytes[i]);
        assert_int_equal(3 * plans[0].sync_bytes, bytes[i]);
    }
    assert_int_equal(bytes[0], 3 * plans[0].parameters);
    assert_int_equal(2 * bytes[1], bytes[0]);
    assert_int_equal(2 * bytes[2], bytes[0]);
}

/* The first device is three times slower. Each sample is read once an epoch. */
static void each_sample_is_used_once_at_any_speed(void **state)
{
    enum { EPOCHS = 3 };
    rank ranks[RANKS];
    int64_t all = 0;
    (void)state;
#ifdef CLT_TESTING
    clt_exec_testing_slow = "#0=3";
#endif
    run(ranks, (plan){.every_seconds = 0.02, .epochs = EPOCHS});
#ifdef CLT_TESTING
    clt_exec_testing_slow = NULL;
#endif
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(ranks[r].status, CLT_OK);
    for (int i = 0; i < REPLICAS; i++) {
        assert_int_equal(plans[0].samples[i], plans[1].samples[i]);
        all += plans[0].samples[i];
    }
    assert_int_equal(all, EPOCHS * SAMPLES);
    for (int i = 0; i < SAMPLES; i++)
        if (atomic_load(&seen[i]) != EPOCHS)
            fail_msg("sample %d was read %d times", i, atomic_load(&seen[i]));
}

/* The other rank names the failure, too. */
static void a_failing_replica_ends_all(void **state)
{
    const plan by[] = {{.every_steps = 4, .steps = 40}, {.every_seconds = 0.02, .epochs = 2}};
    rank ranks[RANKS];
    (void)state;
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        /* By time a sample may be read by either rank, so every one of them fails on rank 1. */
        for (int64_t sample = 0; sample < SAMPLES; sample++) {
            atomic_store(&fails_at, sample);
            run(ranks, by[i]);
            if (ranks[1].status != CLT_OK)
                break;
        }
        atomic_store(&fails_at, -1);
        assert_int_equal(ranks[1].status, CLT_IO);
        assert_non_null(strstr(ranks[1].message, "this sample cannot be read"));
        assert_int_equal(ranks[0].status, CLT_ABORTED);
        assert_non_null(strstr(ranks[0].message, "rank 1 failed: replica "));
        assert_non_null(strstr(ranks[0].message, "this sample cannot be read"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_eighth_of_the_bytes_is_reduced),
        cmocka_unit_test(half_of_the_bytes_is_reduced),
        cmocka_unit_test(each_sample_is_used_once_at_any_speed),
        cmocka_unit_test(a_failing_replica_ends_all),
    };
    make_samples(xs, labels, SAMPLES, IN, CLASSES);
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
