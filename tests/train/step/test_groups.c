/* Frozen parameters and parameter groups: updates, layout in buckets, and checkpoints. */
#include "device/core/device.h"
#include "train/lab_as.h"
#include "train/store/store.h"
#include "train/core/trainer.h"
#include <cltrain/checkpoint.h>
#include <cltrain/fit.h>

#include "train/lab_scratch.h"

enum { IN = 12, HIDDEN = 70, CLASSES = 5, MOST = 21, LARGEST = HIDDEN * IN };

static float xs[MOST * IN];
static int32_t labels[MOST];

static const struct {
    const char *name;
    int elements;
} parameters[] = {{"a.weight", HIDDEN *IN},
                  {"a.bias", HIDDEN},
                  {"b.weight", CLASSES *HIDDEN},
                  {"b.bias", CLASSES}};

static void fails(clt_status status, clt_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(clt_error_message(), text))
        fail_msg("message '%s' does not have '%s'", clt_error_message(), text);
}

static lab lab_of(const char *list, clt_graph *graph, const clt_trainer_options *options,
                  int64_t bucket_bytes, bool as_gpu)
{
    clt_store_options store;
    clt_store_options_init(&store);
    store.seed = 4;
    store.bucket_bytes = bucket_bytes;
    lab l = lab_as(clt_test_devices(list), as_gpu);
    l.graph = graph;
    ok(clt_store_create_with(graph, l.devices, l.n, &store, &l.store));
    lab_trainer(&l, options);
    return l;
}

static clt_step_batch batch_of(void)
{
    static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    return lab_batch(feeds, MOST);
}

static clt_trainer_options options_of(clt_optimizer optimizer)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = optimizer;
    options.batch = MOST;
    options.lr = 0.05;
    options.weight_decay = 0.2;
    options.poison = 1;
    return options;
}

/* --- updates ---------------------------------------------------------------------------------- */

/* Rate factor and decay of each parameter, in the order of `parameters`. */
static const double rates[] = {1, 3, 0.5, 3}, decays[] = {0.2, 0, 0.7, 0};

static clt_graph *grouped(void)
{
    int count;
    clt_graph *graph = classifier(IN, HIDDEN, CLASSES);
    ok(clt_param_group(graph, "b.*", 0.5, 0.7, &count));
    assert_int_equal(count, 2);
    ok(clt_param_group(graph, "1d", 3, 0, &count)); /* b.bias moves to this group */
    assert_int_equal(count, 2);
    return graph;
}

/* Each value comes from the last call that sets it. */
static void test_merge(void **state)
{
    const clt_value *value[4];
    static const char *const names[] = {"a.weight", "a.bias", "b.weight", "b.bias"};
    static const double rates_of[] = {1, 1, 0.5, 0.5}, decays_of[] = {0, 0, CLT_COMMON_DECAY, 0};
    clt_graph *graph = classifier(IN, HIDDEN, CLASSES);
    (void)state;
    ok(clt_param_group(graph, "1d", CLT_COMMON_RATE, 0, NULL));
    ok(clt_param_group(graph, "b.*", 0.5, CLT_COMMON_DECAY, NULL));
    for (int i = 0; i < 4; i++)
        assert_non_null(value[i] = clt_graph_find(graph, names[i]));
    assert_int_equal(value[0]->group, 0);
    for (int i = 1; i < 4; i++) {
        assert_true(value[i]->rate == rates_of[i]);
        assert_true(value[i]->decay == decays_of[i]);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(value[i]->group, value[j]->group);
    }
    clt_graph_destroy(graph);
}

/* Returns the first update of SGD with L2, or of AdamW, whose moments are those of one gradient. */
static double updated(clt_optimizer optimizer, double w, double g, double lr, double decay)
{
    if (optimizer == CLT_SGD)
        return w - lr * (g + decay * w);
    return w - lr * decay * w - lr * g / (fabs(g) + 1e-8);
}

