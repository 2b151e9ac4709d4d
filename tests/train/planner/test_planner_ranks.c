/*
 * Ranks that plan together, as threads of this program (tests/mpi uses processes). All ranks find
 * the same division. It changes on all ranks after the same step, and can be repeated bit by bit.
 */
#include "train/planner/frozen.h"
#include "train/world.h"

#include "exec/testing/slow.h"
#include <cltrain/checkpoint.h>
#include <cltrain/data.h>
#include <cltrain/fit.h>
#include <cltrain/planner.h>

enum { IN = 96, HIDDEN = 256, CLASSES = 10, BATCH = 256, SAMPLES = 1500, MOST = 16 };

static float xs[SAMPLES * IN];
static int32_t labels[SAMPLES];

static clt_trainer_options options_of(const clt_world *world)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = BATCH;
    options.lr = 0.01;
    options.comm_timeout = 120;
    options.world = world;
    return options;
}

static clt_dataset *samples(rank *self)
{
    static const int64_t shape[] = {IN};
    clt_dataset *data = NULL;
    int label = 0;
    HOLDS(self, clt_dataset_create_arrays("samples", SAMPLES, &data) == CLT_OK);
    HOLDS(self,
          clt_dataset_add_field(data, "x", CLT_F32, 1, shape, xs, CLT_DATA_BORROW, NULL) == CLT_OK);
    HOLDS(self, clt_dataset_add_field(data, "label", CLT_I32, 0, NULL, labels, CLT_DATA_BORROW,
                                      &label) == CLT_OK);
    return data;
}

/* --- planning -------------------------------------------------------------------------------- */

typedef struct answer {
    const char *devices;
    int64_t batch;
    int choose, stops;
    int n, total, first, used, uneven;
    double weights[4];
    int64_t quantum, bucket_bytes;
    clt_prediction own, even, one;
    char text[1200];
    double loss; /* of a run with this division */
} answer;

static const char *const one_core = "pocl@1";

/* Closes the devices that the planner does not use. */
static void keep(lab *l, const clt_planner *planner)
{
    int kept = 0;
    for (int d = 0; d < l->n; d++)
        if (clt_planner_uses(planner, d))
            l->devices[kept++] = l->devices[d];
        else
            clt_device_close(l->devices[d]);
    l->n = kept;
}

static void on_step(void *user, const clt_progress *p)
{
    ((answer *)user)->loss = p->loss;
}

static void train_planned(rank *self, lab *l, clt_trainer_options *options)
{
    answer *a = self->argument;
    clt_dataset *data = samples(self);
    clt_fit_options fit;
    options->weights = a->uneven ? a->weights : NULL;
    options->quantum = a->quantum;
    HOLDS(self, clt_store_create(l->graph, l->devices, l->n, 3, &l->store) == CLT_OK);
    if (HOLDS(self, clt_trainer_create(l->graph, l->store, options, &l->trainer) == CLT_OK)) {
        clt_fit_options_init(&fit);
        fit.steps = 8; /* the sixth step is the last one of the epoch */
        fit.on_step = on_step;
        fit.user = a;
        HOLDS(self, clt_fit(l->trainer, data, NULL, &fit) == CLT_OK);
        HOLDS(self, clt_store_check(l->store) == CLT_OK);
    }
    clt_dataset_free(data);
}

/* Samples of this batch cost more than the constant part of a step, even on a busy machine. */
enum { LARGE = 1024 };

static int at_once(void *user)
{
    (void)user;
    return 1;
}

