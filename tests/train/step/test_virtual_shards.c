/* Virtual shards: parameters, states, optimizer, losses, metrics and norms have the same bits on
 * any number of devices, and the order of the sums is the tree that this test forms itself. */
#include "base/alloc.h"
#include "exec/testing/lose.h"
#include "train/core/trainer.h"
#include "train/lab.h"
#include "train/ranks/virtual_shards.h"

enum { BATCH = 37, SIDE = 6, IN = SIDE * SIDE, FLAT = 4 * 16, CLASSES = 5 };

enum { SHARDS = 4, STEPS = 5, MOST = 4096 };

static float xs[BATCH * IN];
static int32_t labels[BATCH];

/* One device, parts of one with other numbers of compute units, and a number that is no power of
 * two. */
static const char *const lists[] = {"pocl", "pocl/2", "pocl@1,pocl/2", "pocl/2,pocl/2"};

enum { LISTS = sizeof lists / sizeof *lists };

static clt_value *parameter(clt_graph *g, const char *name, int rank, const int64_t *dims)
{
    return clt_parameter(g, name, rank, dims, (clt_init){CLT_INIT_UNIFORM, 0.3, 0});
}

/* Of the loss. With a tiny one, gradients are below the least normal float. */
static double coefficient = 1;

/* Convolution, batch norm with running statistics, dropout, and a loss that ignores labels. */
static clt_graph *network(int synchronised)
{
    const int64_t image[] = {CLT_BATCH, 1, SIDE, SIDE}, one[] = {CLT_BATCH},
                  kernel[] = {4, 1, 3, 3}, channels = 4;
    const clt_init zero = {CLT_INIT_ZERO, 0, 0}, unit = {CLT_INIT_CONSTANT, 1, 0};
    clt_batch_norm_options norm;
    clt_cross_entropy_options ignoring;
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_batch_norm_options_init(&norm);
    norm.synchronised = synchronised;
    clt_value *x = clt_input(g, "x", CLT_F32, 4, image);
    clt_value *label = clt_input(g, "label", CLT_I32, 1, one);
    clt_value *h = clt_conv2d(x, parameter(g, "c.weight", 4, kernel), NULL, NULL);
    h = clt_batch_norm(h, parameter(g, "n.weight", 1, &channels),
                       parameter(g, "n.bias", 1, &channels),
                       clt_state(g, "n.running_mean", CLT_F32, 1, &channels, zero),
                       clt_state(g, "n.running_var", CLT_F32, 1, &channels, unit),
                       clt_state(g, "n.num_batches_tracked", CLT_I32, 0, NULL, zero), &norm);
    h = clt_dropout(clt_flatten(clt_relu(h)), 0.3);
    clt_value *logits = layer(g, h, "a.weight", "a.bias", FLAT, CLASSES);
    clt_cross_entropy_options_init(&ignoring);
    ignoring.ignore_index = 3;
    clt_cross_entropy(logits, label, &ignoring, &sum, &weight);
    clt_loss(g, "loss", sum, weight, coefficient);
    clt_correct(logits, label, 1, -100, &sum, &weight);
    clt_metric(g, "accuracy", sum, weight);
    ok(clt_graph_status(g));
    return g;
}

static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};

static clt_step_batch batch_of(int64_t count)
{
    return lab_batch(feeds, count);
}

static clt_trainer_options options_of(int64_t shards)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = BATCH;
    options.virtual_shards = shards;
    options.poison = 1;
    return options;
}

static const char *const names[] = {"c.weight", "n.weight", "n.bias", "a.weight", "a.bias"};
static const size_t sizes[] = {4 * 9, 4, 4, CLASSES *FLAT, CLASSES};

enum { NAMES = sizeof names / sizeof *names };

/* --- the same bits ---------------------------------------------------------------------------- */

typedef struct outcome {
    double losses[STEPS], norms[STEPS], metrics[STEPS], weights[STEPS], tested[4];
    float scales[STEPS];
    char tensors[MOST], slots[MOST]; /* all parameters and states, and the first slot */
} outcome;

static const int64_t counts[STEPS] = {BATCH, 3, BATCH, 10, 1}; /* some shards are empty */

static void read_tensors(lab *l, outcome *o)
{
    size_t at = 0;
    for (int i = 0; i < clt_store_count(l->store); i++) {
        const char *name;
        clt_dtype dtype;
        int rank, state;
        int64_t dims[CLT_MAX_RANK], elements = 1;
        ok(clt_store_describe(l->store, i, &name, &dtype, &rank, dims, &state));
        for (int d = 0; d < rank; d++)
            elements *= dims[d];
        const size_t bytes = (size_t)elements * 4;
        assert_true(at + bytes <= MOST);
        ok(clt_store_get(l->store, name, o->tensors + at, bytes));
        if (!state)
            ok(clt_trainer_slot_get(l->trainer, 0, name, o->slots + at, bytes));
        at += bytes;
    }
}

