/*
 * Stores with offload: the last device is a CPU without samples that keeps the optimizer's state
 * and updates. Parameters and slots have the bits of a run without it.
 */
#include "train/normalised.h"
#include "train/sharded_state.h"

#include "train/lab_scratch.h"
#include "train/fit/predictor.h"
#include "train/setup/capacity.h"
#include <cltrain/fit.h>

typedef struct setting {
    const char *plain, *devices; /* without offload, and with: the owners are the last ones */
    int owners;
    clt_optimizer optimizer;
    clt_dtype precision;
    int64_t bucket_bytes;
    int accumulate;
    double clip;
    bool streams, frozen;
} setting;

static clt_trainer_options options_of(const setting *s)
{
    clt_trainer_options o = usual_options(s->optimizer, s->precision, s->accumulate);
    o.clip_norm = s->clip;
    o.guard = !s->streams;
    return o;
}

static lab lab_of(const setting *s, bool offload)
{
    clt_store_options store = usual_store(s->bucket_bytes);
    store.offload = offload ? s->owners : 0;
    lab l = lab_on_kept(offload ? s->devices : s->plain);
    l.graph = classifier(IN, WIDE, CLASSES);
    ok(clt_param_group(l.graph, "*.bias", 0.5, 0, NULL));
    if (s->frozen)
        ok(clt_freeze(l.graph, "a.*", NULL));
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    const clt_trainer_options o = options_of(s);
    lab_trainer(&l, &o);
    return l;
}

static void evaluate(lab *a, lab *b)
{
    const clt_step_batch batch = batch_of(feeds);
    double sums[2][2] = {{0}}, weights[2][2] = {{0}};
    ok(clt_trainer_evaluate(a->trainer, &batch, sums[0], weights[0]));
    ok(clt_trainer_evaluate(b->trainer, &batch, sums[1], weights[1]));
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    assert_true(weights[0][0] == MOST);
}

static int64_t bucket_bytes(const clt_replica *r)
{
    int64_t sum = 0;
    for (int b = 0; b < r->layout->n_buckets; b++)
        sum += r->layout->buckets[b].state ? 0 : r->layout->buckets[b].bytes;
    return sum;
}

/* Devices that train keep no byte of the optimizer, and the owners each tensor once. */
static void count_bytes(const lab *l, int owners)
{
    const clt_replica *r = l->store->replicas;
    int64_t kept = 0, least = INT64_MAX;
    for (int d = 0; d < l->n; d++) {
        const int64_t bytes = slot_bytes(&r[d]);
        if (d < l->n - owners)
            assert_int_equal(bytes, 0);
        else if (bytes < least)
            least = bytes;
        kept += bytes;
    }
    assert_int_equal(kept, r->n_slots * bucket_bytes(r));
    assert_true(owners == 1 || !r->n_slots || least > 0);
}

/* The plan says the same. */
static void plan_bytes(const lab *l, const setting *s)
{
    const clt_trainer_options o = options_of(s);
    char line[320], *text;
    ok(clt_trainer_plan(l->graph, l->store, &o, 1, &text));
    for (int d = 0; d < l->n; d++) {
        snprintf(line, sizeof line, "Optimizer's state on device %d (%s, %s): %lld bytes\n", d,
                 l->devices[d]->label, d < l->n - s->owners ? "trains" : "owner",
                 (long long)slot_bytes(&l->store->replicas[d]));
        assert_non_null(strstr(text, line));
    }
    free(text);
}