static void plan_rank(rank *self)
{
    static const int only_first[4] = {1};
    answer *a = self->argument;
    lab l = {.graph = classifier(IN, HIDDEN, CLASSES)};
    clt_planner_options planning;
    clt_planner *planner;
    clt_trainer_options options = options_of(&self->world);
    options.batch = a->batch ? a->batch : BATCH;
    clt_planner_options_init(&planning);
    planning.choose = a->choose;
    planning.seconds = 0.5;
    planning.stop = a->stops ? at_once : NULL;
    HOLDS(self, clt_devices_open(runtime, a->devices, NULL, &l.devices, &l.n) == CLT_OK);
    HOLDS(self, clt_world_count(&self->world, l.n, &a->first, &a->total) == CLT_OK);
    self->status = clt_planner_create(l.graph, l.devices, l.n, &options, &planning, &planner);
    snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    if (self->status == CLT_OK) {
        a->bucket_bytes = clt_planner_bucket_bytes(planner);
        a->uneven = clt_planner_weights(planner, a->weights, &a->quantum);
        clt_prediction_init(&a->own);
        a->even = a->one = a->own;
        HOLDS(self, clt_planner_predict(planner, NULL, 0, &a->own) == CLT_OK);
        HOLDS(self, clt_planner_predict(planner, NULL, 1, &a->even) == CLT_OK);
        HOLDS(self, clt_planner_predict(planner, only_first, 0, &a->one) == CLT_OK);
        snprintf(a->text, sizeof a->text, "%s", clt_planner_text(planner));
        a->n = l.n;
        keep(&l, planner);
        a->used = l.n;
        clt_planner_destroy(planner);
        train_planned(self, &l, &options);
    }
    lab_close(&l);
}

static void expect_alike(const answer *answers, int ranks)
{
    for (int r = 1; r < ranks; r++) {
        assert_int_equal(answers[r].uneven, answers[0].uneven);
        assert_int_equal(answers[r].quantum, answers[0].quantum);
        assert_int_equal(answers[r].bucket_bytes, answers[0].bucket_bytes);
        assert_memory_equal(answers[r].weights, answers[0].weights, sizeof answers[0].weights);
        assert_string_equal(answers[r].text, answers[0].text);
        assert_true(answers[r].own.step == answers[0].own.step);
        assert_true(answers[r].loss == answers[0].loss);
    }
}

/* The predictions are consistent, and training follows them. */
static void test_together(void **state)
{
    answer answers[3] = {{.devices = one_core}, {.devices = one_core}, {.devices = one_core}};
    answer alone[1] = {{.devices = one_core}};
    rank ranks[3];
    (void)state;
    run_ranks(ranks, 1, plan_rank, alone, sizeof *alone);
    assert_int_equal(ranks[0].status, CLT_OK);
    for (int n = 2; n <= 3; n++) {
        run_ranks(ranks, n, plan_rank, answers, sizeof *answers);
        for (int r = 0; r < n; r++) {
            const answer *a = &answers[r];
            if (ranks[r].status != CLT_OK)
                fail_msg("rank %d: %s", r, ranks[r].message);
            assert_int_equal(alone[0].bucket_bytes, 0);
            assert_true(a->total == n && a->first == r && a->used == 1);
            assert_true(a->own.reduction > 0 && a->own.exposed > 0);
            assert_true(fabs(a->own.step - a->own.compute - a->own.update - a->own.exposed) < 1e-9);
            assert_true(a->own.step <= a->even.step * (1 + 1e-9));
            /* The gradients of other ranks are still reduced. */
            assert_true(a->one.reduction > 0);
            assert_non_null(strstr(a->text, "rank 1, "));
            /* The reduction runs on the cores that compute. */
            assert_int_equal(a->bucket_bytes, 32 << 20);
            assert_non_null(strstr(a->text, "gradients in 1 bucket, of whatever size\n"));
            if (!(fabs(a->loss - alone[0].loss) <= 1e-5 * alone[0].loss))
                fail_msg("loss %.9g, one process has %.9g", a->loss, alone[0].loss);
        }
        expect_alike(answers, n);
    }
}

static void test_unlike(void **state)
{
    answer answers[2] = {{.devices = one_core}, {.devices = one_core, .batch = BATCH / 2}};
    rank ranks[2];
    (void)state;
    run_ranks(ranks, 2, plan_rank, answers, sizeof *answers);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, CLT_MISMATCH);
        assert_non_null(strstr(ranks[r].message, "rank 1 has another batch than rank 0"));
    }
    answers[1] = (answer){.devices = one_core, .batch = -1};
    run_ranks(ranks, 2, plan_rank, answers, sizeof *answers);
    assert_int_equal(ranks[1].status, CLT_INVALID_ARGUMENT);
    assert_int_equal(ranks[0].status, CLT_ABORTED);
    assert_non_null(strstr(ranks[0].message, "rank 1 failed: "));
}

