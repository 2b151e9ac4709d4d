/* The planner on real devices, and trainers with unequal shares. */
#include "train/lab.h"

#include "exec/testing/slow.h"
#include "train/planner/frozen.h"
#include "train/core/trainer.h"
#include <cltrain/checkpoint.h>
#include <cltrain/planner.h>

enum { IN = 96, HIDDEN = 256, CLASSES = 10, BATCH = 256 };

static float xs[BATCH * IN];
static int32_t labels[BATCH];

static clt_graph *build(void)
{
    const int64_t in[] = {CLT_BATCH, IN}, one[] = {CLT_BATCH};
    clt_value *sum, *weight;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *h = clt_relu(
        layer(graph, clt_input(graph, "x", CLT_F32, 2, in), "h.weight", "h.bias", IN, HIDDEN));
    h = clt_relu(layer(graph, h, "m.weight", "m.bias", HIDDEN, HIDDEN));
    clt_value *logits = layer(graph, h, "o.weight", "o.bias", HIDDEN, CLASSES);
    clt_cross_entropy(logits, clt_input(graph, "label", CLT_I32, 1, one), NULL, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    ok(clt_graph_status(graph));
    return graph;
}

static clt_trainer_options options_of(const double *weights, int64_t quantum)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = BATCH;
    options.weights = weights;
    options.quantum = quantum;
    return options;
}

/* Opens two parts of the CPU with a core each, or the test's devices. */
static lab open_lab(const double *weights, int64_t quantum)
{
    lab l = lab_on(clt_test_devices("pocl@1,pocl@1"), NULL);
    assert_int_equal(l.n, 2);
    lab_store(&l, build(), 3);
    const clt_trainer_options options = options_of(weights, quantum);
    lab_trainer(&l, &options);
    return l;
}

static clt_step_batch batch_of(int64_t count)
{
    static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    return lab_batch(feeds, count);
}

static double train(lab *l, int steps)
{
    clt_step_result result;
    clt_step_result_init(&result);
    for (int i = 0; i < steps; i++) {
        const clt_step_batch batch = batch_of(i % 2 ? BATCH - 100 : BATCH);
        ok(clt_trainer_step(l->trainer, &batch, NULL));
    }
    ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
    return result.loss;
}

/* Every division gives the result of equal parts up to rounding, also with an empty part. */
static void test_weights(void **state)
{
    (void)state;
    static const double splits[][2] = {{3, 1}, {1, 7}, {1, 0}, {0, 1}, {1, 1}};
    lab equal = open_lab(NULL, 1);
    const double want = train(&equal, 6);
    lab_close(&equal);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        for (int quantum = 1; quantum <= 16; quantum += 15) {
            lab l = open_lab(splits[i], quantum);
            int64_t offsets[3];
            const double loss = train(&l, 6);
            if (!(fabs(loss - want) <= 1e-5 * want))
                fail_msg("%g:%g by %d: loss %.9g, not %.9g", splits[i][0], splits[i][1], quantum,
                         loss, want);
            ok(clt_store_check(l.store));
            ok(clt_split(BATCH - 100, 2, splits[i], quantum, offsets));
            assert_memory_equal(l.trainer->shares.offsets, offsets, sizeof offsets);
            lab_close(&l);
        }
}

static void test_bad_weights(void **state)
{
    (void)state;
    static const double none[] = {0, 0}, negative[] = {2, -1};
    lab l = lab_on(clt_test_devices("pocl@1,pocl@1"), NULL);
    lab_store(&l, build(), 3);
    clt_trainer_options options = options_of(none, 1);
    assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &l.trainer),
                     CLT_INVALID_ARGUMENT);
    options.weights = negative;
    assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &l.trainer),
                     CLT_INVALID_ARGUMENT);
    options = options_of(NULL, 0);
    assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &l.trainer),
                     CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "quantum"));
    lab_close(&l);
}

static char *section_of(clt_device *const *devices, int count, const double *weights,
                        int64_t quantum)
{
    static char identities[2 * CLT_SPLIT_IDENTITY];
    const clt_division division = {.identities = identities,
                                   .count = count,
                                   .ranks = 1,
                                   .weights = weights,
                                   .quantum = quantum};
    char *text;
    clt_split_identify(devices, count, identities);
    ok(clt_split_to_json(&division, &text));
    return text;
}