static const setting settings[] = {
    {"cpu@1", "cpu@1,cpu@1", 1, CLT_SGD, CLT_F32, 0, 1, 0, 0, 0},
    {"cpu@1", "cpu@1,cpu@1", 1, CLT_MOMENTUM, CLT_F32, 512, 1, 0, 0, 0},
    {"cpu@1", "cpu@1,cpu@1", 1, CLT_ADAMW, CLT_F32, 512, 3, 0.5, 0, 0},
    {"cpu/2", "cpu/2,cpu@1", 1, CLT_ADAMW, CLT_F32, 512, 1, 0.5, 0, 1},
    {"cpu/2", "cpu/2,cpu@1,cpu@1", 2, CLT_MOMENTUM, CLT_F32, 512, 2, 0, 1, 0},
    {"cpu/2", "cpu/2,cpu@1", 1, CLT_MUON, CLT_F32, 512, 2, 0.5, 0, 0},
    {"cpu/2", "cpu/2,cpu@1,cpu@1", 2, CLT_MUON, CLT_F16, 512, 1, 0, 0, 0},
    {"cpu/2", "cpu/2,cpu@1", 1, CLT_ADAM, CLT_BF16, 512, 1, 0, 0, 0},
    {"cpu/2", "cpu/2,cpu@1", 1, CLT_ADAMW, CLT_F16, 0, 3, 0.5, 0, 0}};

/* Slots that are set, and steps after them, are the same too. */
static void owners_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        lab a = lab_of(&settings[i], false), b = lab_of(&settings[i], true);
        assert_true(b.trainer->sharded && b.trainer->streams == settings[i].streams);
        train(&a, STEPS);
        train(&b, STEPS);
        compare(&a, &b, true);
        count_bytes(&b, settings[i].owners);
        plan_bytes(&b, &settings[i]);
        set_slots(&a, &b);
        train(&a, 2);
        train(&b, 2);
        compare(&a, &b, true);
        lab_close(&a);
        lab_close(&b);
    }
}

/* An owner's plan has room for one sample only, so it takes less than a device that trains, but for
 * the optimizer's state. The limit of memory is for devices that train. */
static void owners_keep_no_activations(void **state)
{
    clt_memory trains, owns;
    clt_store_options so;
    clt_trainer_options o = options_of(&settings[3]);
    (void)state;
    clt_store_options_init(&so);
    so.offload = 1;
    lab l = lab_on_kept("cpu@1,cpu@1");
    l.graph = classifier(IN, 500, CLASSES);
    ok(clt_store_create_with(l.graph, l.devices, l.n, &so, &l.store));
    o.batch = 4;
    lab_trainer(&l, &o);
    assert_int_equal(l.trainer->training->devices[0].plan->options.max_batch, 4);
    assert_int_equal(l.trainer->training->devices[1].plan->options.max_batch, 1);
    ok(clt_capacity_memory(l.graph, l.store, &l.trainer->options, 2, 0, &trains));
    ok(clt_capacity_memory(l.graph, l.store, &l.trainer->options, 2, 1, &owns));
    assert_true(owns.arena < trains.arena && owns.inputs < trains.inputs);
    assert_true(owns.slots == 2 * bucket_bytes(l.store->replicas) && trains.slots == 0);
    clt_trainer_destroy(l.trainer);
    l.trainer = NULL;
    o.memory = clt_memory_total(&trains);
    assert_true(clt_memory_total(&owns) > o.memory);
    lab_trainer(&l, &o);
    clt_trainer_destroy(l.trainer);
    o.memory = trains.store;
    assert_int_equal(clt_trainer_create(l.graph, l.store, &o, &l.trainer),
                     CLT_OUT_OF_DEVICE_MEMORY);
    l.trainer = NULL;
    lab_close(&l);
}

/* A step with a value that is not finite, and a frozen tensor: neither changes anything. */
static void the_guard_stops_owners(void **state)
{
    const float right = xs[3];
    (void)state;
    lab two[] = {lab_of(&settings[3], false), lab_of(&settings[3], true)};
    for (int i = 0; i < 2; i++) {
        clt_step_result result;
        clt_step_result_init(&result);
        train(&two[i], 2);
        xs[3] = NAN;
        step(&two[i]);
        xs[3] = right;
        assert_int_equal(clt_trainer_result(two[i].trainer, 2, &result), CLT_NONFINITE);
    }
    compare(&two[0], &two[1], true);
    lab_close(&two[0]);
    lab_close(&two[1]);
}