/* One rank stops, which ends measuring on all ranks. */
static void test_stopped(void **state)
{
    answer answers[2] = {{.devices = one_core}, {.devices = one_core, .stops = 1}};
    rank ranks[2];
    (void)state;
    run_ranks(ranks, 2, plan_rank, answers, sizeof *answers);
    assert_int_equal(ranks[1].status, CLT_STOPPED);
    assert_int_equal(ranks[0].status, CLT_ABORTED);
    assert_non_null(strstr(ranks[0].message, "rank 1 failed: stopped"));
}

#ifdef CLT_TESTING
/* Plans on two ranks. A slow rank multiplies disturbances of measurements on a busy machine. Such a
 * measurement is repeated. */
static void run_until_uneven(rank *ranks, answer *answers)
{
    enum { ATTEMPTS = 6 };
    for (int i = 0; i < ATTEMPTS && (!i || !answers[0].uneven); i++)
        run_ranks(ranks, 2, plan_rank, answers, sizeof *answers);
}

/* A rank that takes ten times as long gets a fraction of the other's share. */
static void test_slow(void **state)
{
    answer answers[2] = {{.devices = one_core, .batch = LARGE},
                         {.devices = one_core, .batch = LARGE}};
    rank ranks[2];
    (void)state;
    clt_exec_testing_slow = "rank1:=10";
    run_until_uneven(ranks, answers);
    clt_exec_testing_slow = NULL;
    assert_int_equal(ranks[0].status, CLT_OK);
    if (!(answers[0].uneven && answers[0].weights[0] > 1.7 * answers[0].weights[1]))
        fail_msg("uneven %d, weights %g and %g: %s", answers[0].uneven, answers[0].weights[0],
                 answers[0].weights[1], answers[0].text);
    assert_true(answers[0].own.step < answers[0].even.step);
    expect_alike(answers, 2);
}

/* A very slow rank gets no samples, but stays in the job. It keeps one of its devices. If a rank
 * names its devices, all of them get samples. */
static void test_idle(void **state)
{
    answer answers[2] = {{.devices = one_core, .choose = 1},
                         {.devices = "pocl@1,pocl@1", .choose = 1}};
    rank ranks[2];
    (void)state;
    clt_exec_testing_slow = "rank1:=100";
    run_ranks(ranks, 2, plan_rank, answers, sizeof *answers);
    assert_int_equal(ranks[0].status, CLT_OK);
    assert_int_equal(answers[1].n, 2);
    assert_true(answers[0].total == 3 && answers[0].used == 1 && answers[1].used == 1);
    assert_true(answers[0].uneven && answers[0].weights[0] > 0 && answers[0].weights[1] == 0);
    assert_non_null(strstr(answers[0].text, "gets no samples: with it a step would take"));
    assert_non_null(strstr(answers[0].text, "is left out: with it a step would take"));
    expect_alike(answers, 2);
    answers[0].batch = answers[1].batch = LARGE;
    answers[1].devices = one_core;
    answers[1].choose = 0;
    clt_exec_testing_slow = "rank1:=20";
    run_until_uneven(ranks, answers);
    clt_exec_testing_slow = NULL;
    assert_int_equal(ranks[0].status, CLT_OK);
    if (!(answers[0].uneven && answers[0].weights[0] > 2 * answers[0].weights[1]))
        fail_msg("uneven %d, weights %g and %g: %s", answers[0].uneven, answers[0].weights[0],
                 answers[0].weights[1], answers[0].text);
    expect_alike(answers, 2);
}
#endif

/* --- whole runs ------------------------------------------------------------------------------ */