/* A checkpoint has the division, and tells whether it is for these devices. */
static void test_frozen(void **state)
{
    (void)state;
    static const double weights[] = {0.1, 1.0 / 3};
    double read[3] = {9, 9, 9};
    int use[3] = {7, 7, 7}, uneven;
    int64_t quantum, per_device;
    char *text;
    lab l = lab_on(clt_test_devices("pocl@1,pocl@1"), NULL);
    text = section_of(l.devices, 2, weights, 16);
    ok(clt_split_frozen(text, NULL, l.devices, 2, use, read, &quantum, &per_device, &uneven));
    assert_memory_equal(read, weights, sizeof weights);
    assert_true(use[0] && use[1] && uneven && quantum == 16);
    /* Fewer devices than the checkpoint names, and devices that it does not name. */
    assert_int_equal(
        clt_split_frozen(text, NULL, l.devices, 1, use, read, &quantum, &per_device, &uneven),
        CLT_MISMATCH);
    free(text);
    text = section_of(l.devices + 1, 1, NULL, 1);
    ok(clt_split_frozen(text, NULL, l.devices + 1, 1, use, read, &quantum, &per_device, &uneven));
    assert_true(use[0] && !uneven && quantum == 1);
    free(text);
    assert_int_equal(
        clt_split_frozen("{}", NULL, l.devices, 2, use, read, &quantum, &per_device, &uneven),
        CLT_FORMAT);
    assert_int_equal(clt_split_frozen("[not JSON", NULL, l.devices, 2, use, read, &quantum,
                                      &per_device, &uneven),
                     CLT_FORMAT);
    lab_close(&l);
}

static void test_checkpoint(void **state)
{
    (void)state;
    static const double weights[] = {5, 3};
    char dir[] = "/tmp/cltrain-planner-XXXXXX", command[64];
    double read[2];
    int use[2], uneven;
    int64_t quantum, per_device;
    clt_checkpoint *checkpoint;
    assert_non_null(mkdtemp(dir));
    lab l = open_lab(weights, 16);
    train(&l, 2);
    ok(clt_trainer_save(l.trainer, dir, (clt_position){0, 0}, BATCH, 0, 1, "test"));
    ok(clt_checkpoint_open(dir, &checkpoint));
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_SPLIT);
    assert_non_null(section);
    ok(clt_split_frozen(section->text, NULL, l.devices, 2, use, read, &quantum, &per_device,
                        &uneven));
    assert_memory_equal(read, weights, sizeof weights);
    assert_true(uneven && quantum == 16);
    clt_checkpoint_close(checkpoint);
    lab_close(&l);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* --- measuring ------------------------------------------------------------------------------- */

typedef struct answer {
    int uses[2], uneven;
    double weights[2];
    int64_t quantum;
    clt_prediction own, even, all, first;
} answer;

static answer ask(int choose)
{
    static const int only_first[] = {1, 0}, all[] = {1, 1};
    answer a = {{0}, 0, {0}, 0, {0}, {0}, {0}, {0}};
    clt_planner_options options;
    clt_planner *planner;
    lab l = lab_on(clt_test_devices("pocl@1,pocl@1"), NULL);
    clt_graph *graph = build();
    const clt_trainer_options trainer = options_of(NULL, 1);
    clt_planner_options_init(&options);
    options.choose = choose;
    options.seconds = 0.5;
    ok(clt_planner_create(graph, l.devices, 2, &trainer, &options, &planner));
    for (int d = 0; d < 2; d++)
        a.uses[d] = clt_planner_uses(planner, d);
    a.uneven = clt_planner_weights(planner, a.weights, &a.quantum);
    clt_prediction_init(&a.own);
    a.even = a.all = a.first = a.own;
    ok(clt_planner_predict(planner, NULL, 0, &a.own));
    ok(clt_planner_predict(planner, all, 1, &a.even));
    ok(clt_planner_predict(planner, all, 0, &a.all));
    ok(clt_planner_predict(planner, only_first, 0, &a.first));
    assert_non_null(strstr(clt_planner_text(planner), "predicted"));
    clt_planner_destroy(planner);
    clt_graph_destroy(graph);
    lab_close(&l);
    return a;
}

/* The predictions are consistent, whatever the speed of the devices. */
static void test_prediction(void **state)
{
    (void)state;
    const answer a = ask(0);
    assert_true(a.uses[0] && a.uses[1]);
    assert_true(a.weights[0] > 0 && a.weights[1] > 0);
    assert_int_equal(a.quantum > 1, a.uneven);
    assert_true(a.own.compute > 0 && a.own.update > 0 && a.own.reduction > 0);
    assert_true(fabs(a.own.step - a.own.compute - a.own.update - a.own.exposed) < 1e-9);
    assert_true(fabs(a.own.samples_per_second * a.own.step - BATCH) < 1e-6);
    assert_true(a.own.step <= a.even.step * (1 + 1e-9));
    assert_true(a.first.reduction == 0);
}