static void take_steps(lab *l, const setting *s)
{
    clt_trainer_options o = options_of(s);
    const clt_step_batch batch = net_batch(NET_MOST, NULL);
    clt_store_options so;
    clt_store_options_init(&so);
    so.offload = l->n - 2;
    l->graph = net_graph();
    ok(clt_store_create_with(l->graph, l->devices, l->n, &so, &l->store));
    lab_trainer(l, &o);
    for (int i = 0; i < STEPS; i++)
        ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_wait(l->trainer));
}

/* Owners join the collectives of the graph, and have the states too. */
static void owners_have_states(void **state)
{
    static const char *const tensors[] = {"a.weight", "b.bias", "running", "own"};
    static const int floats[] = {NET_A, NET_B_BIAS, NET_WIDE, NET_WIDE};
    (void)state;
    net_make_samples();
    for (int i = 1; i <= 2; i++) {
        setting s = settings[2];
        float x[NET_A], y[NET_A];
        s.accumulate = i;
        lab a = lab_on_kept("cpu@1,cpu@1"), b = lab_on_kept("cpu@1,cpu@1,cpu@1");
        take_steps(&a, &s);
        take_steps(&b, &s);
        for (int t = 0; t < 4; t++) {
            ok(clt_store_get(a.store, tensors[t], x, (size_t)floats[t] * sizeof *x));
            ok(clt_store_get(b.store, tensors[t], y, (size_t)floats[t] * sizeof *y));
            assert_memory_equal(x, y, (size_t)floats[t] * sizeof *x);
        }
        ok(clt_store_check(b.store));
        lab_close(&a);
        lab_close(&b);
    }
}

/* A run goes on from the other's checkpoint, with the same bits, and evaluates. */
static void runs_resume_each_other(void **state)
{
    const setting *s = &settings[2];
    char *dir = strdup(in_scratch("run"));
    (void)state;
    for (int offload = 0; offload < 2; offload++) {
        clt_position position;
        int64_t seed;
        lab first = lab_of(s, offload), other = lab_of(s, !offload);
        train(&first, 2);
        ok(clt_trainer_save(first.trainer, dir, (clt_position){0, 0}, MOST, 1, 0, "test"));
        ok(clt_trainer_restore(other.trainer, dir, &position, &seed));
        assert_int_equal(clt_trainer_steps(other.trainer), 2);
        train(&first, 2);
        train(&other, 2);
        compare(&first, &other, true);
        count_bytes(offload ? &first : &other, 1);
        evaluate(&first, &other);
        lab_close(&first);
        lab_close(&other);
        scratch_remove_tree(dir);
    }
    free(dir);
}

static void predict(lab *l, float *h)
{
    clt_step_batch batch = batch_of(feeds);
    const clt_fetch fetch = {"h", -1, CLT_HOST(h)};
    clt_predictor_options o;
    clt_predictor *predictor;
    clt_value *b = clt_linear(clt_graph_find(l->graph, "x"), clt_graph_find(l->graph, "a.weight"),
                              clt_graph_find(l->graph, "a.bias"));
    assert_non_null(clt_output(clt_relu(b), "h"));
    clt_predictor_options_init(&o);
    o.batch = MOST;
    batch.fetches = &fetch;
    batch.n_fetches = 1;
    ok(clt_predictor_create(l->graph, l->store, &o, &predictor));
    ok(clt_predictor_run(predictor, &batch, NULL));
    ok(clt_predictor_wait(predictor));
    assert_int_equal(clt_shares_samples(&predictor->shares, l->n - 1), l->store->owners ? 0 : 12);
    clt_predictor_destroy(predictor);
}

