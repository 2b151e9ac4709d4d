/* Gradients in 16 bits between ranks: residuals through checkpoints, on the same ranks, on other
 * numbers of ranks, and after a device is lost. */
#include "train/world.h"

#include "train/lab_scratch.h"
#include "exec/testing/lose.h"
#include "train/core/trainer.h"
#include <cltrain/checkpoint.h>
#include <cltrain/fit.h>

enum {
    IN = 12,
    WIDE = 16,
    CLASSES = 4,
    BATCH = 24,
    FLOATS = WIDE * IN + 256,
    BEFORE = 3,
    AFTER = 3
};

static float xs[BATCH * IN];
static int32_t labels[BATCH];
static char folder[300];

/* What a rank does, and what it has at the end. */
typedef struct course {
    const char *devices;
    bool restores, saves;
    int steps;               /* behind the checkpoint */
    double restored[FLOATS]; /* residuals of this rank's senders, added up by element */
    double ended[FLOATS];
    float weights[WIDE * IN];
} course;

static clt_status open_rank(lab *l, const char *devices, const clt_world *world)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_MOMENTUM;
    options.batch = 2 * BATCH; /* one device may have what another has of two */
    options.wire = CLT_BF16;
    options.poison = 1;
    options.comm_timeout = 60;
    options.world = world;
    return lab_of_rank(l, devices, classifier(IN, WIDE, CLASSES), &options);
}

/* Divides the batch equally over the ranks. */
static clt_status step(const rank *self, lab *l)
{
    const int64_t first = BATCH * self->number / self->world.ranks;
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs + first * IN)},
                              {"label", -1, CLT_HOST(labels + first)}};
    clt_step_batch batch = lab_batch(feeds, BATCH / self->world.ranks);
    batch.first = first;
    batch.total = BATCH;
    const clt_status status = clt_trainer_step(l->trainer, &batch, NULL);
    return status == CLT_OK ? clt_trainer_wait(l->trainer) : status;
}

/* Adds up the residuals of this rank that no other rank has. */
static clt_status add_up(const lab *l, double *sums)
{
    const clt_trainer *t = l->trainer;
    const clt_buckets *layout = &l->store->layout;
    static _Thread_local float data[FLOATS];
    int at = 0;
    memset(sums, 0, FLOATS * sizeof *sums);
    for (int b = 0; b < layout->n_buckets; b++) {
        const int count = (int)(layout->buckets[b].bytes / 4);
        if (layout->buckets[b].state)
            continue;
        if (at + count > FLOATS)
            return clt_error_set(CLT_INTERNAL, "the test has no room");
        for (int d = 0; d < t->all.own && t->exchange.wire.rounds; d++) {
            CLT_TRY(clt_replica_read(&l->store->replicas[d], l->store->replicas[d].residuals[b], 0,
                                     (int64_t)count * 4, data));
            for (int i = 0; i < count; i++)
                sums[at + i] += (double)data[i];
        }
        for (int k = 0; k < CLT_ROUNDINGS && t->exchange.wire.sums; k++) {
            if (t->exchange.collectives.residual_has(t->exchange.wire.sums[b], k) != 1)
                continue;
            t->exchange.collectives.residual_get(t->exchange.wire.sums[b], k, data);
            for (int i = 0; i < count; i++)
                sums[at + i] += (double)data[i];
        }
        for (int i = 0; t->parked && i < count; i++)
            sums[at + i] += (double)t->parked[b][i];
        at += count;
    }
    return CLT_OK;
}

static bool steps(rank *self, lab *l, int count)
{
    bool good = true;
    for (int s = 0; s < count && good; s++)
        good = HOLDS(self, step(self, l) == CLT_OK);
    return good;
}

/* Rank 0 reads the files. The others need not have them. */
static bool resume(rank *self, lab *l)
{
    const char *path = self->number ? "/nowhere" : folder;
    clt_position position;
    int64_t seed;
    return HOLDS(self, clt_trainer_restore(l->trainer, path, &position, &seed) == CLT_OK) &&
           HOLDS(self, clt_trainer_broadcast(l->trainer, 0) == CLT_OK) &&
           HOLDS(self, clt_trainer_steps(l->trainer) == BEFORE);
}

static void run_rank(rank *self)
{
    course *c = self->argument;
    lab l = {0};
    bool good = HOLDS(self, open_rank(&l, c->devices, &self->world) == CLT_OK);
    if (good && c->restores)
        good = steps(self, &l, 1) && resume(self, &l);
    else if (good)
        good = steps(self, &l, BEFORE);
    good = good && HOLDS(self, add_up(&l, c->restored) == CLT_OK);
    if (good && c->saves)
        good = HOLDS(self, clt_trainer_save(l.trainer, folder, (clt_position){0, 0}, BATCH, 1, 0,
                                            NULL) == CLT_OK);
    good = good && steps(self, &l, c->steps) && HOLDS(self, add_up(&l, c->ended) == CLT_OK);
    if (good) {
        HOLDS(self, clt_store_check(l.store) == CLT_OK);
        HOLDS(self, clt_store_get(l.store, "a.weight", c->weights, sizeof c->weights) == CLT_OK);
    }
    lab_close(&l);
}

/* Runs ranks of which each does the same. */
static void run(int count, const course *same, course *courses)
{
    rank ranks[RANKS_MOST];
    for (int r = 0; r < count; r++)
        courses[r] = *same;
    run_ranks(ranks, count, run_rank, courses, sizeof *courses);
    for (int r = 1; r < count; r++)
        assert_memory_equal(courses[0].weights, courses[r].weights, sizeof courses[0].weights);
}