static void test_network(void **state)
{
    (void)state;
    clt_planner *planner;
    clt_link link;
    clt_prediction one, many;
    lab l = lab_on(clt_test_devices("pocl@1"), NULL);
    clt_graph *graph = build();
    const clt_trainer_options trainer = options_of(NULL, 1);
    clt_prediction_init(&one);
    clt_prediction_init(&many);
    ok(clt_link_parse("1MB/s,20us", &link)); /* too slow to be hidden by backward */
    ok(clt_planner_create(graph, l.devices, 1, &trainer, NULL, &planner));
    ok(clt_planner_simulate(planner, 1, &link, &one));
    ok(clt_planner_simulate(planner, 64, &link, &many));
    assert_true(one.efficiency == 1 && !strcmp(one.algorithm, ""));
    assert_true(many.step > one.step && many.efficiency < 1 && *many.algorithm);
    assert_true(fabs(many.efficiency - one.step / many.step) < 1e-9);
    assert_int_equal(clt_planner_simulate(planner, 0, &link, &many), CLT_INVALID_ARGUMENT);
    clt_planner_destroy(planner);
    clt_graph_destroy(graph);
    lab_close(&l);
}

#ifdef CLT_TESTING
/* A slow device multiplies disturbances of measurements on a busy machine. Such a measurement is
 * repeated. */
enum { ATTEMPTS = 5 };

/* A device that takes ten times as long gets a fraction of the other's share. */
static void test_slow(void **state)
{
    (void)state;
    clt_exec_testing_slow = "#1=10";
    answer a = ask(0);
    for (int again = 0; again < ATTEMPTS && !a.uneven; again++)
        a = ask(0);
    clt_exec_testing_slow = NULL;
    assert_true(a.uses[0] && a.uses[1] && a.uneven);
    if (!(a.weights[0] > 1.7 * a.weights[1]))
        fail_msg("weights %g and %g", a.weights[0], a.weights[1]);
    assert_true(a.own.step < a.even.step);
}

/* A device that takes ten times as long saves less than a twentieth, since devices must wait for
 * each other. It is left out, unless the user named it. */
static void test_left_out(void **state)
{
    (void)state;
    clt_exec_testing_slow = "#0=10";
    const answer chosen = ask(1), forced = ask(0);
    clt_exec_testing_slow = NULL;
    if (chosen.uses[0] || !chosen.uses[1])
        fail_msg("uses %d and %d; %.3g ms with both, %.3g ms with one", chosen.uses[0],
                 chosen.uses[1], 1e3 * chosen.all.step, 1e3 * chosen.own.step);
    assert_false(chosen.uneven);
    assert_true(chosen.all.step > 0.95 * chosen.own.step);
    assert_true(forced.uses[0] && forced.uses[1]);
    assert_true(forced.weights[1] >= forced.weights[0]);
}

/* A device that the user named gets samples, however slow it is. */
static void test_named(void **state)
{
    (void)state;
    clt_exec_testing_slow = "#0=60";
    answer forced = ask(0);
    for (int again = 0; again < ATTEMPTS && !forced.uneven; again++)
        forced = ask(0);
    clt_exec_testing_slow = NULL;
    assert_true(forced.uses[0] && forced.uses[1] && forced.uneven);
    assert_true(forced.weights[0] * BATCH >= (double)forced.quantum - 1e-3);
}

static void test_bad_slowness(void **state)
{
    (void)state;
    static const char *const bad[] = {"#1=0.5", "#1=two", "#1=2@-1", "#1=2x"};
    lab l = lab_on(clt_test_devices("pocl@1,pocl@1"), NULL);
    lab_store(&l, build(), 3);
    const clt_trainer_options options = options_of(NULL, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        clt_exec_testing_slow = bad[i];
        assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &l.trainer),
                         CLT_INVALID_ARGUMENT);
        assert_non_null(strstr(clt_error_message(), "FACTOR"));
    }
    clt_exec_testing_slow = NULL;
    lab_close(&l);
}
#endif

static int at_once(void *user)
{
    (void)user;
    return 1;
}

static void test_stopped(void **state)
{
    (void)state;
    clt_planner *planner;
    clt_planner_options planning;
    const clt_trainer_options options = options_of(NULL, 1);
    lab l = lab_on(clt_test_devices("pocl@1,pocl@1"), NULL);
    l.graph = build();
    clt_planner_options_init(&planning);
    planning.stop = at_once;
    assert_int_equal(clt_planner_create(l.graph, l.devices, l.n, &options, &planning, &planner),
                     CLT_STOPPED);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),      cmocka_unit_test(test_bad_weights),
        cmocka_unit_test(test_frozen),       cmocka_unit_test(test_checkpoint),
        cmocka_unit_test(test_stopped),      cmocka_unit_test(test_prediction),
        cmocka_unit_test(test_network),
#ifdef CLT_TESTING
        cmocka_unit_test(test_slow),         cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_bad_slowness), cmocka_unit_test(test_named),
#endif
    };
    make_samples(xs, labels, BATCH, IN, CLASSES);
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
