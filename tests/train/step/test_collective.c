/* Collectives of the graph in steps of several devices. */
#include "base/alloc.h"
#include "device/core/cl.h"
#include "exec/testing/lose.h"
#include "support/objects.h"
#include "train/normalised.h"
#include "train/core/trainer.h"
#include <cltrain/fit.h>
#include <cltrain/unstable.h>

static clt_trainer_options default_options(void)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_MOMENTUM;
    options.batch = NET_MOST;
    options.poison = 1;
    options.comm_timeout = 120;
    return options;
}

static lab open_on(const char *list, int share_context, const clt_trainer_options *options)
{
    clt_device_options device_options;
    clt_device_options_init(&device_options);
    device_options.share_context = share_context;
    lab l = lab_on(clt_test_devices(list), &device_options);
    lab_store(&l, net_graph(), 5);
    lab_trainer(&l, options);
    return l;
}

static void read_parameters(const lab *l, double *p)
{
    float values[NET_PARAMETERS];
    ok(net_read(l->store, values));
    for (int i = 0; i < NET_PARAMETERS; i++)
        p[i] = values[i];
}

/* --- gradients ------------------------------------------------------------------------------- */

/* Finds the micro-batch of each sample. The k-th micro-batches of all devices are normalised
 * together. */
static void find_groups(const lab *l, int *group)
{
    const clt_trainer *t = l->trainer;
    for (int d = 0; d < l->n; d++) {
        const clt_share share = clt_shares_device(&t->shares, d);
        for (int m = 0; m < share.micro_batches; m++)
            for (int64_t i = clt_share_begin(&share, m); i < clt_share_begin(&share, m + 1); i++)
                group[share.begin + i] = m;
    }
}

/* Reads both states, which are means over samples for every division. */
static void read_states(const lab *l, float *running, float *own)
{
    ok(clt_store_get(l->store, "running", running, NET_WIDE * sizeof *running));
    ok(clt_store_get(l->store, "own", own, NET_WIDE * sizeof *own));
}

static void check_states(const lab *l, const double *p, int count, const float *running,
                         const float *own)
{
    double mean[NET_WIDE];
    float now[NET_WIDE], own_now[NET_WIDE];
    net_mean(p, count, mean);
    read_states(l, now, own_now);
    for (int j = 0; j < NET_WIDE; j++) {
        const double want = count ? 0.75 * (double)running[j] + 0.25 * mean[j] : (double)running[j];
        const double want_own = count ? 0.75 * (double)own[j] + 0.25 * mean[j] : (double)own[j];
        if (!(fabs((double)now[j] - want) < 1e-6) || !(fabs((double)own_now[j] - want_own) < 1e-6))
            fail_msg("batch %d: states %g and %g, not %g and %g", count, (double)now[j],
                     (double)own_now[j], want, want_own);
    }
}

static void check_step(lab *l, int64_t count, const int64_t *offsets, int devices_alike)
{
    float running[NET_WIDE], own[NET_WIDE];
    read_states(l, running, own);
    double p[NET_PARAMETERS], want[NET_PARAMETERS], error;
    int group[NET_MOST];
    read_parameters(l, p);
    const clt_step_batch batch = net_batch(count, offsets);
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    clt_step_result result;
    clt_step_result_init(&result);
    ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
    find_groups(l, group);
    const double loss = net_loss(p, group, (int)count, NULL);
    if (!(fabs(result.loss - loss) <= 1e-6 * (1 + loss)))
        fail_msg("batch %lld: loss %.9g, not %.9g", (long long)count, result.loss, loss);
    net_gradient(p, group, (int)count, want);
    for (int d = 0; d < (devices_alike ? l->n : 1); d++) {
        ok(net_error(l->trainer, d, want, &error));
        if (!(error <= 2e-6))
            fail_msg("batch %lld, device %d: the gradient is off by %.3g", (long long)count, d,
                     error);
    }
    check_states(l, p, (int)count, running, own);
    ok(clt_store_check(l->store));
}

static bool alike(const lab *l)
{
    return !l->trainer->sharded;
}

/* Batches of every size, including fewer samples than devices, and divisions that leave devices
 * without samples. */