static void train(const char *list, const clt_trainer_options *options, outcome *o)
{
    lab l = lab_on_kept(list);
    memset(o, 0, sizeof *o);
    lab_store(&l, network(0), 3);
    lab_trainer(&l, options);
    for (int s = 0; s < STEPS; s++) {
        const clt_step_batch batch = batch_of(counts[s]);
        clt_step_result result;
        clt_step_result_init(&result);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_result(l.trainer, s, &result));
        ok(clt_trainer_metric(l.trainer, s, 0, &o->metrics[s], &o->weights[s]));
        ok(clt_store_check(l.store));
        o->losses[s] = result.loss;
        o->norms[s] = result.norm;
        o->scales[s] = (float)result.loss_scale;
    }
    const clt_step_batch batch = batch_of(BATCH);
    ok(clt_trainer_evaluate(l.trainer, &batch, o->tested, o->tested + 2));
    read_tensors(&l, o);
    lab_close(&l);
}

/* Compares runs on all lists of devices with one device without `zero`. */
static void same_bits_with(const clt_trainer_options *options, int zero, const char *what)
{
    static outcome first, other;
    clt_trainer_options with = *options;
    train(lists[0], options, &first);
    with.zero = zero;
    assert_true(first.norms[0] > 0 && first.losses[STEPS - 1] > 0);
    for (int i = 1; i < LISTS; i++) {
        train(lists[i], &with, &other);
        for (int s = 0; s < STEPS; s++)
            if (first.losses[s] != other.losses[s] || first.norms[s] != other.norms[s])
                fail_msg("%s, step %d: loss %.17g and norm %.17g on %s, %.17g and %.17g on %s",
                         what, s, first.losses[s], first.norms[s], lists[0], other.losses[s],
                         other.norms[s], lists[i]);
        if (memcmp(&first, &other, sizeof first))
            fail_msg("%s: %s differs from %s", what, lists[i], lists[0]);
    }
}

static void same_bits(const clt_trainer_options *options, const char *what)
{
    same_bits_with(options, 0, what);
}

static void any_number_of_devices(void **state)
{
    static const clt_dtype precisions[] = {CLT_F32, CLT_BF16, CLT_F16};
    static const char *const texts[] = {"f32", "bf16", "f16"};
    (void)state;
    for (int p = 0; p < 3; p++) {
        clt_trainer_options options = options_of(SHARDS);
        options.optimizer = CLT_MOMENTUM;
        options.clip_norm = 0.5;
        options.precision = precisions[p];
        same_bits(&options, texts[p]);
    }
}

/* Each device updates its shards of the buckets, from the whole sums of gradients. */
static void shards_of_the_optimizer(void **state)
{
    static const clt_dtype precisions[] = {CLT_F32, CLT_BF16, CLT_F16};
    (void)state;
    for (int p = 0; p < 3; p++) {
        clt_trainer_options options = options_of(SHARDS);
        options.optimizer = CLT_ADAM;
        options.lr = 0.01;
        options.clip_norm = 0.5;
        options.precision = precisions[p];
        same_bits_with(&options, 1, clt_dtype_name(precisions[p]));
    }
}

static void more_shards_than_samples(void **state)
{
    clt_trainer_options options = options_of(64);
    (void)state;
    options.optimizer = CLT_ADAM;
    options.lr = 0.01;
    same_bits(&options, "64 shards");
}

static void updates_that_stream(void **state)
{
    clt_trainer_options options = options_of(SHARDS);
    (void)state;
    options.optimizer = CLT_MOMENTUM;
    options.guard = 0;
    static outcome one, two;
    train(lists[0], &options, &one);
    train(lists[1], &options, &two);
    assert_memory_equal(one.tensors, two.tensors, sizeof one.tensors);
    assert_memory_equal(one.losses, two.losses, sizeof one.losses);
}

