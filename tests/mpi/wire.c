/*
 * Gradients in 16 bits with error feedback over MPI: `wire DEVICES`. Each rounding and residual of
 * devices, ranks, nodes and owners is computed again from the f32 gradients that the devices keep.
 */
#include <mpi.h>

#include "support/rounding.h"
#include "train/lab.h"

#include "train/core/trainer.h"
#include <cltrain/mpi.h>

enum { BATCH = 24, IN = 37, HIDDEN = 50, CLASSES = 7, STEPS = 5, FLOATS = 4096, MOST = 8 };

static clt_world world;
static const char *devices;
static float xs[BATCH * IN];
static int32_t labels[BATCH];

/* The residuals of a bucket: of the rank's devices, and of its roundings. */
typedef struct residuals {
    float device[MOST][FLOATS], of[CLT_ROUNDINGS][FLOATS];
} residuals;

static lab make(clt_dtype wire)
{
    clt_store_options stored;
    clt_trainer_options options;
    lab l = {0};
    clt_store_options_init(&stored);
    clt_trainer_options_init(&options);
    stored.bucket_bytes = 4096;
    options.optimizer = CLT_MOMENTUM;
    options.batch = BATCH;
    options.wire = wire;
    options.world = &world;
    ok(clt_devices_open(runtime, devices, NULL, &l.devices, &l.n));
    l.graph = classifier(IN, HIDDEN, CLASSES);
    ok(clt_store_create_with(l.graph, l.devices, l.n, &stored, &l.store));
    ok(clt_trainer_create(l.graph, l.store, &options, &l.trainer));
    return l;
}

static void step(lab *l)
{
    const int64_t first = BATCH * world.rank / world.ranks;
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs + first * IN)},
                              {"label", -1, CLT_HOST(labels + first)}};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.first = first;
    batch.count = BATCH / world.ranks;
    batch.total = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_wait(l->trainer));
}

static int64_t count_of(const lab *l, int bucket)
{
    const clt_bucket *b = &l->store->layout.buckets[bucket];
    return b->state ? 0 : b->bytes / 4;
}

static int has(const lab *l, int bucket, int rounding)
{
    const clt_exchange *e = &l->trainer->exchange;
    return e->collectives.residual_has(e->wire.sums[bucket], rounding);
}

static void read_residuals(const lab *l, int bucket, residuals *r)
{
    const clt_exchange *e = &l->trainer->exchange;
    assert_true(count_of(l, bucket) <= FLOATS && l->n <= MOST);
    memset(r, 0, sizeof *r);
    for (int d = 0; d < l->n; d++)
        ok(clt_replica_read(&l->store->replicas[d], l->store->replicas[d].residuals[bucket], 0,
                            count_of(l, bucket) * 4, r->device[d]));
    for (int k = 0; k < CLT_ROUNDINGS; k++)
        if (has(l, bucket, k))
            e->collectives.residual_get(e->wire.sums[bucket], k, r->of[k]);
}

static void equal(float a, float b, const char *what, int bucket, int64_t i)
{
    if (memcmp(&a, &b, sizeof a) && (a != 0 || b != 0))
        fail_msg("rank %d, %s, bucket %d, element %d: %.9g, not %.9g", world.rank, what, bucket,
                 (int)i, (double)a, (double)b);
}

/* Rounds sum + residual. Checks the residual that this rank has after the step, if it has one. */
static float round_sum(float sum, const residuals *before, const residuals *after, int rounding,
                       int bucket, int64_t i)
{
    static const char *const names[] = {"a rank's residual", "a node's residual"};
    const float v = sum + before->of[rounding][i], sent = nearest(CLT_BF16, v);
    if (after) {
        equal(after->of[rounding][i], v - sent, names[rounding == CLT_ROUNDS_NODE], bucket, i);
        equal(sent + after->of[rounding][i], v, "what was sent and kept", bucket, i);
    }
    return sent;
}

/* What this rank gives to the others of its node. */
static void give(const lab *l, int bucket, const residuals *before, const residuals *after,
                 float *given)
{
    static float gradient[FLOATS];
    memset(given, 0, FLOATS * sizeof *given);
    for (int d = 0; d < l->n; d++) {
        const clt_replica *r = &l->store->replicas[d];
        ok(clt_replica_read(r, r->gradients[bucket], 0, count_of(l, bucket) * 4, gradient));
        for (int64_t i = 0; i < count_of(l, bucket); i++) {
            const float v = gradient[i] + before->device[d][i], sent = nearest(CLT_BF16, v);
            equal(after->device[d][i], v - sent, "a device's residual", bucket, i);
            given[i] += sent;
        }
    }
    for (int64_t i = 0; i < count_of(l, bucket) && has(l, bucket, CLT_ROUNDS_RANK); i++)
        given[i] = round_sum(given[i], before, after, CLT_ROUNDS_RANK, bucket, i);
}