static void gradients_are_those_of_the_whole_batch(void **state)
{
    static const int64_t counts[] = {NET_MOST, 23, 17, 3, 2, 1, 0, 5, NET_MOST};
    (void)state;
    for (int accumulate = 1; accumulate <= 3; accumulate++)
        for (int separate = 0; separate < 2; separate++) {
            clt_trainer_options options = default_options();
            options.accumulate = accumulate;
            options.separate = options.rebalance = separate;
            options.batch = 2 * NET_MOST;
            lab l = open_on("pocl/2", 0, &options);
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                const int64_t n = counts[i];
                check_step(&l, n, NULL, alike(&l));
                if (l.n != 2)
                    continue;
                const int64_t divisions[][3] = {{0, 0, n}, {0, n, n}, {0, n / 5, n}};
                for (int k = 0; k < 3; k++)
                    check_step(&l, n, divisions[k], alike(&l));
            }
            lab_close(&l);
        }
}

/* --- the contract ---------------------------------------------------------------------------- */

static void nothing_is_made_in_steps(void **state)
{
    (void)state;
    for (int accumulate = 1; accumulate < 3; accumulate++) {
        clt_trainer_options options = default_options();
        options.accumulate = accumulate;
        lab l = open_on("pocl/2", 0, &options);
        const int exchanges = accumulate * l.trainer->training->devices[0].plan->n_collectives;
        const int64_t limit = (3 * (2 + exchanges) + 4) * (int64_t)l.n;
        const clt_step_batch batch = net_batch(NET_MOST, NULL);
        for (int s = 0; s < 10; s++) {
            const int64_t objects = clt_device_object_count(CLT_OBJECT_KINDS);
            const int64_t events = clt_device_object_count(CLT_OBJECT_EVENT);
            const int64_t allocations = clt_alloc_count(), made = objects_made();
            ok(clt_trainer_step(l.trainer, &batch, NULL));
            const int64_t new_events = clt_device_object_count(CLT_OBJECT_EVENT) - events;
            if (s < 2)
                continue;
            assert_int_equal(clt_device_object_count(CLT_OBJECT_KINDS) - objects, new_events);
            assert_int_equal(objects_made(), made);
            assert_int_equal(clt_alloc_count(), allocations);
            assert_true(new_events <= limit);
        }
        lab_close(&l);
        assert_int_equal(objects_live(), 0);
    }
}

enum { STATES = 2 * NET_WIDE };

static void train(const clt_trainer_options *options, int share_context, int steps, float *values)
{
    lab l = open_on("pocl/2", share_context, options);
    for (int s = 0; s < steps; s++) {
        const clt_step_batch batch = net_batch(NET_MOST - s * 5 % NET_MOST, NULL);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
    }
    ok(clt_store_check(l.store));
    ok(net_read(l.store, values));
    read_states(&l, values + NET_PARAMETERS, values + NET_PARAMETERS + NET_WIDE);
    lab_close(&l);
}

/* Also if updates begin right after the reduction of their bucket, and if both devices share a
 * context. */
static void runs_repeat(void **state)
{
    float first[NET_PARAMETERS + STATES], again[NET_PARAMETERS + STATES];
    clt_trainer_options options = default_options();
    (void)state;
    for (int accumulate = 1; accumulate < 3; accumulate++) {
        options.accumulate = accumulate;
        options.guard = 1;
        train(&options, 0, 9, first);
        for (int share = 0; share < 2; share++) {
            options.guard = !share;
            train(&options, share, 9, again);
            assert_memory_equal(first, again, sizeof first);
        }
    }
}