static void begin(void)
{
    if (clt_test_oclgrind()) /* it fails if threads use it at the same time */
        skip();
    snprintf(folder, sizeof folder, "%s/run", scratch);
    make_samples(xs, labels, BATCH, IN, CLASSES);
}

static void the_same_ranks_go_on_with_the_same_bits(void **state)
{
    static course first[RANKS_MOST], second[RANKS_MOST];
    static const char *const devices[] = {"cpu@1", "cpu/2"};
    (void)state;
    begin();
    for (int i = 0; i < 2; i++) {
        run(2, &(course){.devices = devices[i], .saves = true, .steps = AFTER}, first);
        run(2, &(course){.devices = devices[i], .restores = true, .steps = AFTER}, second);
        for (int r = 0; r < 2; r++) {
            assert_memory_equal(first[r].restored, second[r].restored, sizeof first->restored);
            assert_memory_equal(first[r].ended, second[r].ended, sizeof first->ended);
            assert_memory_equal(first[r].weights, second[r].weights, sizeof first->weights);
        }
        scratch_remove_tree(folder);
    }
}

/* Returns the largest difference between the residuals of two runs, each added up over ranks. */
static double apart(const course *a, int ranks_a, const course *b, int ranks_b, double *largest)
{
    double most = 0;
    *largest = 0;
    for (int i = 0; i < FLOATS; i++) {
        double sum[2] = {0};
        for (int r = 0; r < ranks_a; r++)
            sum[0] += a[r].restored[i];
        for (int r = 0; r < ranks_b; r++)
            sum[1] += b[r].restored[i];
        *largest = fmax(*largest, fabs(sum[0]));
        most = fmax(most, fabs(sum[0] - sum[1]));
    }
    return most;
}

static void nothing_is_lost_on_other_numbers_of_ranks(void **state)
{
    static course first[RANKS_MOST], second[RANKS_MOST];
    static const int counts[] = {3, 1, 4};
    double largest;
    (void)state;
    begin();
    run(2, &(course){.devices = "cpu@1", .saves = true, .steps = AFTER}, first);
    for (int i = 0; i < 3; i++) {
        run(counts[i], &(course){.devices = "cpu@1", .restores = true, .steps = AFTER}, second);
        assert_true(apart(first, 2, second, counts[i], &largest) <= 1e-6 * largest);
        assert_true(largest > 0);
    }
    scratch_remove_tree(folder);
}

#ifdef CLT_TESTING
/* Rank 0 loses its second device, and this device's residuals. */
static void lose_rank(rank *self)
{
    course *c = self->argument;
    double lost[FLOATS] = {0};
    int redo = -1;
    lab l = {0};
    bool good = HOLDS(self, open_rank(&l, c->devices, &self->world) == CLT_OK) &&
                steps(self, &l, BEFORE) && HOLDS(self, add_up(&l, c->restored) == CLT_OK);
    if (good && l.n > 1) {
        const int own = l.trainer->all.own;
        l.trainer->all.own = 1; /* what the first device has, beside the sums of the rank */
        good = HOLDS(self, add_up(&l, lost) == CLT_OK);
        l.trainer->all.own = own;
        memcpy(c->restored, lost, sizeof lost);
    }
    if (good) {
        self->status = step(self, &l);
        good = HOLDS(self, self->status == CLT_DEVICE_LOST || self->status == CLT_ABORTED) &&
               HOLDS(self, clt_trainer_recover(l.trainer, &redo) == CLT_OK) &&
               HOLDS(self, l.trainer->all.own == 1) &&
               HOLDS(self, clt_trainer_steps(l.trainer) == BEFORE) &&
               HOLDS(self, add_up(&l, c->ended) == CLT_OK) && steps(self, &l, AFTER);
    }
    if (good) {
        HOLDS(self, clt_store_check(l.store) == CLT_OK);
        HOLDS(self, clt_store_get(l.store, "a.weight", c->weights, sizeof c->weights) == CLT_OK);
    }
    lab_close(&l);
}

static void a_lost_device_takes_its_own_residuals(void **state)
{
    static course courses[2] = {{.devices = "cpu/2"}, {.devices = "cpu@1"}};
    rank ranks[2];
    char lose[16];
    double largest = 0;
    (void)state;
    begin();
    snprintf(lose, sizeof lose, "#1=%d", BEFORE);
    clt_exec_testing_lose = lose;
    run_ranks(ranks, 2, lose_rank, courses, sizeof *courses);
    clt_exec_testing_lose = NULL;
    assert_memory_equal(courses[0].weights, courses[1].weights, sizeof courses[0].weights);
    for (int i = 0; i < FLOATS; i++) {
        const double before = courses[0].restored[i] + courses[1].restored[i];
        const double after = courses[0].ended[i] + courses[1].ended[i];
        largest = fmax(largest, fabs(before));
        assert_true(fabs(before - after) <= 1e-6 * fabs(before) + 1e-9);
    }
    assert_true(largest > 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_ranks_go_on_with_the_same_bits),
        cmocka_unit_test(nothing_is_lost_on_other_numbers_of_ranks),
#ifdef CLT_TESTING
        cmocka_unit_test(a_lost_device_takes_its_own_residuals),
#endif
    };
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