static void owners_do_not_predict(void **state)
{
    static float h[2][MOST * WIDE];
    (void)state;
    for (int offload = 0; offload < 2; offload++) {
        lab l = lab_of(&settings[3], offload);
        predict(&l, h[offload]);
        lab_close(&l);
    }
    assert_memory_equal(h[0], h[1], sizeof h[0]);
}

/* Devices of two platforms: one trains, the other owns. */
static void owners_may_be_of_another_kind(void **state)
{
    static const setting mixed[] = {
        {"pocl@1", "pocl@1,intel", 1, CLT_ADAMW, CLT_F32, 512, 2, 0.5, 0, 0},
        {"intel", "intel,pocl@1", 1, CLT_ADAMW, CLT_F32, 512, 2, 0.5, 0, 0},
        {"intel", "intel,pocl@1", 1, CLT_MOMENTUM, CLT_BF16, 512, 1, 0, 1, 0},
        {"pocl/2", "pocl/2,intel", 1, CLT_MOMENTUM, CLT_F32, 0, 1, 0, 1, 0}};
    (void)state;
    if (!strstr(clt_test_devices(""), "intel"))
        skip();
    for (size_t i = 0; i < sizeof mixed / sizeof *mixed; i++) {
        lab a = lab_of(&mixed[i], false), b = lab_of(&mixed[i], true);
        assert_true(b.trainer->unlike);
        train(&a, STEPS);
        train(&b, STEPS);
        compare(&a, &b, false);
        count_bytes(&b, 1);
        lab_close(&a);
        lab_close(&b);
    }
}

/* --- ranks ------------------------------------------------------------------------------------ */

typedef struct plan {
    setting setting;
    share share;
} plan;

static void train_rank(rank *self)
{
    plan *p = self->argument;
    const setting *s = &p->setting;
    clt_store_options store = usual_store(s->bucket_bytes);
    lab l = {0};
    store.offload = s->owners;
    store.world = &self->world;
    if (train_share(self, &p->share, s->owners ? s->devices : s->plain, store, options_of(s), &l)) {
        HOLDS(self, !s->owners || (!slot_bytes(&l.store->replicas[0]) &&
                                   slot_bytes(&l.store->replicas[l.n - 1])));
        HOLDS(self, clt_trainer_broadcast(l.trainer, 1) == CLT_OK);
        HOLDS(self, clt_trainer_finish(l.trainer) == CLT_OK);
    }
    lab_close(&l);
}

/* Each rank has an owner, which updates the buckets of all ranks that are its own. */
static void owners_lie_on_ranks(void **state)
{
    static plan whole[2], offloaded[2];
    static const int64_t counts[] = {15, 9};
    rank ranks[2];
    (void)state;
    for (int r = 0; r < 2; r++) {
        whole[r] = (plan){.setting = {r ? "cpu@1" : "cpu/2", r ? "cpu@1,cpu@1" : "cpu/2,cpu@1", 0,
                                      CLT_ADAM, CLT_F32, 512, 1, 0.5, 0, 0},
                          .share = {.first = r ? counts[0] : 0, .count = counts[r]}};
        offloaded[r] = whole[r];
        offloaded[r].setting.owners = 1;
    }
    run_ranks(ranks, 2, train_rank, whole, sizeof *whole);
    run_ranks(ranks, 2, train_rank, offloaded, sizeof *offloaded);
    for (int r = 0; r < 2; r++)
        compare_shares(&whole[r].share, &offloaded[r].share);
}

/* Rank 1 has no device that is left to train. */
static void refuse_rank(rank *self)
{
    lab l = {0};
    clt_store_options store;
    clt_store_options_init(&store);
    store.offload = 1;
    store.world = &self->world;
    l.graph = classifier(IN, WIDE, CLASSES);
    if (HOLDS(self, clt_devices_open(runtime, self->number ? "cpu@1" : "cpu@1,cpu@1", NULL,
                                     &l.devices, &l.n) == CLT_OK)) {
        self->status = clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store);
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    }
    lab_close(&l);
}