/* The settings of a rank's run, and what the run saw. */
typedef struct course {
    int64_t steps;
    const double *weights; /* at the beginning */
    const clt_split_change *splits;
    int n_splits, resume;
    const char *dir;
    int64_t bucket_bytes; /* of the store; a resumed run takes the checkpoint's */
    double clip_norm;
    clt_split_change changes[MOST];
    double seen[MOST][2];
    int count;
    float parameters[HIDDEN * IN];
} course;

static void on_course(void *user, const clt_progress *p)
{
    course *c = user;
    if (!p->split || p->n_split != 2 || c->count == MOST)
        return;
    memcpy(c->seen[c->count], p->split, sizeof c->seen[0]);
    c->changes[c->count++] = (clt_split_change){p->step, NULL, p->quantum};
}

static clt_status read_division(rank *self, lab *l, clt_trainer_options *options, double *weights)
{
    course *c = self->argument;
    int use[1], uneven;
    clt_checkpoint *checkpoint = NULL;
    /* The other ranks may lack the file. */
    if (self->number == 0 && clt_checkpoint_open(c->dir, &checkpoint) != CLT_OK)
        return CLT_IO;
    const clt_section *section =
        checkpoint ? clt_checkpoint_section(checkpoint, CLT_SECTION_SPLIT) : NULL;
    const char *text = section ? section->text : NULL;
    clt_status status = clt_split_frozen(text, &self->world, l->devices, l->n, use, weights,
                                         &options->quantum, &options->per_device, &uneven);
    if (status == CLT_OK)
        status = clt_split_frozen_buckets(text, &self->world, &c->bucket_bytes);
    options->weights = uneven ? weights : NULL;
    clt_checkpoint_close(checkpoint);
    return status;
}

static void run_course(rank *self)
{
    course *c = self->argument;
    lab l = {.graph = classifier(IN, HIDDEN, CLASSES)};
    double weights[RANKS_MOST];
    clt_dataset *data = samples(self);
    clt_fit_options fit;
    clt_store_options store;
    clt_trainer_options options = options_of(&self->world);
    options.rebalance = 1;
    options.weights = c->weights;
    options.clip_norm = c->clip_norm;
    c->count = 0;
    HOLDS(self, clt_devices_open(runtime, one_core, NULL, &l.devices, &l.n) == CLT_OK);
    if (c->resume)
        HOLDS(self, read_division(self, &l, &options, weights) == CLT_OK);
    clt_store_options_init(&store);
    store.seed = 3;
    store.bucket_bytes = c->bucket_bytes;
    HOLDS(self, clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store) == CLT_OK);
    if (HOLDS(self, clt_trainer_create(l.graph, l.store, &options, &l.trainer) == CLT_OK)) {
        clt_fit_options_init(&fit);
        fit.steps = c->steps;
        fit.splits = c->splits;
        fit.n_splits = c->n_splits;
        fit.checkpoint_dir = c->dir;
        fit.resume = c->resume;
        fit.on_step = on_course;
        fit.user = c;
        HOLDS(self, clt_fit(l.trainer, data, NULL, &fit) == CLT_OK);
        HOLDS(self, clt_trainer_steps(l.trainer) == c->steps);
        HOLDS(self,
              clt_store_get(l.store, "a.weight", c->parameters, sizeof c->parameters) == CLT_OK);
    }
    lab_close(&l);
    clt_dataset_free(data);
}

/* Runs two ranks, and checks that their replicas and changes are the same. */
static void run_two(const course *given, course *both)
{
    rank ranks[2];
    both[0] = both[1] = *given;
    run_ranks(ranks, 2, run_course, both, sizeof *both);
    assert_memory_equal(both[0].parameters, both[1].parameters, sizeof both[0].parameters);
    assert_int_equal(both[0].count, both[1].count);
    assert_memory_equal(both[0].seen, both[1].seen, sizeof both[0].seen);
}

/* A run with the same changes and a run in two parts end with the same bits, across the ends of
 * epochs. Equal shares give the same results up to rounding. */