/* All devices stop at the same step, and the device that has the sample names it. */
static void a_step_that_is_not_finite(void **state)
{
    static const char *const two[] = {"pocl", "pocl/2"};
    clt_trainer_options options = options_of(SHARDS);
    const float before = xs[30 * IN];
    (void)state;
    options.poison = 0;
    for (int i = 0; i < 2; i++) {
        static outcome good, after;
        clt_step_result result;
        const clt_step_batch batch = batch_of(BATCH);
        lab l = lab_on_kept(two[i]);
        clt_step_result_init(&result);
        lab_store(&l, network(0), 3);
        lab_trainer(&l, &options);
        memset(&good, 0, sizeof good);
        memset(&after, 0, sizeof after);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_result(l.trainer, 0, &result));
        ok(clt_store_get(l.store, "a.weight", good.tensors, sizes[3] * sizeof(float)));
        xs[30 * IN] = NAN;
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        assert_int_equal(clt_trainer_result(l.trainer, 1, &result), CLT_NONFINITE);
        assert_non_null(strstr(clt_error_message(), "input x"));
        xs[30 * IN] = before;
        ok(clt_store_get(l.store, "a.weight", after.tensors, sizes[3] * sizeof(float)));
        assert_memory_equal(good.tensors, after.tensors, sizeof good.tensors);
        lab_close(&l);
    }
}

/* --- the order -------------------------------------------------------------------------------- */

/* Computes the gradient of samples [begin, end) of a batch as a run of its own. */
static void gradient_of(const lab *l, int64_t begin, int64_t end, const double *weight,
                        float (*out)[CLASSES * FLAT])
{
    const clt_feed own[] = {{"x", -1, CLT_HOST(xs + begin * IN)},
                            {"label", -1, CLT_HOST(labels + begin)}};
    clt_step_batch batch = batch_of(end - begin);
    batch.feeds = own;
    batch.first = begin;
    batch.loss_weights = weight;
    ok(clt_trainer_forward(l->trainer, &batch));
    ok(clt_trainer_backward(l->trainer));
    for (int i = 0; i < NAMES; i++)
        ok(clt_trainer_gradient(l->trainer, 0, names[i], out[i], sizes[i] * sizeof(float)));
}

/* The portable kernels of one compute unit are the same in both trainers. */
static void compare_with_tree(void)
{
    static float parts[SHARDS][NAMES][CLASSES * FLAT], whole[CLASSES * FLAT];
    double weight = 0;
    for (int i = 0; i < BATCH; i++)
        weight += labels[i] != 3;
    clt_trainer_options options = options_of(0);
    options.portable = 1;
    options.batch = (BATCH + SHARDS - 1) / SHARDS;
    lab l = lab_on_kept("pocl@1");
    lab_store(&l, network(0), 3);
    lab_trainer(&l, &options);
    for (int v = 0; v < SHARDS; v++)
        gradient_of(&l, clt_virtual_shard_begin(BATCH, SHARDS, v),
                    clt_virtual_shard_begin(BATCH, SHARDS, v + 1), &weight, parts[v]);
    lab_close(&l);
    for (int d = 0; d < LISTS; d++) {
        options = options_of(SHARDS);
        options.portable = 1;
        l = lab_on_kept(lists[d]);
        lab_store(&l, network(0), 3);
        lab_trainer(&l, &options);
        const clt_step_batch batch = batch_of(BATCH);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        for (int i = 0; i < NAMES; i++) {
            ok(clt_trainer_gradient(l.trainer, 0, names[i], whole, sizes[i] * sizeof(float)));
            for (size_t k = 0; k < sizes[i]; k++) {
                const float left = parts[0][i][k] + parts[1][i][k];
                const float right = parts[2][i][k] + parts[3][i][k], sum = left + right;
                if (memcmp(&whole[k], &sum, sizeof sum))
                    fail_msg("%s: the gradient of %s has %.9g instead of %.9g at element %zu",
                             lists[d], names[i], (double)whole[k], (double)sum, k);
            }
        }
        lab_close(&l);
    }
}

static void sums_are_a_tree(void **state)
{
    (void)state;
    for (coefficient = 1; coefficient > 0; coefficient = coefficient < 1 ? 0 : 1e-38)
        compare_with_tree();
    coefficient = 1;
}

/* --- the division ----------------------------------------------------------------------------- */