static void update_on(const char *list, clt_optimizer optimizer, int64_t bucket_bytes, bool as_gpu)
{
    static float before[4][LARGEST], gradient[4][LARGEST], after[LARGEST];
    const clt_trainer_options options = options_of(optimizer);
    const clt_step_batch batch = batch_of();
    lab l = lab_of(list, grouped(), &options, bucket_bytes, as_gpu);
    ok(clt_trainer_forward(l.trainer, &batch));
    ok(clt_trainer_backward(l.trainer));
    ok(clt_trainer_reduce(l.trainer));
    for (int p = 0; p < 4; p++) {
        const size_t bytes = (size_t)parameters[p].elements * sizeof(float);
        ok(clt_store_get(l.store, parameters[p].name, before[p], bytes));
        ok(clt_trainer_gradient(l.trainer, 0, parameters[p].name, gradient[p], bytes));
    }
    ok(clt_trainer_apply(l.trainer, NULL));
    ok(clt_trainer_wait(l.trainer));
    for (int p = 0; p < 4; p++) {
        ok(clt_store_get(l.store, parameters[p].name, after,
                         (size_t)parameters[p].elements * sizeof(float)));
        for (int i = 0; i < parameters[p].elements; i++) {
            const double want =
                updated(optimizer, before[p][i], gradient[p][i], options.lr * rates[p], decays[p]);
            const double scale = fabs((double)before[p][i]) + options.lr * rates[p];
            if (!(fabs((double)after[i] - want) <= 1e-6 * scale))
                fail_msg("%s, optimizer %d: %s[%d] is %.9g, not %.9g", list, (int)optimizer,
                         parameters[p].name, i, (double)after[i], want);
        }
    }
    ok(clt_store_check(l.store));
    lab_close(&l);
}

static void test_updates(void **state)
{
    (void)state;
    make_samples(xs, labels, MOST, IN, CLASSES);
    for (int k = 0; k < 2; k++) {
        const clt_optimizer optimizer = k ? CLT_ADAMW : CLT_SGD;
        update_on("pocl", optimizer, 0, false);
        update_on("pocl", optimizer, 0, true);
        update_on("pocl/2", optimizer, 1, false);
        update_on("pocl/2", optimizer, 0, false);
    }
}

/* Groups that repeat the options change no bit. */
static void test_neutral(void **state)
{
    static float plain[LARGEST], with[LARGEST];
    clt_trainer_options options = options_of(CLT_ADAM);
    const clt_step_batch batch = batch_of();
    (void)state;
    make_samples(xs, labels, MOST, IN, CLASSES);
    for (int run = 0; run < 2; run++) {
        clt_graph *graph = classifier(IN, HIDDEN, CLASSES);
        if (run)
            ok(clt_param_group(graph, "*.weight", 1, CLT_COMMON_DECAY, NULL));
        lab l = lab_of("pocl", graph, &options, 0, false);
        for (int i = 0; i < 4; i++)
            ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_wait(l.trainer));
        ok(clt_store_get(l.store, "a.weight", run ? with : plain, sizeof plain));
        lab_close(&l);
    }
    assert_memory_equal(plain, with, sizeof plain);
}

/* Tensors of a group are neighbours in their bucket. Buckets are as full as without groups. */
static void test_layout(void **state)
{
    (void)state;
    for (int64_t other = 1; other <= 1 << 20; other <<= 20) {
        const clt_bucket_sizes sizes = {other, other, INT64_MAX};
        clt_graph *plain = classifier(IN, HIDDEN, CLASSES), *graph = grouped();
        clt_buckets a, b;
        ok(clt_buckets_create(plain, &sizes, &a));
        ok(clt_buckets_create(graph, &sizes, &b));
        assert_int_equal(a.n_buckets, b.n_buckets);
        assert_true(clt_buckets_hash(&a) != clt_buckets_hash(&b));
        for (int i = 0; i < b.n_buckets; i++) {
            int64_t offset = 0;
            assert_int_equal(a.buckets[i].bytes, b.buckets[i].bytes);
            for (int s = b.buckets[i].first; s < b.buckets[i].end; s++) {
                assert_true(s == b.buckets[i].first || b.slots[s].group >= b.slots[s - 1].group);
                assert_int_equal(b.slots[s].offset, offset);
                assert_int_equal(b.slots[s].bucket, i);
                offset += clt_slot_padded(&b.slots[s]);
            }
        }
        clt_buckets_free(&a);
        clt_buckets_free(&b);
        clt_graph_destroy(plain);
        clt_graph_destroy(graph);
    }
}