static void test_repeat(void **state)
{
    static const double first[] = {0.75, 0.25}, second[] = {0, 1};
    static const clt_split_change splits[] = {{4, first, 16}, {11, second, 1}};
    static course once[2], again[2], parts[2], equal[2];
    char dir[] = "/tmp/cltrain-ranks-XXXXXX", command[64];
    (void)state;
    course given = {.steps = 20, .splits = splits, .n_splits = 2};
    run_two(&given, once);
    assert_int_equal(once[0].count, 3);
    assert_true(once[0].changes[1].step == 4 && once[0].changes[2].step == 11);
    assert_memory_equal(once[0].seen[2], second, sizeof second);
    run_two(&given, again);
    assert_memory_equal(once[0].parameters, again[0].parameters, sizeof once[0].parameters);
    run_two(&(course){.steps = 20, .splits = splits}, equal);
    for (int i = 0; i < HIDDEN * IN; i++)
        assert_true(fabsf(equal[0].parameters[i] - once[0].parameters[i]) <= 1e-5f);
    assert_non_null(mkdtemp(dir));
    given.steps = 14;
    given.dir = dir;
    run_two(&given, parts);
    run_two(&(course){.steps = 20, .splits = splits, .dir = dir, .resume = 1}, parts);
    assert_memory_equal(once[0].parameters, parts[0].parameters, sizeof once[0].parameters);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* The norm of clipped gradients depends on the buckets, so a checkpoint has their size. */
static void test_repeat_buckets(void **state)
{
    static course once[2], parts[2];
    char dir[] = "/tmp/cltrain-ranks-XXXXXX", command[64];
    (void)state;
    course given = {.steps = 12, .bucket_bytes = 5000, .clip_norm = 0.05};
    run_two(&given, once);
    assert_non_null(mkdtemp(dir));
    given.steps = 7;
    given.dir = dir;
    run_two(&given, parts);
    run_two(&(course){.steps = 12, .dir = dir, .resume = 1, .clip_norm = 0.05}, parts);
    assert_true(parts[0].bucket_bytes == 5000 && parts[1].bucket_bytes == 5000);
    assert_memory_equal(once[0].parameters, parts[0].parameters, sizeof once[0].parameters);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void unlike_buckets(rank *self)
{
    lab l = {.graph = classifier(IN, HIDDEN, CLASSES)};
    const clt_trainer_options options = options_of(&self->world);
    clt_store_options store;
    clt_store_options_init(&store);
    store.bucket_bytes = self->number ? 5000 : 0;
    HOLDS(self, clt_devices_open(runtime, one_core, NULL, &l.devices, &l.n) == CLT_OK);
    HOLDS(self, clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store) == CLT_OK);
    self->status = clt_trainer_create(l.graph, l.store, &options, &l.trainer);
    snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    lab_close(&l);
}

static void test_unlike_buckets(void **state)
{
    rank ranks[2];
    (void)state;
    run_ranks(ranks, 2, unlike_buckets, NULL, 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, CLT_MISMATCH);
        assert_non_null(strstr(ranks[r].message, "rank 1 has another layout of parameters"));
    }
}

/* --- divisions of other devices --------------------------------------------------------------- */

static void read_rank(rank *self)
{
    static const char of_one[] = "{\"devices\":[\"x\"],\"weights\":[],\"quantum\":1}";
    static const char of_two[] =
        "{\"devices\":[\"x\",\"x\"],\"ranks\":[1,1],\"weights\":[1,2],\"quantum\":1}";
    const char *const texts[] = {of_one, of_two, "", "{"};
    const clt_status wants[] = {CLT_MISMATCH, CLT_MISMATCH, CLT_NOT_FOUND, CLT_FORMAT};
    double weights[RANKS_MOST] = {7};
    int use[1], uneven;
    int64_t quantum, per_device;
    lab l = {0};
    HOLDS(self, clt_devices_open(runtime, one_core, NULL, &l.devices, &l.n) == CLT_OK);
    for (int i = 0; i < 4; i++)
        HOLDS(self, clt_split_frozen(self->number ? NULL : texts[i], &self->world, l.devices, l.n,
                                     use, weights, &quantum, &per_device, &uneven) == wants[i]);
    HOLDS(self, weights[0] == 7);
    lab_close(&l);
}

