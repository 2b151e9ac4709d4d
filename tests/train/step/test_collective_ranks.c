/* Collectives of the graph on ranks that are threads of this program. tests/mpi uses processes. */
#include "train/world.h"

#include "train/normalised.h"
#include "train/core/trainer.h"

enum { STEPS = 5 };

static const double net_weights[] = {NET_MOST};

/* The settings of a rank. */
typedef struct plan {
    const char *devices;
    int64_t first, count; /* its samples */
    int accumulate;
    int tell_total;   /* whether the caller knows the global batch */
    int late;         /* the rank does not come to the second step */
    int tell_weights; /* whether the caller knows how many labels count */
    int evaluate;
} plan;

static clt_status open_rank(lab *l, const plan *p, const clt_world *world)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_MOMENTUM;
    options.batch = 4 * NET_MOST;
    options.accumulate = p->accumulate;
    options.comm_timeout = p->evaluate ? 60 : 2;
    options.check_every = 1;
    options.poison = 1;
    options.world = world;
    l->graph = net_graph();
    clt_status status = clt_devices_open(runtime, p->devices, NULL, &l->devices, &l->n);
    if (status == CLT_OK)
        status = clt_store_create(l->graph, l->devices, l->n, 5, &l->store);
    return status == CLT_OK ? clt_trainer_create(l->graph, l->store, &options, &l->trainer)
                            : status;
}

static clt_step_batch batch_of(const plan *p, clt_feed feeds[2])
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    feeds[0] = (clt_feed){"x", -1, CLT_HOST(net_xs + p->first * NET_IN)};
    feeds[1] = (clt_feed){"label", -1, CLT_HOST(net_labels + p->first)};
    batch.count = p->count;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    if (p->tell_total) {
        batch.first = p->first;
        batch.total = NET_MOST;
    }
    if (p->tell_weights)
        batch.loss_weights = net_weights;
    return batch;
}

/* Finds the micro-batch of each sample of the whole batch. */
static void find_groups(const clt_trainer *t, int *group)
{
    int at = 0;
    for (int p = 0; p < t->all.total; p++) {
        const clt_share share = clt_share_of(&t->shares, t->shares.counts[p]);
        for (int m = 0; m < share.micro_batches; m++)
            for (int64_t i = clt_share_begin(&share, m); i < clt_share_begin(&share, m + 1); i++)
                group[at++] = m;
    }
}

static void check_step(rank *self, lab *l, const clt_step_batch *batch)
{
    float values[NET_PARAMETERS], before[NET_WIDE], after[NET_WIDE];
    double p[NET_PARAMETERS], want[NET_PARAMETERS], mean[NET_WIDE], error = 1;
    int group[NET_MOST] = {0};
    HOLDS(self, net_read(l->store, values) == CLT_OK);
    HOLDS(self, clt_store_get(l->store, "running", before, sizeof before) == CLT_OK);
    for (int i = 0; i < NET_PARAMETERS; i++)
        p[i] = (double)values[i];
    if (!HOLDS(self, clt_trainer_step(l->trainer, batch, NULL) == CLT_OK) ||
        !HOLDS(self, clt_trainer_wait(l->trainer) == CLT_OK))
        return;
    if (l->trainer->shares.max_micro_batches > 1)
        find_groups(l->trainer, group);
    net_gradient(p, group, NET_MOST, want);
    for (int d = 0; d < l->n; d++) {
        HOLDS(self, net_error(l->trainer, d, want, &error) == CLT_OK);
        HOLDS(self, error < 2e-6);
    }
    net_mean(p, NET_MOST, mean);
    HOLDS(self, clt_store_get(l->store, "running", after, sizeof after) == CLT_OK);
    for (int j = 0; j < NET_WIDE; j++)
        HOLDS(self, fabs((double)after[j] - 0.75 * (double)before[j] - 0.25 * mean[j]) < 1e-6);
    HOLDS(self, clt_store_check(l->store) == CLT_OK);
}

static void check_outside(rank *self, lab *l, const plan *p, clt_step_batch *batch)
{
    double sums[2] = {0}, weights[2] = {0}, want[NET_MOST][NET_CLASSES], at[NET_PARAMETERS];
    float have[NET_MOST][NET_CLASSES], values[NET_PARAMETERS];
    const clt_fetch fetch = {"logits", -1, CLT_HOST(have)};
    HOLDS(self, net_read(l->store, values) == CLT_OK);
    for (int i = 0; i < NET_PARAMETERS; i++)
        at[i] = (double)values[i];
    const double loss = net_loss(at, NULL, NET_MOST, want);
    HOLDS(self, clt_trainer_evaluate(l->trainer, batch, sums, weights) == CLT_OK);
    HOLDS(self, weights[0] == NET_MOST && fabs(sums[0] / NET_MOST - loss) < 1e-5);
    batch->fetches = &fetch;
    batch->n_fetches = 1;
    HOLDS(self, clt_trainer_predict(l->trainer, batch, NULL) == CLT_OK);
    HOLDS(self, clt_trainer_wait(l->trainer) == CLT_OK);
    for (int64_t i = 0; i < p->count; i++)
        for (int c = 0; c < NET_CLASSES; c++)
            HOLDS(self, fabs((double)have[i][c] - want[p->first + i][c]) < 1e-5);
}

