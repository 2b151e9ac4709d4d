/*
 * Weights of losses that ignore labels, on several ranks, run by mpiexec: `labels DEVICES`. Each
 * rank counts the labels in its own feeds. If one rank cannot, all ranks compute the forward pass
 * before, and learn the same bits.
 */
#include <mpi.h>

#include "train/text_lab.h"

#include "device/core/device.h"
#include "train/core/trainer.h"
#include <cltrain/fit.h>
#include <cltrain/mpi.h>
#include <cltrain/split.h>

enum { EACH = 4, STEPS = 3, MOST_RANKS = 8 };

static clt_world world;
static const char *devices;
static int32_t tokens[MOST_RANKS * EACH * LENGTH], targets[MOST_RANKS * EACH * LENGTH];

static lab lab_of_world(void)
{
    clt_trainer_options o;
    lab l = text_lab(devices, NULL);
    clt_trainer_options_init(&o);
    o.batch = EACH * world.ranks;
    o.world = &world;
    o.comm_timeout = 60;
    lab_trainer(&l, &o);
    return l;
}

/* How many of the labels of ranks [0, ranks) count, if rank r has `samples[r]`. */
static double weight_of(const int *samples)
{
    double weight = 0;
    for (int r = 0; r < world.ranks; r++)
        weight += weight_of_texts(targets + r * EACH * LENGTH, samples[r]);
    return weight;
}

/* Trains. Rank `without` has its labels in buffers. The last rank has feeds by device. */
static void train(const int *samples, int without, float *learnt, size_t bytes)
{
    const int32_t *const own = targets + world.rank * EACH * LENGTH;
    const clt_feed of_tokens = {"tokens", -1, CLT_HOST(tokens + world.rank * EACH * LENGTH)};
    lab l = lab_of_world();
    clt_feed feeds[1 + 8] = {of_tokens, {"targets", -1, CLT_HOST(own)}};
    clt_step_batch batch;
    const bool apart = world.rank == without || world.rank == world.ranks - 1;
    cl_mem labels[8] = {NULL};
    int64_t parts[1 + 8];
    ok(clt_split(samples[world.rank], l.n, NULL, 1, parts));
    for (int d = 0; apart && d < l.n; d++) {
        const int32_t *of_device = own + parts[d] * LENGTH;
        feeds[1 + d] = (clt_feed){"targets", d, CLT_HOST(of_device)};
        if (world.rank != without)
            continue;
        labels[d] = clCreateBuffer(l.devices[d]->context, CL_MEM_COPY_HOST_PTR,
                                   EACH * LENGTH * sizeof *own, (void *)own, NULL);
        feeds[1 + d].array =
            (clt_array)CLT_BUFFER(labels[d], parts[d] * LENGTH * (int64_t)sizeof *own);
    }
    for (int i = 0; i < STEPS; i++) {
        clt_step_batch_init(&batch);
        batch.count = samples[world.rank];
        batch.feeds = feeds;
        batch.n_feeds = apart ? 1 + l.n : 2;
        l.trainer->results.weights[0] = -1;
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        assert_true(l.trainer->call.loss_weights[0] == weight_of(samples));
        /* A forward pass before the step leaves the weight here. */
        assert_true(l.trainer->results.weights[0] == (without < 0 ? -1 : weight_of(samples)));
    }
    ok(clt_trainer_wait(l.trainer));
    ok(clt_store_get(l.store, "wte.weight", learnt, bytes));
    for (int d = 0; d < l.n; d++)
        if (labels[d])
            clReleaseMemObject(labels[d]);
    lab_close(&l);
}

static void ranks_add_their_labels(void **state)
{
    int samples[MOST_RANKS];
    float counted[WORDS * WIDTH], forward[WORDS * WIDTH], first[WORDS * WIDTH];
    (void)state;
    /* Equal parts; then the last rank has one sample; then none. */
    for (int k = 0; k < 3; k++) {
        for (int r = 0; r < world.ranks; r++)
            samples[r] = r == world.ranks - 1 && k ? 2 - k : EACH;
        train(samples, -1, counted, sizeof counted);
        train(samples, 0, forward, sizeof forward);
        assert_memory_equal(counted, forward, sizeof counted);
        memcpy(first, counted, sizeof first);
        MPI_Bcast(first, (int)sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
        assert_memory_equal(first, counted, sizeof first);
    }
}

static clt_status fill(void *user, const int64_t *indices, int64_t count, void *const *fields)
{
    (void)user;
    for (int64_t i = 0; i < count; i++) {
        memcpy((int32_t *)fields[0] + i * LENGTH, tokens + indices[i] * LENGTH,
               sizeof(int32_t) * LENGTH);
        memcpy((int32_t *)fields[1] + i * LENGTH, targets + indices[i] * LENGTH,
               sizeof(int32_t) * LENGTH);
    }
    return CLT_OK;
}

/* A rank's loader does not call back for other ranks' samples. The report of the run replaces the
 * weight that a forward pass would leave, so this sees the right weight alone. */
static void callbacks_of_data_sets(void **state)
{
    const int64_t shape[] = {LENGTH};
    int samples[MOST_RANKS];
    clt_dataset *set;
    clt_fit_options o;
    int field;
    lab l = lab_of_world();
    (void)state;
    for (int r = 0; r < world.ranks; r++)
        samples[r] = EACH;
    ok(clt_dataset_create_callback("texts", EACH * world.ranks, fill, NULL, 0, &set));
    for (int f = 0; f < 2; f++) {
        ok(clt_dataset_add_field(set, f ? "targets" : "tokens", CLT_I32, 1, shape, NULL,
                                 CLT_DATA_BORROW, &field));
        ok(clt_dataset_set_classes(set, field, WORDS));
    }
    clt_fit_options_init(&o);
    o.shuffle = 0;
    ok(clt_fit(l.trainer, set, NULL, &o));
    assert_null(l.trainer->call.batch.loss_weights);
    assert_true(l.trainer->call.loss_weights[0] == weight_of(samples));
    lab_close(&l);
    clt_dataset_free(set);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    devices = argc > 1 ? argv[1] : "pocl";
    if (clt_world_open_mpi(MPI_COMM_WORLD, &world) != CLT_OK || world.ranks > MOST_RANKS) {
        fprintf(stderr, "%s\n", clt_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    make_texts(MOST_RANKS * EACH, tokens, targets);
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_add_their_labels),
                                       cmocka_unit_test(callbacks_of_data_sets)};
    if (cmocka_run_group_tests(tests, open_runtime, close_runtime))
        MPI_Abort(MPI_COMM_WORLD, 1); /* others may wait for this rank */
    clt_world_close(&world);
    MPI_Finalize();
    return 0;
}