static void test_other_section(void **state)
{
    rank ranks[2];
    (void)state;
    run_ranks(ranks, 2, read_rank, NULL, 0);
}

/* Three ranks of two devices resume a checkpoint of three ranks of one device. */
static void read_fewer(rank *self)
{
    char identities[2][CLT_SPLIT_IDENTITY], text[4 * CLT_SPLIT_IDENTITY];
    double weights[] = {7, 7, 7, 7, 7, 7};
    int use[2], uneven;
    int64_t quantum, per_device;
    lab l = {0};
    HOLDS(self, clt_devices_open(runtime, "pocl/2", NULL, &l.devices, &l.n) == CLT_OK && l.n == 2);
    clt_split_identify(l.devices, 2, identities[0]);
    snprintf(text, sizeof text,
             "{\"devices\":[\"%s\",\"%s\",\"%s\"],\"ranks\":[1,1,1],\"weights\":[1,2,3],"
             "\"quantum\":4}",
             identities[0], identities[0], identities[0]);
    HOLDS(self, clt_split_frozen(text, &self->world, l.devices, l.n, use, weights, &quantum,
                                 &per_device, &uneven) == CLT_OK);
    HOLDS(self, use[0] == 1 && use[1] == 0 && quantum == 4 && uneven == 1);
    /* Weights of devices that the checkpoint lacks are neither written nor read. */
    for (int i = 0; i < 6; i++)
        HOLDS(self, weights[i] == (i < 3 ? i + 1 : 7));
    strcpy(strstr(text, "[1,1,1]"), "[1,1,0],\"weights\":[1,2,3],\"quantum\":4}");
    HOLDS(self, clt_split_frozen(text, &self->world, l.devices, l.n, use, weights, &quantum,
                                 &per_device, &uneven) == CLT_FORMAT);
    strcpy(strstr(text, "[1,1,0]"), "[1,1],\"weights\":[1,2,3],\"quantum\":4}");
    HOLDS(self, clt_split_frozen(text, &self->world, l.devices, l.n, use, weights, &quantum,
                                 &per_device, &uneven) == CLT_MISMATCH);
    lab_close(&l);
}

static void test_more_devices(void **state)
{
    rank ranks[3];
    (void)state;
    run_ranks(ranks, 3, read_fewer, NULL, 0);
}

#ifdef CLT_TESTING
/* A rank becomes slow, so its share falls on all ranks after the same step. Replaying the changes
 * gives the same bits. */
static void test_straggler(void **state)
{
    static course found[2], repeated[2];
    (void)state;
    clt_exec_testing_slow = "rank1:=8@20";
    run_two(&(course){.steps = 90}, found);
    clt_exec_testing_slow = NULL;
    const int count = found[0].count;
    assert_true(count >= 2 && count < MOST);
    const double *last = found[0].seen[count - 1];
    if (!(last[0] > 1.7 * last[1]))
        fail_msg("weights %g and %g", last[0], last[1]);
    for (int i = 0; i < count; i++)
        found[0].changes[i].weights = found[0].seen[i];
    run_two(&(course){.steps = 90, .splits = found[0].changes + 1, .n_splits = count - 1},
            repeated);
    assert_int_equal(repeated[0].count, count);
    assert_memory_equal(found[0].parameters, repeated[0].parameters, sizeof found[0].parameters);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together),       cmocka_unit_test(test_unlike),
        cmocka_unit_test(test_stopped),        cmocka_unit_test(test_repeat),
        cmocka_unit_test(test_other_section),  cmocka_unit_test(test_more_devices),
        cmocka_unit_test(test_repeat_buckets), cmocka_unit_test(test_unlike_buckets),
#ifdef CLT_TESTING
        cmocka_unit_test(test_slow),           cmocka_unit_test(test_idle),
        cmocka_unit_test(test_straggler),
#endif
    };
    make_samples(xs, labels, SAMPLES, IN, CLASSES);
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