static void a_resumed_run_repeats(void **state)
{
    char folder[] = "collective-XXXXXX", command[64];
    float want[NET_PARAMETERS + STATES], have[NET_PARAMETERS + STATES];
    clt_trainer_options options = default_options();
    const clt_step_batch batch = net_batch(NET_MOST - 1, NULL);
    clt_position position = {0, 0};
    int64_t seed;
    (void)state;
    assert_non_null(mkdtemp(folder));
    lab l = open_on("pocl/2", 0, &options);
    for (int s = 0; s < 6; s++) {
        if (s == 3)
            ok(clt_trainer_save(l.trainer, folder, position, NET_MOST, 1, 1, "test"));
        ok(clt_trainer_step(l.trainer, &batch, NULL));
    }
    ok(net_read(l.store, want));
    read_states(&l, want + NET_PARAMETERS, want + NET_PARAMETERS + NET_WIDE);
    lab_close(&l);
    l = open_on("pocl/2", 0, &options);
    ok(clt_trainer_restore(l.trainer, folder, &position, &seed));
    assert_int_equal(clt_trainer_steps(l.trainer), 3);
    for (int s = 3; s < 6; s++)
        ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(net_read(l.store, have));
    read_states(&l, have + NET_PARAMETERS, have + NET_PARAMETERS + NET_WIDE);
    lab_close(&l);
    assert_memory_equal(want, have, sizeof want);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* --- evaluation and prediction ---------------------------------------------------------------- */

static void evaluation_and_prediction_take_part(void **state)
{
    static const int64_t counts[] = {NET_MOST, 7, 1};
    clt_trainer_options options = default_options();
    (void)state;
    lab l = open_on("pocl/2", 0, &options);
    double p[NET_PARAMETERS], want[NET_MOST][NET_CLASSES];
    read_parameters(&l, p);
    for (int i = 0; i < 3; i++) {
        const int n = (int)counts[i];
        float have[NET_MOST][NET_CLASSES];
        const clt_fetch fetch = {"logits", -1, CLT_HOST(have)};
        double sums[2] = {0}, weights[2] = {0};
        clt_step_batch batch = net_batch(n, NULL);
        const double loss = net_loss(p, NULL, n, want);
        ok(clt_trainer_evaluate(l.trainer, &batch, sums, weights));
        assert_true(weights[0] == n && fabs(sums[0] / n - loss) < 1e-5);
        batch.fetches = &fetch;
        batch.n_fetches = 1;
        batch.n_feeds = 1; /* no labels */
        ok(clt_trainer_predict(l.trainer, &batch, NULL));
        ok(clt_trainer_wait(l.trainer));
        for (int k = 0; k < n; k++)
            for (int c = 0; c < NET_CLASSES; c++)
                assert_true(fabs((double)have[k][c] - want[k][c]) < 1e-5);
    }
    lab_close(&l);
}

static void plans_and_profiles_name_it(void **state)
{
    clt_trainer_options options = default_options();
    clt_device_options device_options;
    clt_step_batch batch = net_batch(NET_MOST, NULL);
    const double weight = NET_MOST; /* set, so forward need not run first by itself */
    batch.loss_weights = &weight;
    const clt_profile_record *records;
    clt_profile *profile;
    char *text;
    int count, forward = 0, backward = 0, means = 0;
    (void)state;
    clt_device_options_init(&device_options);
    device_options.profiling = 1;
    lab l = lab_on(clt_test_devices("pocl/2"), &device_options);
    lab_store(&l, net_graph(), 5);
    ok(clt_trainer_plan(l.graph, l.store, &options, 1, &text));
    assert_int_equal(strstr(text, "then all-reduce statistics,") != NULL, l.n > 1);
    assert_int_equal(strstr(text, "then all-reduce statistics.all_reduce,") != NULL, l.n > 1);
    free(text);
    lab_trainer(&l, &options);
    ok(clt_profile_start(l.trainer, &profile));
    for (int s = 0; s < 3; s++)
        ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_profile_read(profile, &records, &count));
    for (int i = 0; i < count; i++) {
        const clt_profile_record *r = &records[i];
        if (strcmp(r->name, "reduction"))
            continue;
        assert_true(r->end >= r->start && r->bytes > 0);
        means += strstr(r->node, "means of states") != NULL;
        if (strncmp(r->node, "statistics", 10))
            continue;
        assert_string_equal(r->op, "all_reduce");
        assert_int_equal(r->backward, strstr(r->node, ".all_reduce") != NULL);
        *(r->backward ? &backward : &forward) += 1;
    }
    const int want = l.n > 1 ? 3 * l.n : 0;
    assert_int_equal(forward, want);
    assert_int_equal(backward, want);
    assert_int_equal(means, want);
    clt_profile_stop(profile);
    lab_close(&l);
}