/* --- frozen ----------------------------------------------------------------------------------- */

static clt_graph *frozen(const char *pattern)
{
    clt_graph *graph = classifier(IN, HIDDEN, CLASSES);
    if (pattern)
        ok(clt_freeze(graph, pattern, NULL));
    return graph;
}

/* The gradients of all other parameters are those of a run without freezing, also behind a frozen
 * one. A frozen parameter keeps its bits, its initial value and its place in the store's order. */
static void frozen_on(const char *list)
{
    static float start[LARGEST], end[LARGEST], whole[LARGEST], part[LARGEST];
    const clt_trainer_options options = options_of(CLT_ADAM);
    const clt_step_batch batch = batch_of();
    lab all = lab_of(list, frozen(NULL), &options, 0, false);
    lab some = lab_of(list, frozen("a.bias|b.w*"), &options, 0, false);
    ok(clt_store_get(some.store, "b.weight", start, sizeof(float) * CLASSES * HIDDEN));
    ok(clt_store_get(all.store, "b.weight", end, sizeof(float) * CLASSES * HIDDEN));
    assert_memory_equal(start, end, sizeof(float) * CLASSES * HIDDEN);
    lab *labs[] = {&all, &some};
    for (int k = 0; k < 2; k++) {
        ok(clt_trainer_forward(labs[k]->trainer, &batch));
        ok(clt_trainer_backward(labs[k]->trainer));
        ok(clt_trainer_reduce(labs[k]->trainer));
    }
    ok(clt_trainer_gradient(all.trainer, 0, "a.weight", whole, sizeof whole));
    ok(clt_trainer_gradient(some.trainer, 0, "a.weight", part, sizeof part));
    assert_memory_equal(whole, part, sizeof whole);
    ok(clt_trainer_apply(some.trainer, NULL));
    for (int i = 0; i < 3; i++)
        ok(clt_trainer_step(some.trainer, &batch, NULL));
    ok(clt_trainer_wait(some.trainer));
    ok(clt_store_get(some.store, "b.weight", end, sizeof(float) * CLASSES * HIDDEN));
    assert_memory_equal(start, end, sizeof(float) * CLASSES * HIDDEN);
    ok(clt_store_get(some.store, "a.weight", part, sizeof part));
    ok(clt_store_get(all.store, "a.weight", whole, sizeof whole));
    assert_true(memcmp(part, whole, sizeof part) != 0);
    ok(clt_store_check(some.store));
    fails(clt_trainer_gradient(some.trainer, 0, "a.bias", part, HIDDEN * sizeof(float)),
          CLT_INVALID_ARGUMENT, "no gradient a.bias");
    fails(clt_trainer_slot_get(some.trainer, 0, "a.bias", part, HIDDEN * sizeof(float)),
          CLT_INVALID_ARGUMENT, "a.bias is frozen");
    assert_int_equal(clt_store_parameters(some.store), clt_store_parameters(all.store));
    for (int i = 0; i < 4; i++) {
        const char *name, *same;
        int is_state = 1;
        ok(clt_store_describe(some.store, i, &name, NULL, NULL, NULL, &is_state));
        ok(clt_store_describe(all.store, i, &same, NULL, NULL, NULL, NULL));
        assert_string_equal(name, same);
        assert_false(is_state);
    }
    /* Frozen buckets have no gradients and moments. */
    const clt_replica *r = &some.store->replicas[0];
    for (int b = 0; b < some.store->layout.n_buckets; b++) {
        const bool still = some.store->layout.buckets[b].state;
        assert_true((r->gradients[b] == NULL) == still && (r->slots[0][b] == NULL) == still);
    }
    assert_true(clt_buckets_find(&some.store->layout, "a.bias")->state);
    lab_close(&all);
    lab_close(&some);
}