/* Gathers an array of each rank. */
static float (*gather(const float *own, float (*all)[FLOATS]))[FLOATS]
{
    MPI_Allgather(own, FLOATS, MPI_FLOAT, all, FLOATS, MPI_FLOAT, MPI_COMM_WORLD);
    return all;
}

/* Owners have slices of the residual of the result, and zeros elsewhere. */
static float add_owners(float (*of)[FLOATS], const int *owns, int64_t i)
{
    float sum = 0;
    for (int r = 0; r < world.ranks; r++)
        sum += owns[r] == 1 ? of[r][i] : 0;
    return sum;
}

static double check_bucket(const lab *l, int bucket, const residuals *before)
{
    static residuals after, others;
    static float given[FLOATS], of_rank[MOST][FLOATS], node[MOST][FLOATS], old[MOST][FLOATS],
        kept[MOST][FLOATS];
    static uint16_t got[FLOATS];
    int rounds[MOST], owns[MOST];
    const int own[] = {has(l, bucket, CLT_ROUNDS_NODE), has(l, bucket, CLT_ROUNDS_SUM)};
    const int a_node = world.node_ranks;
    double largest = 0;
    read_residuals(l, bucket, &after);
    give(l, bucket, before, &after, given);
    gather(given, of_rank);
    gather(before->of[CLT_ROUNDS_NODE], node);
    gather(before->of[CLT_ROUNDS_SUM], old);
    gather(after.of[CLT_ROUNDS_SUM], kept);
    MPI_Allgather(&own[0], 1, MPI_INT, rounds, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Allgather(&own[1], 1, MPI_INT, owns, 1, MPI_INT, MPI_COMM_WORLD);
    for (int64_t i = 0; i < count_of(l, bucket); i++) {
        float total = 0;
        for (int first = 0; first < world.ranks; first += a_node) {
            float sum = 0;
            for (int r = first; r < first + a_node; r++)
                sum += of_rank[r][i];
            others.of[CLT_ROUNDS_NODE][i] = node[first][i];
            total += rounds[first] ? round_sum(sum, &others, first == world.rank ? &after : NULL,
                                               CLT_ROUNDS_NODE, bucket, i)
                                   : sum;
        }
        const float w = total + add_owners(old, owns, i), result = nearest(CLT_BF16, w);
        equal(add_owners(kept, owns, i), w - result, "the owners' residual", bucket, i);
        largest = fmax(largest, fabs((double)(w - result)));
        given[i] = result;
    }
    for (int d = 0; d < l->n; d++) {
        const clt_replica *r = &l->store->replicas[d];
        ok(clt_replica_read(r, r->half_gradients[bucket], 0, count_of(l, bucket) * 2, got));
        for (int64_t i = 0; i < count_of(l, bucket); i++) {
            const uint32_t bits = (uint32_t)got[i] << 16;
            float sum;
            memcpy(&sum, &bits, sizeof sum);
            equal(sum, given[i], "the sum", bucket, i);
        }
    }
    return largest;
}

static void residuals_are_what_was_rounded(void **state)
{
    static residuals before[MOST];
    const bool shares = world.node_ranks > 1; /* its node with other ranks */
    const bool leads = world.ranks > world.node_ranks && world.node_rank == 0;
    double largest = 0;
    (void)state;
    make_samples(xs, labels, BATCH, IN, CLASSES);
    lab l = make(CLT_BF16);
    const int buckets = l.store->layout.n_buckets;
    assert_true(buckets > 1 && buckets <= MOST && world.ranks > 1 && world.ranks <= MOST);
    for (int s = 0; s < STEPS; s++) {
        for (int b = 0; b < buckets; b++)
            if (count_of(&l, b)) {
                assert_int_equal(has(&l, b, CLT_ROUNDS_RANK), shares && l.n > 1);
                assert_int_equal(has(&l, b, CLT_ROUNDS_NODE), leads && (shares || l.n > 1));
                read_residuals(&l, b, &before[b]);
            }
        step(&l);
        for (int b = 0; b < buckets; b++)
            if (count_of(&l, b))
                largest = fmax(largest, check_bucket(&l, b, &before[b]));
        ok(clt_store_check(l.store));
    }
    assert_true(largest > 0);
    lab_close(&l);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    devices = argc > 1 ? argv[1] : "cpu";
    if (clt_world_open_mpi(MPI_COMM_WORLD, &world) != CLT_OK) {
        fprintf(stderr, "%s\n", clt_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(residuals_are_what_was_rounded)};
    const int failed = cmocka_run_group_tests(tests, open_runtime, close_runtime);
    if (failed) /* the others may wait for this rank */
        MPI_Abort(MPI_COMM_WORLD, 1);
    clt_world_close(&world);
    MPI_Finalize();
    return 0;
}