/* --- failures -------------------------------------------------------------------------------- */

/* The values may be in the samples of any device. The other devices check their own parts and find
 * nothing. */
static void what_is_not_finite_is_named(void **state)
{
    static const int samples[] = {0, NET_MOST - 1};
    clt_trainer_options options = default_options();
    (void)state;
    for (int i = 0; i < 2; i++) {
        lab l = open_on("pocl/2", 0, &options);
        const clt_step_batch batch = net_batch(NET_MOST, NULL);
        float *x = &net_xs[samples[i] * NET_IN];
        const float kept = *x;
        clt_step_result result;
        clt_step_result_init(&result);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_wait(l.trainer));
        *x = NAN;
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_wait(l.trainer));
        *x = kept;
        assert_int_equal(clt_trainer_result(l.trainer, 1, &result), CLT_NONFINITE);
        if (!strstr(clt_error_message(), "step 2: input x is not finite"))
            fail_msg("%s", clt_error_message());
        lab_close(&l);
    }
}

#ifdef CLT_TESTING
/* The device fails before, between or after the collectives of step 3. The step is repeated, and
 * the run ends like that of one device. */
static void a_lost_device_is_left_behind(void **state)
{
    const clt_step_batch batch = net_batch(NET_MOST - 1, NULL);
    clt_trainer_options options = default_options();
    float want[NET_PARAMETERS], have[NET_PARAMETERS], running[NET_WIDE], own[NET_WIDE];
    float want_running[NET_WIDE], want_own[NET_WIDE];
    (void)state;
    lab l = lab_on("cpu@1", NULL);
    lab_store(&l, net_graph(), 5);
    lab_trainer(&l, &options);
    for (int s = 0; s < 5; s++)
        ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(net_read(l.store, want));
    read_states(&l, want_running, want_own);
    lab_close(&l);
    l = lab_on("cpu/2", NULL);
    lab_store(&l, net_graph(), 5);
    lab_trainer(&l, &options);
    const clt_plan *plan = l.trainer->training->devices[0].plan;
    const int nodes[] = {0, plan->collectives[0].needed, plan->n_forward,
                         plan->collectives[plan->n_collectives - 1].needed};
    lab_close(&l);
    for (int i = 0; i < 8; i++) {
        char lose[32];
        int redo = -1;
        snprintf(lose, sizeof lose, "#%d=2:%d", i / 4, nodes[i % 4]);
        l = lab_on("cpu/2", NULL);
        lab_store(&l, net_graph(), 5);
        clt_exec_testing_lose = lose;
        lab_trainer(&l, &options);
        for (int s = 0; s < 5; s++) {
            if (s != 2) {
                ok(clt_trainer_step(l.trainer, &batch, NULL));
                continue;
            }
            assert_int_equal(clt_trainer_step(l.trainer, &batch, NULL), CLT_DEVICE_LOST);
            clt_exec_testing_lose = NULL;
            ok(clt_trainer_recover(l.trainer, &redo));
            assert_int_equal(redo, 1);
            ok(clt_trainer_step(l.trainer, &batch, NULL));
        }
        ok(net_read(l.store, have));
        read_states(&l, running, own);
        for (int k = 0; k < NET_PARAMETERS; k++)
            assert_true(fabsf(have[k] - want[k]) < 1e-4f);
        for (int k = 0; k < NET_WIDE; k++)
            assert_true(fabsf(running[k] - want_running[k]) < 1e-5f &&
                        fabsf(own[k] - want_own[k]) < 1e-5f);
        lab_close(&l);
    }
}
#endif

static int set_up(void **state)
{
    net_make_samples();
    return open_runtime(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_the_whole_batch),
        cmocka_unit_test(nothing_is_made_in_steps),
        cmocka_unit_test(runs_repeat),
        cmocka_unit_test(a_resumed_run_repeats),
        cmocka_unit_test(evaluation_and_prediction_take_part),
        cmocka_unit_test(plans_and_profiles_name_it),
        cmocka_unit_test(what_is_not_finite_is_named),
#ifdef CLT_TESTING
        cmocka_unit_test(a_lost_device_is_left_behind),
#endif
    };
    return cmocka_run_group_tests(tests, set_up, close_runtime);
}