static void blocks(void **state)
{
    static const struct {
        int64_t shards;
        int begins[6], nodes[5], ranks; /* begins: first devices of the ranks, and the end */
        int64_t bounds[9];
    } rows[] = {
        {4, {0, 1}, {0}, 1, {0, 4}},
        {4, {0, 3}, {0}, 1, {0, 2, 3, 4}},
        {8, {0, 2, 4}, {0, 0}, 2, {0, 2, 4, 6, 8}},
        {8, {0, 1, 2, 3}, {0, 0, 0}, 3, {0, 4, 6, 8}},
        {8, {0, 1, 2, 3}, {0, 1, 1}, 3, {0, 4, 6, 8}},
        {16, {0, 3, 4}, {0, 1}, 2, {0, 4, 6, 8, 16}},
        {8, {0, 2, 4, 6}, {0, 0, 1}, 3, {0, 1, 2, 3, 4, 6, 8}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t bounds[9];
        const int devices = rows[i].begins[rows[i].ranks];
        ok(clt_virtual_shards_divide(rows[i].shards, rows[i].begins, rows[i].nodes, rows[i].ranks,
                                     bounds));
        for (int d = 0; d <= devices; d++)
            if (bounds[d] != rows[i].bounds[d])
                fail_msg("row %zu: device %d begins with shard %lld, not %lld", i, d,
                         (long long)bounds[d], (long long)rows[i].bounds[d]);
    }
}

static void expect(clt_status status, clt_status wanted, const char *part)
{
    assert_int_equal(status, wanted);
    if (!strstr(clt_error_message(), part) || strchr(clt_error_message(), '\n'))
        fail_msg("\"%s\" lacks \"%s\"", clt_error_message(), part);
}

/* Ranks of a node must follow each other. `nodes` NULL: this order is refused. */
static void nodes_are_blocks(void **state)
{
    static const struct {
        clt_node_place places[4];
        int nodes[4];
        const char *refused;
    } rows[] = {
        {{{0, 4}, {1, 4}, {2, 4}, {3, 4}}, {0, 0, 0, 0}, NULL},
        {{{0, 2}, {1, 2}, {0, 2}, {1, 2}}, {0, 0, 1, 1}, NULL},
        {{{0, 1}, {0, 2}, {1, 2}, {0, 1}}, {0, 1, 1, 2}, NULL},
        {{{0, 1}, {0, 1}, {0, 1}, {0, 1}}, {0, 1, 2, 3}, NULL},
        /* dealt in turns to two, three and two nodes */
        {{{0, 2}, {0, 2}, {1, 2}, {1, 2}}, {0}, "rank 1 is number 0 of 2"},
        {{{0, 2}, {0, 1}, {0, 1}, {1, 2}}, {0}, "rank 1 is number 0 of 1"},
        {{{0, 1}, {0, 3}, {1, 3}, {0, 1}}, {0}, "rank 3 is number 0 of 1"},
        {{{1, 2}, {0, 2}, {0, 2}, {1, 2}}, {0}, "rank 0 is number 1 of 2"},
        {{{0, 2}, {1, 3}, {1, 2}, {2, 3}}, {0}, "rank 1 is number 1 of 3"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int nodes[4];
        const clt_status status = clt_virtual_shards_nodes(rows[i].places, 4, nodes);
        if (rows[i].refused) {
            expect(status, CLT_INVALID_ARGUMENT, rows[i].refused);
            continue;
        }
        ok(status);
        assert_memory_equal(nodes, rows[i].nodes, sizeof nodes);
    }
}

static void refuse(const char *list, int synchronised, const clt_trainer_options *options,
                   clt_status wanted, const char *part)
{
    clt_trainer *trainer = NULL;
    lab l = lab_on_kept(list);
    lab_store(&l, network(synchronised), 3);
    expect(clt_trainer_create(l.graph, l.store, options, &trainer), wanted, part);
    assert_null(trainer);
    lab_close(&l);
}

static void what_is_not_possible(void **state)
{
    int64_t bounds[9];
    clt_trainer_options options;
    (void)state;
    for (int64_t shards = -1; shards < 8; shards += 4) { /* -1, 3 and 7 */
        options = options_of(shards);
        refuse("pocl", 0, &options, CLT_INVALID_ARGUMENT, "a power of two");
    }
    options = options_of(2);
    refuse("pocl/2,pocl@1", 0, &options, CLT_INVALID_ARGUMENT, "fewer than the 3 devices");
    refuse("pocl", 1, &options, CLT_UNSUPPORTED, "not synchronised");
    options.accumulate = 2;
    refuse("pocl", 0, &options, CLT_UNSUPPORTED, "accumulate");
    options = options_of(2);
    options.zero = 3;
    refuse("pocl/2", 0, &options, CLT_UNSUPPORTED, "zero 3");
    options = options_of(2);
    options.tune_seconds = 1;
    refuse("pocl", 0, &options, CLT_UNSUPPORTED, "tune_seconds");
    options = options_of(4);
    options.weights = (const double[]){2, 1};
    refuse("pocl/2", 0, &options, CLT_UNSUPPORTED, "weights");
    expect(clt_virtual_shards_divide(4, (const int[]){0, 3, 4}, (const int[]){0, 1}, 2, bounds),
           CLT_INVALID_ARGUMENT, "try 8");
    expect(
        clt_virtual_shards_divide(4, (const int[]){0, 1, 2, 3}, (const int[]){0, 1, 0}, 3, bounds),
        CLT_INVALID_ARGUMENT, "follow each other");
}

/* CLT_TEST_DEVICES names devices of two kinds in this test's second run. */
static void several_kinds(void **state)
{
    const clt_trainer_options options = options_of(4);
    (void)state;
    if (!strchr(clt_test_devices(""), ','))
        skip();
    refuse(clt_test_devices(""), 0, &options, CLT_UNSUPPORTED, "devices of one kind");
}

/* Another division than that of the shards is refused. */
static void another_division(void **state)
{
    const int64_t offsets[] = {0, 10, BATCH};
    const clt_trainer_options options = options_of(SHARDS);
    clt_step_batch batch = batch_of(BATCH);
    (void)state;
    lab l = lab_on_kept("pocl/2");
    lab_store(&l, network(0), 3);
    lab_trainer(&l, &options);
    batch.offsets = offsets;
    expect(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT, "with virtual shards");
    lab_close(&l);
}

/* A plan counts the shards that the trainer will have, whatever ranks and nodes there are. */
static void a_plan_knows_the_division(void **state)
{
    static const struct {
        int ranks, node_ranks, rank;
        int64_t bounds[7];
    } rows[] = {
        {1, 1, 0, {0, 8, 16}},
        {3, 3, 0, {0, 4, 8, 10, 12, 14, 16}},
        {3, 3, 2, {0, 4, 8, 10, 12, 14, 16}},
        {2, 1, 1, {0, 4, 8, 12, 16}},
    };
    (void)state;
    lab l = lab_on_kept("pocl/2");
    lab_store(&l, network(0), 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int total = 2 * rows[i].ranks;
        int64_t *bounds;
        int first;
        clt_world world;
        clt_world_init(&world);
        world.ranks = rows[i].ranks;
        world.rank = rows[i].rank;
        world.node_ranks = rows[i].node_ranks;
        ok(clt_virtual_shards_plan(16, l.store, &world, total, &bounds, &first));
        assert_int_equal(first, 2 * rows[i].rank);
        assert_memory_equal(bounds, rows[i].bounds, (size_t)(total + 1) * sizeof *bounds);
        clt_free(bounds);
        ok(clt_virtual_shards_plan(16, l.store, &world, total + 1, &bounds, &first));
        assert_null(bounds);
    }
    lab_close(&l);
}

#ifdef CLT_TESTING
/* The loss scaling after a device is lost is that of the last complete step. */
static void a_lost_device_leaves_the_loss_scaling(void **state)
{
    clt_trainer_options options = options_of(SHARDS);
    clt_step_batch batch = batch_of(BATCH);
    clt_scaling scaling;
    int redo = -1;
    (void)state;
    options.precision = CLT_F16;
    lab l = lab_on("pocl/2", NULL);
    lab_store(&l, network(0), 3);
    lab_trainer(&l, &options);
    clt_exec_testing_lose = "#1=3";
    for (int s = 0; s < 3; s++)
        ok(clt_trainer_step(l.trainer, &batch, NULL));
    assert_int_equal(clt_trainer_step(l.trainer, &batch, NULL), CLT_DEVICE_LOST);
    clt_exec_testing_lose = NULL;
    ok(clt_trainer_recover(l.trainer, &redo));
    assert_int_equal(l.trainer->all.total, 1);
    ok(clt_update_scaling(l.trainer->devices[0].update, &scaling));
    assert_int_equal(scaling.good + scaling.skipped, clt_trainer_steps(l.trainer));
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    lab_close(&l);
}
#endif

int main(void)
{
    make_samples(xs, labels, BATCH, IN, CLASSES);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks),
        cmocka_unit_test(nodes_are_blocks),
        cmocka_unit_test(sums_are_a_tree),
        cmocka_unit_test(any_number_of_devices),
        cmocka_unit_test(shards_of_the_optimizer),
        cmocka_unit_test(more_shards_than_samples),
        cmocka_unit_test(updates_that_stream),
        cmocka_unit_test(a_step_that_is_not_finite),
        cmocka_unit_test(another_division),
        cmocka_unit_test(what_is_not_possible),
        cmocka_unit_test(several_kinds),
        cmocka_unit_test(a_plan_knows_the_division),
#ifdef CLT_TESTING
        cmocka_unit_test(a_lost_device_leaves_the_loss_scaling),
#endif
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