static void test_frozen(void **state)
{
    (void)state;
    make_samples(xs, labels, MOST, IN, CLASSES);
    frozen_on("pocl");
    frozen_on("pocl/2");
}

/* --- checkpoints and errors ------------------------------------------------------------------- */

static void test_checkpoints(void **state)
{
    static float saved[LARGEST], got[LARGEST];
    const clt_trainer_options options = options_of(CLT_ADAMW);
    const clt_step_batch batch = batch_of();
    const clt_position start = {0};
    const char *dir = scratch;
    clt_position position;
    int64_t seed;
    (void)state;
    clt_graph *graph = grouped();
    ok(clt_freeze(graph, "a.weight", NULL));
    lab first = lab_of("pocl", graph, &options, 0, false);
    ok(clt_trainer_step(first.trainer, &batch, NULL));
    ok(clt_trainer_save(first.trainer, dir, start, MOST, 1, 1, "m"));
    ok(clt_store_get(first.store, "a.weight", saved, sizeof saved));

    clt_graph *same = grouped();
    ok(clt_freeze(same, "a.weight", NULL));
    lab second = lab_of("pocl/2", same, &options, 0, false);
    memset(got, 0, sizeof got);
    ok(clt_store_set(second.store, "a.weight", got, sizeof got));
    ok(clt_trainer_restore(second.trainer, dir, &position, &seed));
    ok(clt_store_get(second.store, "a.weight", got, sizeof got));
    assert_memory_equal(saved, got, sizeof got);
    ok(clt_trainer_step(second.trainer, &batch, NULL));
    ok(clt_store_check(second.store));

    lab third = lab_of("pocl", grouped(), &options, 0, false);
    fails(clt_trainer_restore(third.trainer, dir, &position, &seed), CLT_MISMATCH,
          "other parameter groups: \"a.weight frozen\" there, \"");
    clt_graph *other = grouped();
    ok(clt_freeze(other, "a.weight", NULL));
    ok(clt_param_group(other, "b.bias", CLT_COMMON_RATE, 0.5, NULL));
    lab fourth = lab_of("pocl", other, &options, 0, false);
    fails(clt_trainer_restore(fourth.trainer, dir, &position, &seed), CLT_MISMATCH,
          "\"b.bias lr=3 decay=0\" there, \"b.bias lr=3 decay=0.5\" in this run");
    lab_close(&first);
    lab_close(&second);
    lab_close(&third);
    lab_close(&fourth);
}

static void test_errors(void **state)
{
    const clt_trainer_options options = options_of(CLT_SGD);
    clt_graph *graph = classifier(IN, HIDDEN, CLASSES);
    clt_trainer *trainer;
    (void)state;
    fails(clt_freeze(graph, "c.*", NULL), CLT_NOT_FOUND, "no parameter matches \"c.*\"");
    fails(clt_freeze(graph, "x", NULL), CLT_NOT_FOUND, "\"x\""); /* x is an input */
    fails(clt_param_group(graph, "a.*", -2, 0, NULL), CLT_INVALID_ARGUMENT, "lr -2");
    fails(clt_param_group(graph, "a.*", 1, NAN, NULL), CLT_INVALID_ARGUMENT, "weight decay");
    ok(clt_graph_status(graph));
    lab l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, graph, 1);
    ok(clt_param_group(graph, "a.*", 2, 0, NULL));
    fails(clt_trainer_create(graph, l.store, &options, &trainer), CLT_MISMATCH,
          "is frozen or in another parameter group in the graph");
    clt_store_destroy(l.store);
    ok(clt_freeze(graph, "*", NULL));
    lab_store(&l, graph, 1);
    fails(clt_trainer_create(graph, l.store, &options, &trainer), CLT_INVALID_ARGUMENT,
          "all parameters are frozen");
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates), cmocka_unit_test(test_neutral),
        cmocka_unit_test(test_merge),   cmocka_unit_test(test_layout),
        cmocka_unit_test(test_frozen),  cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