static void ranks_refuse_together(void **state)
{
    rank ranks[2];
    (void)state;
    run_ranks(ranks, 2, refuse_rank, NULL, 0);
    assert_int_equal(ranks[0].status, CLT_ABORTED);
    assert_non_null(strstr(ranks[0].message, "rank 1 failed: offload needs a CPU device"));
    assert_int_equal(ranks[1].status, CLT_INVALID_ARGUMENT);
}

/* --- mistakes --------------------------------------------------------------------------------- */

static void refused(const lab *l, int devices, const clt_store_options *options, clt_status status,
                    const char *why)
{
    clt_store *store;
    assert_int_equal(clt_store_create_with(l->graph, l->devices, devices, options, &store), status);
    assert_non_null(strstr(clt_error_message(), why));
    assert_null(strchr(clt_error_message(), '\n'));
}

static void mistakes_are_named(void **state)
{
    clt_store_options so;
    clt_trainer_options o = options_of(&settings[0]);
    (void)state;
    lab l = lab_on_kept("cpu@1,cpu@1");
    l.graph = classifier(IN, WIDE, CLASSES);
    clt_store_options_init(&so);
    so.offload = -1;
    refused(&l, 2, &so, CLT_INVALID_ARGUMENT, "offload to -1 devices");
    so.offload = 1;
    refused(&l, 1, &so, CLT_INVALID_ARGUMENT,
            "offload needs a CPU device beside the devices that train, and there is 1 device");
    so.offload = 2;
    refused(&l, 2, &so, CLT_INVALID_ARGUMENT, "there are 2 devices in all");
    so.offload = 1;
    l.devices[1]->caps.kind = CLT_KIND_GPU;
    refused(&l, 2, &so, CLT_INVALID_ARGUMENT, "offload needs a CPU device at the end of the list");
    l.devices[1]->caps.kind = CLT_KIND_CPU;
    so.zero = 3;
    refused(&l, 2, &so, CLT_INVALID_ARGUMENT, "offload and zero 3");
    so.zero = 0;
    so.parallel = "tp=2";
    refused(&l, 2, &so, CLT_UNSUPPORTED, "no other axis than dp");
    so.parallel = "dp=2";
    ok(clt_store_create_with(l.graph, l.devices, l.n, &so, &l.store));
    clt_step_batch batch = batch_of(feeds);
    batch.offsets = (const int64_t[]){0, MOST - 1, MOST};
    lab_trainer(&l, &o);
    assert_int_equal(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "device 1 owns the optimizer's state"));
    clt_trainer_destroy(l.trainer);
    l.trainer = NULL;
    o.zero = 1;
    assert_int_equal(clt_trainer_create(l.graph, l.store, &o, &l.trainer), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "offload and zero 1"));
    o.zero = 0;
    o.rebalance = 1;
    assert_int_equal(clt_trainer_create(l.graph, l.store, &o, &l.trainer), CLT_UNSUPPORTED);
    assert_non_null(strstr(clt_error_message(), "rebalance does not work with offload"));
    lab_close(&l);
}

static int set_up(void **state)
{
    make_samples(xs, labels, MOST, IN, CLASSES);
    return open_runtime_and_scratch(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(owners_give_the_same_bits),
                                       cmocka_unit_test(the_guard_stops_owners),
                                       cmocka_unit_test(runs_resume_each_other),
                                       cmocka_unit_test(owners_may_be_of_another_kind),
                                       cmocka_unit_test(owners_lie_on_ranks),
                                       cmocka_unit_test(ranks_refuse_together),
                                       cmocka_unit_test(owners_have_states),
                                       cmocka_unit_test(owners_do_not_predict),
                                       cmocka_unit_test(owners_keep_no_activations),
                                       cmocka_unit_test(mistakes_are_named)};
    return cmocka_run_group_tests(tests, set_up, close_runtime_and_scratch);
}