static void train_rank(rank *self)
{
    const plan *p = self->argument;
    lab l = {0};
    clt_feed feeds[2];
    clt_step_batch batch = batch_of(p, feeds);
    float values[NET_PARAMETERS] = {0}, own[NET_WIDE] = {0};
    if (HOLDS(self, open_rank(&l, p, &self->world) == CLT_OK)) {
        for (int s = 0; s < STEPS && !*self->failed; s++)
            check_step(self, &l, &batch);
        /* check_outside expects that all samples are normalised together, which micro-batches do
         * not do. */
        if (p->accumulate == 1 && !*self->failed)
            check_outside(self, &l, p, &batch);
        HOLDS(self, net_read(l.store, values) == CLT_OK);
        HOLDS(self, clt_store_get(l.store, "own", own, sizeof own) == CLT_OK);
    }
    for (int i = 0; i < 4; i++) {
        self->numbers[i] = (double)values[i * 7];
        self->numbers[4 + i] = (double)own[i];
    }
    lab_close(&l);
}

static void give_parts(plan *plans, int count, const int64_t *sizes, const char *devices)
{
    int64_t first = 0;
    for (int r = 0; r < count; r++) {
        plans[r] = (plan){.devices = devices, .first = first, .count = sizes[r], .accumulate = 1};
        first += sizes[r];
    }
    assert_int_equal(first, NET_MOST);
}

/* Even, uneven and empty parts. A second run gives the same bits. */
static void ranks_give_what_one_process_gives(void **state)
{
    static const int64_t parts[][2] = {{12, 12}, {5, 19}, {0, 24}, {23, 1}};
    rank ranks[2], again[2];
    plan plans[2];
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int accumulate = 1; accumulate < 3; accumulate++) {
            give_parts(plans, 2, parts[i], i % 2 ? "cpu/2" : "cpu@1");
            for (int r = 0; r < 2; r++) {
                plans[r].accumulate = accumulate;
                plans[r].tell_total = i < 2;
                plans[r].evaluate = 1;
            }
            run_ranks(ranks, 2, train_rank, plans, sizeof *plans);
            assert_memory_equal(ranks[0].numbers, ranks[1].numbers, sizeof ranks[0].numbers);
            if (i != 1)
                continue;
            run_ranks(again, 2, train_rank, plans, sizeof *plans);
            assert_memory_equal(ranks[0].numbers, again[0].numbers, sizeof ranks[0].numbers);
        }
}

static void late_rank(rank *self)
{
    const plan *p = self->argument;
    lab l = {0};
    clt_feed feeds[2];
    const clt_step_batch batch = batch_of(p, feeds);
    const bool opened = HOLDS(self, open_rank(&l, p, &self->world) == CLT_OK);
    HOLDS(self, opened && clt_trainer_step(l.trainer, &batch, NULL) == CLT_OK);
    if (opened && !p->late) {
        self->status = clt_trainer_step(l.trainer, &batch, NULL);
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    }
    pthread_barrier_wait(&self->meeting->barrier); /* the late rank stays until then */
    lab_close(&l);
}

/* Rank 1 does not come to step 2. The message of rank 0 names that step and the first exchange that
 * it waits for. */
static void expect_late(int tell_weights, const char *exchange)
{
    static const int64_t halves[] = {12, 12};
    rank ranks[2];
    plan plans[2];
    give_parts(plans, 2, halves, "cpu@1");
    plans[0].tell_total = plans[1].tell_total = plans[1].late = 1;
    plans[0].tell_weights = plans[1].tell_weights = tell_weights;
    run_ranks(ranks, 2, late_rank, plans, sizeof *plans);
    assert_int_equal(ranks[0].status, CLT_TIMEOUT);
    if (!strstr(ranks[0].message, "step 2: ") || !strstr(ranks[0].message, exchange) ||
        !strstr(ranks[0].message, "rank 1"))
        fail_msg("%s", ranks[0].message);
}

static void who_is_late_is_named(void **state)
{
    (void)state;
    expect_late(0, "labels of the ranks");
    expect_late(1, "node statistics (all_reduce of f32[15])");
}

static int set_up(void **state)
{
    net_make_samples();
    return open_runtime(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_give_what_one_process_gives),
        cmocka_unit_test(who_is_late_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, close_runtime);
}
